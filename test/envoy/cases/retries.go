package cases

import (
	"strings"
	"time"
)

// retryTo returns a route to o1 with a retry policy.
func retryTo(policy string) string { return routeTo("retry_policy: {" + policy + "}") }

// retries adds conditions of retries, each with hosts that fail in all ways.
func (s *set) retries() {
	for _, policy := range []string{
		"retry_on: 5xx", "retry_on: gateway-error", "retry_on: reset", "retry_on: connect-failure", "retry_on: refused-stream",
		"retry_on: retriable-4xx", "retry_on: 'reset,connect-failure'", "retry_on: reset-before-request",
		"retry_on: retriable-status-codes, retriable_status_codes: [418, 503]", "retry_on: envoy-ratelimited",
		"retry_on: retriable-headers, retriable_headers: [{name: x-retry, present_match: true}]",
		"retry_on: 5xx, num_retries: 3", "retry_on: 5xx, num_retries: 0", "num_retries: 2", "retry_on: http3-post-connect-failure",
		"retry_on: 5xx, retriable_request_headers: [{name: ':method', string_match: {exact: GET}}]",
	} {
		g := s.add(Group{Feature: "action.retry", Routes: retryTo(policy)})
		for _, steps := range []string{
			"503,200", "503,503,200", "500,200", "502,200", "504,200", "409,200", "418,200", "429,200", "404,200", "reset,200", "close,200", "reset,reset,200",
		} {
			g.get("/", field("x-o-seq", steps), labelf("%s %s", policy, steps))
		}
		g.get("/", field("x-o-seq", "503,200"), method("POST"), body("abc"), labelf("%s POST", policy))
		g.get("/", field("x-o-seq", "503,200"), field("x-o-h", "x-retry: 1"), labelf("%s x-retry", policy))
		g.get("/", field("x-o-seq", "503,200"), field("x-o-h", "x-envoy-ratelimited: 1"), labelf("%s x-envoy-ratelimited", policy))
		g.h2(field("x-o-seq", "503,200"), labelf("%s h2", policy))
	}
	for _, policy := range []string{
		"retry_on: unavailable", "retry_on: cancelled", "retry_on: deadline-exceeded", "retry_on: resource-exhausted", "retry_on: internal",
	} {
		g := s.add(Group{Feature: "action.retry.grpc", Routes: strings.ReplaceAll(retryTo(policy), "o1", "h1")})
		for _, status := range []string{"1", "4", "8", "13", "14", "0"} {
			g.h2(field("content-type", "application/grpc"), field("te", "trailers"), field("x-o-trailersonly", status),
				method("POST"), body("\x00\x00\x00\x00\x00"), labelf("%s grpc-status %s", policy, status))
		}
	}
}

// retryLimits adds limits of retries: buffers, tries, hosts and times.
func (s *set) retryLimits() {
	const feature = "action.retry.limits"
	const unit = 150 * time.Millisecond
	g := s.add(Group{Feature: feature, Routes: routeTo("timeout: 1.5s, retry_policy: {retry_on: 5xx, num_retries: 2, per_try_timeout: 0.3s}")})
	g.get("/", field("x-o-seq", "delay700:200,200"), measured(unit), label("per_try_timeout"))
	g.get("/", field("x-o-seq", "hang"), measured(unit), label("per_try_timeout of all tries"))
	g.get("/", field("x-o-seq", "503,delay700:200,200"), measured(unit), label("per_try_timeout after a failure"))
	g = s.add(Group{Feature: feature, Routes: routeTo("timeout: 0.6s, retry_policy: {retry_on: 5xx, num_retries: 9, per_try_timeout: 0.25s}")})
	g.get("/", field("x-o-seq", "hang"), measured(unit), label("timeout before the last try"))
	g = s.add(Group{Feature: feature, Routes: routeTo("retry_policy: {retry_on: 5xx, per_try_idle_timeout: 0.3s}")})
	g.get("/", field("x-o-seq", "hang,200"), measured(unit), label("per_try_idle_timeout"))
	g = s.add(Group{Feature: feature, Routes: routeTo("retry_policy: {retry_on: 5xx, num_retries: 2, retry_back_off: {base_interval: 0.001s, max_interval: 0.002s}}")})
	g.get("/", field("x-o-seq", "503,503,200"), label("retry_back_off"))
	g = s.add(Group{Feature: feature, Routes: routeTo("retry_policy: {retry_on: 5xx, num_retries: 1, rate_limited_retry_back_off: {reset_headers: [{name: retry-after, format: SECONDS}], max_interval: 2s}}")})
	g.get("/", field("x-o-seq", "503,200"), field("x-o-h", "retry-after: 1"), measured(300*time.Millisecond), timeout(4*time.Second), label("rate_limited_retry_back_off"))
	g.get("/", field("x-o-seq", "503,200"), label("without retry-after"))

	const previous = `retry_host_predicate: [{name: envoy.retry_host_predicates.previous_hosts, typed_config: {"@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}}]`
	toMany := func(policy string) string { return strings.ReplaceAll(retryTo(policy), "o1", "many") }
	g = s.add(Group{Feature: feature, Routes: toMany("retry_on: 5xx, num_retries: 2, host_selection_retry_max_attempts: 5, " + previous)})
	for range 3 {
		g.get("/", field("x-o-seq", "503,503,200"), sorted(), label("previous_hosts"))
	}
	g = s.add(Group{Feature: feature, Routes: routeTo("per_request_buffer_limit_bytes: 100, retry_policy: {retry_on: 5xx}")})
	g.get("/", field("x-o-seq", "503,200"), method("POST"), body(strings.Repeat("x", 50)), label("a small body"))
	g.get("/", field("x-o-seq", "503,200"), method("POST"), body(strings.Repeat("x", 5000)), label("a body above the buffer limit"))
	g = s.add(Group{Feature: feature, HostFields: "include_request_attempt_count: true\ninclude_attempt_count_in_response: true\nretry_policy: {retry_on: 5xx}"})
	g.get("/", field("x-o-seq", "503,200"), label("attempt counts"))
	g.get("/", label("attempt counts of one attempt"))
	g = s.add(Group{Feature: feature, Routes: strings.ReplaceAll(retryTo("retry_on: 5xx, num_retries: 3"), "o1", "no-retries"),
		Clusters: cluster("no-retries", "  circuit_breakers: {thresholds: [{max_retries: 0}]}\n", "o1")})
	g.get("/", field("x-o-seq", "503,200"), label("max_retries 0"))
}

func (s *set) routeTimeouts() {
	const feature = "action.timeout"
	const unit = 150 * time.Millisecond
	for _, v := range []struct{ action, directive, value string }{
		{"timeout: 0.3s", "x-o-delay", "900"},
		{"timeout: 0.3s", "x-o-delay", "50"},
		{"timeout: 0.3s", "x-o-bodydelay", "900"},
		{"timeout: 0s", "x-o-delay", "400"},
		{"idle_timeout: 0.3s", "x-o-delay", "900"},
		{"idle_timeout: 0.3s", "x-o-bodydelay", "900"},
		{"max_stream_duration: {max_stream_duration: 0.3s}", "x-o-delay", "900"},
		{"max_stream_duration: {max_stream_duration: 0.3s}", "x-o-bodydelay", "900"},
		{"timeout: 1s, max_stream_duration: {max_stream_duration: 0.3s}", "x-o-delay", "900"},
	} {
		g := s.add(Group{Feature: feature, Routes: routeTo(v.action)})
		g.get("/", field(v.directive, v.value), measured(unit), labelf("%s %s %s", v.action, v.directive, v.value))
		g.h2(field(v.directive, v.value), measured(unit), labelf("h2 %s %s %s", v.action, v.directive, v.value))
		g.h2(field(v.directive, v.value), measured(unit), method("POST"), body("\x00\x00\x00\x00\x00"),
			field("content-type", "application/grpc"), labelf("grpc %s %s %s", v.action, v.directive, v.value))
	}
	for _, v := range []string{
		"max_stream_duration: {grpc_timeout_header_max: 0s}",
		"max_stream_duration: {grpc_timeout_header_max: 0.3s}",
		"max_stream_duration: {grpc_timeout_header_max: 2s, grpc_timeout_header_offset: 0.1s}",
		"timeout: 2s",
	} {
		g := s.add(Group{Feature: feature, Routes: strings.ReplaceAll(routeTo(v), "o1", "h1")})
		for _, limit := range []string{"300m", "2S", "x"} {
			g.h2(field("x-o-delay", "900"), field("grpc-timeout", limit), measured(unit), method("POST"), body("\x00\x00\x00\x00\x00"),
				field("content-type", "application/grpc"), field("te", "trailers"), labelf("%s grpc-timeout %s", v, limit))
		}
	}
}

func (s *set) hedges() {
	const unit = 150 * time.Millisecond
	for _, v := range []string{"hedge_policy: {hedge_on_per_try_timeout: true}", "hedge_policy: {initial_requests: 1}"} {
		g := s.add(Group{Feature: "action.hedge", Routes: routeTo(v + ", timeout: 2s, retry_policy: {retry_on: 5xx, num_retries: 2, per_try_timeout: 0.3s}")})
		g.get("/", field("x-o-seq", "delay1200:200,200"), measured(unit), label(v))
		g.get("/", field("x-o-seq", "delay450:200,delay900:200"), measured(unit), label(v+" the first responds first"))
		g.get("/", field("x-o-seq", "503,200"), measured(unit), label(v+" a failure"))
	}
}

// rateLimitActions adds descriptors of routes, which the filter local_ratelimit counts.
func (s *set) rateLimitActions() {
	const bucket = `
stat_prefix: l
token_bucket: {max_tokens: 1000, tokens_per_fill: 1000, fill_interval: 60s}
filter_enabled: {default_value: {numerator: 100}}
filter_enforced: {default_value: {numerator: 100}}
descriptors:
- entries: [{key: ENTRY}]
  token_bucket: {max_tokens: 1, tokens_per_fill: 1, fill_interval: 60s}
`
	for _, v := range []struct{ entry, actions string }{
		{"generic_key, value: g", "[{generic_key: {descriptor_value: g}}]"},
		{"k, value: g", "[{generic_key: {descriptor_key: k, descriptor_value: g}}]"},
		{"k, value: v", "[{request_headers: {header_name: x-l, descriptor_key: k}}]"},
		{"header_match, value: m", "[{header_value_match: {descriptor_value: m, headers: [{name: x-l, string_match: {exact: v}}]}}]"},
		{"remote_address, value: 127.0.0.1", "[{remote_address: {}}]"},
		{"destination_cluster, value: o1", "[{destination_cluster: {}}]"},
		{"query_match, value: m", "[{query_parameter_value_match: {descriptor_value: m, query_parameters: [{name: q, string_match: {exact: v}}]}}]"},
		{"q, value: v", "[{query_parameters: {query_parameter_name: q, descriptor_key: q}}]"},
	} {
		g := s.add(Group{
			Feature: "action.rate_limit", Filters: filter("local_ratelimit", "local_ratelimit.v3.LocalRateLimit", strings.ReplaceAll(bucket, "ENTRY", v.entry)),
			Routes: routeTo("rate_limits: [{actions: " + v.actions + "}]"),
		})
		g.get("/", label(v.actions+" not limited"))
		g.get("/?q=v", field("x-l", "v"), label(v.actions+" first"))
		g.get("/?q=v", field("x-l", "v"), label(v.actions+" second"))
		g.get("/?q=w", field("x-l", "w"), label(v.actions+" another value"))
	}
}
