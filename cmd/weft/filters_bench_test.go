package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// eightFilters returns typical filters of a sidecar with their settings, in order.
func eightFilters() [8][2]string {
	return [...][2]string{
		{"ip_access", `{"default_action": "deny", "ips": [
			{"action": "deny", "addrs": ["192.0.2.0/24", "198.51.100.7"]},
			{"addrs": ["10.0.0.0/8", "172.16.0.0/12", "2001:db8::/32"]}]}`},
		{"cors", `{"allow_origin_string_match": [{"exact": "https://shop.test"}, {"suffix": ".shop.test"}], "expose_headers": "x-request-id"}`},
		{"csrf", `{"additional_origins": [{"exact": "shop.test"}]}`},
		{"header_to_metadata", `{"request_rules": [{"header": "x-version",
			"on_header_present": {"key": "version"}, "on_header_missing": {"key": "version", "value": "v1"}}]}`},
		{"rbac", `{"rules": {"policies": {
			"admins": {"permissions": [{"url_path": {"path": {"prefix": "/admin"}}}], "principals": [{"header": {"name": "x-role", "exact_match": "admin"}}]},
			"users": {
				"permissions": [{"and_rules": {"rules": [{"header": {"name": ":method", "exact_match": "POST"}}, {"not_rule": {"url_path": {"path": {"prefix": "/admin"}}}}]}}],
				"principals": [{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}]}}}}`},
		{"local_ratelimit", `{
			"token_bucket": {"max_tokens": 4000000000, "tokens_per_fill": 1000000000, "fill_interval": "1s"},
			"rate_limits": [{"actions": [{"remote_address": {}}]}],
			"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 4000000000, "tokens_per_fill": 1000000000, "fill_interval": "1s"}}]}`},
		{"header_mutation", `{"request_headers_to_add": [{"header": {"key": "x-caller", "value": "%downstream_remote_ip%"}, "append": false}]}`},
		{"payload_limit", `{"max_entity_size": "1MB"}`},
	}
}

// filterChain puts filters with the given settings in front of a service that does nothing.
func filterChain(t testing.TB, settings [][2]string) protocol.Service {
	t.Helper()
	factories := streamFilters()
	var s protocol.Service = protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
	for _, setting := range slices.Backward(settings) {
		i := slices.IndexFunc(factories, func(f filter.StreamFilterFactory) bool { return f.Name == setting[0] })
		if i < 0 {
			t.Fatalf("filter %s is not registered", setting[0])
		}
		report := new(document.Report)
		cfg := factories[i].Config()
		document.NewDecoder(report).Decode(document.Parse(setting[0], []byte(setting[1]), document.Options{}, report), cfg)
		if err := report.Diagnostics().Err(); err != nil {
			t.Fatal(err)
		}
		newService, err := factories[i].New(cfg, filter.Env{Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(metrics.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		s = newService(s)
	}
	return s
}

// newPost returns a request that all filters of eightFilters accept.
func newPost() *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Meta.Conn = &protocol.ConnMeta{Remote: netip.MustParseAddrPort("10.1.2.3:50000"), Local: netip.MustParseAddrPort("10.0.0.1:8080"), RemoteIP: "10.1.2.3"}
	resetPost(x)
	return x
}

func resetPost(x *protocol.Exchange) {
	x.Reset()
	r := &x.Request
	r.Method, r.Scheme, r.Authority, r.Path = "POST", "http", "api.shop.test", "/items/1?quick=1"
	r.ContentLength = 0
	for _, h := range [...]protocol.Field{
		{Name: "User-Agent", Value: "Mozilla/5.0"}, {Name: "Accept", Value: "*/*"}, {Name: "Accept-Encoding", Value: "gzip, br"},
		{Name: "Content-Type", Value: "application/json"}, {Name: "Origin", Value: "https://shop.test"}, {Name: "X-Version", Value: "v2"},
		{Name: "X-Caller", Value: "forged"}, {Name: "X-Request-Id", Value: "4d1e3f00"},
	} {
		r.Header.Add(h.Name, h.Value)
	}
}

func TestEightFiltersDoNotAllocate(t *testing.T) {
	settings := eightFilters()
	s, x, ctx := filterChain(t, settings[:]), newPost(), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		resetPost(x)
		if err := x.Start(ctx, s); err != nil || x.Record.Reason != protocol.ReasonNone || x.Response.Header.Get("Access-Control-Allow-Origin") == "" {
			t.Fatalf("%v, %v, %d fields; want no error, and the headers of cors", err, x.Record.Reason, x.Response.Header.Len())
		}
	}); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}

// BenchmarkFilters measures the cost of a request in each filter, and in all eight. Subtract the
// result of "none", the cost of the request without filters.
func BenchmarkFilters(b *testing.B) {
	settings := eightFilters()
	run := func(name string, subset [][2]string) {
		b.Run(name, func(b *testing.B) {
			s, x, ctx := filterChain(b, subset), newPost(), b.Context()
			b.ReportAllocs()
			started := processorTime(b)
			for b.Loop() {
				resetPost(x)
				_ = x.Start(ctx, s)
			}
			b.ReportMetric(float64(processorTime(b)-started)/float64(b.N), "cpu-ns/op")
		})
	}
	run("none", nil)
	for i := range settings {
		run(settings[i][0], settings[i:i+1])
	}
	run("all", settings[:])
}

// processorTime returns the processor time that the process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
