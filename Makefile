# Weft. "make help" lists the targets; CONTRIBUTING.md says when to use it.

GO       ?= go
FUZZTIME ?= 30s
# Arguments of the programs behind "make bench", "make flood", "make fuzz", "make interop-envoy" and
# "make interop-corpora".
BENCH    ?=
FUZZ     ?= ./...
FLOOD    ?=
ENVOY    ?=
CORPORA  ?=

.DEFAULT_GOAL := help
.PHONY: help build setup test lint unit race e2e chaos soak environments xds-harness interop-envoy interop-corpora cover bench flood fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  FUZZTIME=30s  time of each target of make fuzz;  FUZZ=./pkg/router  the packages"
	@echo "  BENCH='...'   arguments of make bench, for example BENCH='-rounds 3 -rows 1k-64'"
	@echo "  FLOOD='...'   arguments of make flood, for example FLOOD='-attack rapid'"
	@echo "  CORPORA='...' arguments of make interop-corpora, for example CORPORA='-only docs'"
	@echo "  ENVOY='...'   arguments of make interop-envoy, for example ENVOY='-features cors -differences'"

build: ## build bin/weft
	$(GO) build -trimpath -o bin/weft ./cmd/weft

setup: ## install what the checks need: tools into .tools, Debian packages as root
	@test/scripts/setup

test: ## everything that must pass: lint, unit tests with the race detector, all tests of ./test
	@test/scripts/test

lint: ## formatting, go vet, staticcheck and more by golangci-lint, go.mod, archtest
	@test/scripts/lint

unit: ## unit tests only
	$(GO) test ./cmd/... ./configs/... ./internal/... ./pkg/...

race: ## unit tests with the race detector, poisoned buffers and leak counts
	$(GO) test -race ./cmd/... ./configs/... ./internal/... ./pkg/...

e2e: ## all tests of ./test except chaos: end to end, conformance, interoperability, documentation
	$(GO) test $$($(GO) list ./test/... | grep -v /test/chaos)

chaos: ## chaos tests only, one at a time, with a minute of load each
	WEFT_CHAOS_DURATION=1m $(GO) test ./test/chaos -count=1 -parallel 1 -timeout 20m -v

soak: build chaos ## long runs of tests that make test runs briefly; before a release
	$(GO) run ./test/flood -weft bin/weft -duration 12s
	WEFT_SOAK=5m $(GO) test ./test/e2e -run TestSoak -count=1 -timeout 20m -v
	WEFT_OUTAGE=30s $(GO) test ./test/dubbo -run 'IsKilled|IsStopped|Partition|Dies' -count=1 -timeout 30m
	WEFT_INTEROP_LONG=1 $(GO) test ./test/interop -run '^Test(Bolt|Dubbo|SOFARPC)$$' -count=1 -timeout 20m

environments: ## the whole suite in each of six environments: calm, busy, loopback, hostname, ipv4, interfaces
	@test/scripts/environments

xds-harness: ## go-control-plane's own harness against Weft only; make e2e includes it
	$(GO) test ./test/xds -run TestHarness -count=1 -v

interop-envoy: setup ## all requests of test/envoy to Weft and Envoy, compared; make e2e includes a selection
	$(GO) test ./test/envoy -run TestEnvoy -count=1 -timeout 20m -v -args -all $(ENVOY)

interop-corpora: setup ## public configuration files to Weft and Envoy; fetches them into .tools/corpora with git
	@test/scripts/corpora .tools/corpora
	$(GO) test ./test/corpora -run TestCorpora -count=1 -timeout 60m -v -args -dir $(CURDIR)/.tools/corpora $(CORPORA)

cover: ## unit tests with coverage into coverage.out and coverage.html
	$(GO) test -coverprofile=coverage.out -coverpkg=./pkg/...,./internal/... ./cmd/... ./configs/... ./internal/... ./pkg/...
	$(GO) tool cover -html=coverage.out -o coverage.html
	$(GO) tool cover -func=coverage.out | tail -n 1

bench: build ## Weft compared with nginx and haproxy, interleaved; figures for docs/performance.md
	$(GO) run ./test/bench $(BENCH)
ifeq ($(BENCH),)
	$(GO) run ./test/xds/scale -bin bin/weft -updates 1000 -every 10ms
	$(GO) run ./test/dubbo/scale -bin bin/weft
endif

flood: build ## the cost of floods for Weft, haproxy and nginx, and for a well-behaved client of each
	$(GO) run ./test/flood -weft bin/weft $(FLOOD)

fuzz: ## every fuzz target for FUZZTIME each
	@test/scripts/fuzz "$(FUZZTIME)" "$(FUZZ)"

clean: ## remove what was built (not .tools)
	rm -rf bin dist coverage.out coverage.html
