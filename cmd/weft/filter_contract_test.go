package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// filterCase is a configuration of a filter with which it acts on the request and holds at most one
// resource.
type filterCase struct {
	settings filtertest.Settings
	fields   []string                    // headers of the requests
	clusters map[string]protocol.Service // clusters that the filter calls
	body     string                      // body of the requests
	slow     bool                        // the body arrives slowly
	protocol string                      // protocol of the requests; "": unset
	zero     string                      // suffix of the name of a counter that must stay 0
	waits    bool                        // the filter itself waits
	previous int                         // number of requests that the filter serves first
}

// filterCases returns the cases by the name of the filter.
func filterCases() map[string][]filterCase {
	plain := func(settings filtertest.Settings, fields ...string) []filterCase {
		return []filterCase{{settings: settings, fields: fields}}
	}
	upstreams := func() map[string]protocol.Service {
		return map[string]protocol.Service{
			"good": filtertest.Application(), "start": filtertest.PanickingApplication(filtertest.PanicInStart),
			"read": filtertest.PanickingApplication(filtertest.PanicInResponseRead), "close": filtertest.PanickingApplication(filtertest.PanicInResponseClose),
			"silent": filtertest.SilentApplication(),
		}
	}
	mirrorTo := func(cluster string) filterCase {
		return filterCase{
			settings: filtertest.Settings(`{"cluster": "` + cluster + `", "percent": 100, "max_in_flight": 1}`),
			clusters: upstreams(), body: "abc", zero: "skipped_total",
		}
	}
	keysFrom := func(cluster string) filterCase {
		return filterCase{
			settings: filtertest.Settings(`{"providers": {"p": {"remote_jwks": {"http_uri": {"uri": "http://a.test/keys", "cluster": "` + cluster + `", "timeout": "1s"}}}},
				"rules": [{"requires": {"allow_missing_or_failed": {}}}]}`),
			fields: []string{"authorization: Bearer a.b.c"}, clusters: upstreams(), waits: cluster == "silent",
		}
	}
	const gzipped = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"
	const grpc, authz = "content-type: application/grpc", `{"http_service": {"server_uri": {"uri": "http://a.test", "cluster": "good", "timeout": "1s"}}}`
	const authzUnavailable = `{"http_service": {"server_uri": {"uri": "http://a.test", "cluster": "start", "timeout": "1s"}}, "failure_mode_allow": true}`
	const authzSilent = `{"http_service": {"server_uri": {"uri": "http://a.test", "cluster": "silent", "timeout": "1s"}}, "failure_mode_allow": true}`
	const authzSilentGRPC = `{"grpc_service": {"envoy_grpc": {"cluster_name": "silent"}, "timeout": "1s"}, "failure_mode_allow": true}`
	const authzWithBody = `{"http_service": {"server_uri": {"uri": "http://a.test", "cluster": "good", "timeout": "1s"}}, "with_request_body": {"max_request_bytes": 10}}`
	return map[string][]filterCase{
		"adaptive_concurrency": {
			{settings: `{"gradient_controller_config": {"concurrency_limit_params": {"max_concurrency_limit": 1, "concurrency_update_interval": "100ms"}, "min_rtt_calc_params": {"interval": "60s", "min_concurrency": 1}}}`},
			{settings: `{"gradient_controller_config": {"concurrency_limit_params": {"max_concurrency_limit": 1, "concurrency_update_interval": "100ms"}, "min_rtt_calc_params": {"interval": "60s", "min_concurrency": 1}}}`, fields: []string{grpc}},
		},
		"basic_auth": plain(`{"users": {"inline_string": "alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="}, "forward_username_header": "x-user"}`, "authorization: Basic YWxpY2U6cGFzc3dvcmQ="),
		"buffer":     {{settings: `{}`, body: "abc"}, {settings: `{}`, body: "abc", slow: true, waits: true}},
		"cdn_loop":   plain(`{"cdn_id": "me.test"}`, "cdn-loop: other.test"),
		"compressor": plain(`{"min_content_length": "1B", "content_type": ["text/plain"]}`, "accept-encoding: gzip"),
		"cors":       plain(`{"allow_origin_string_match": [{"exact": "https://a.test"}]}`, "origin: https://a.test"),
		"csrf":       plain(`{}`, "origin: https://shop.test"),
		"decompressor": {
			{settings: `{}`, fields: []string{"content-encoding: gzip"}, body: gzipped},
			{settings: `{"responses": {"enabled": true}, "advertise_accept_encoding": true}`, fields: []string{"accept-encoding: br"}},
		},
		"dubbo_stream": {{settings: `{"subset": "group"}`}, {settings: `{"subset": "group"}`, protocol: "Dubbo"}},
		"ext_authz": {
			{settings: authz, clusters: upstreams()},
			{settings: authzUnavailable, clusters: upstreams()},
			{settings: authzWithBody, clusters: upstreams(), body: "abc"},
			{settings: authzWithBody, clusters: upstreams(), body: "abc", slow: true, waits: true},
			{settings: authzSilent, clusters: upstreams(), waits: true},
			{settings: authzSilentGRPC, clusters: upstreams(), waits: true},
		},
		"fault": {
			{settings: `{"delay": {"fixed_delay": "1s", "percentage": 100}, "max_active_faults": 1}`, zero: "overflow_total", waits: true},
			{settings: `{"delay": {"fixed_delay": "1s", "percentage": 100}, "max_active_faults": 1}`, fields: []string{grpc}, zero: "overflow_total", waits: true},
		},
		"fault_tolerance": plain(`{"enabled": true}`),
		"flowControlFilter": {
			{settings: `{"app_name": "a", "global_switch": true, "limit_key_type": "PATH", "rules": [{"resource": "/a", "grade": 0, "threshold": 1}]}`, zero: "refused_total"},
			{settings: `{"app_name": "a", "global_switch": true, "rules": [{"resource": "/a", "threshold": 1, "controlBehavior": "throttling", "maxQueueingTimeMs": 1000}]}`, previous: 1, waits: true},
		},
		"gzip":               plain(`{"gzip_level": 1, "min_content_length": 1, "content_type": ["text/plain"]}`, "accept-encoding: gzip"),
		"header_mutation":    plain(`{"request_headers_to_remove": ["x"], "response_headers_to_remove": ["server"]}`),
		"header_to_metadata": plain(`{"request_rules": [{"header": "x", "on_header_present": {"metadata_namespace": "a", "key": "k"}}]}`, "x: 1"),
		"healthcheck":        plain(`{"endpoint": "/a", "pass_through_mode": true}`),
		"ip_access":          plain(`{"default_action": "allow", "ips": [{"action": "deny", "addrs": ["10.0.0.66"]}]}`),
		"istio_stats":        plain(`{"reporter": "source", "workload": {"name": "a"}}`),
		"local_ratelimit":    {{settings: `{"stat_prefix": "a", "token_bucket": {"max_tokens": 100, "fill_interval": "1000s"}, "enable_x_ratelimit_headers": "DRAFT_VERSION_03"}`, zero: "enforced_total"}},
		"jwt_authn":          {keysFrom("good"), keysFrom("start"), keysFrom("read"), keysFrom("close"), keysFrom("silent")},
		"mirror":             {mirrorTo("good"), mirrorTo("start"), mirrorTo("read"), mirrorTo("close"), mirrorTo("silent")},
		"payload_limit":      {{settings: `{"max_entity_size": "1MB"}`, body: "abc"}},
		"peer_metadata":      plain(`{"downstream_discovery": true, "downstream_propagation": true, "workload": {"name": "a"}}`),
		"rbac":               plain(`{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}, "shadow_rules": {}}`),
	}
}

// TestFiltersReleaseResourcesAfterPanics verifies that each registered filter releases its
// resources after panics of the application, and lets the next request pass.
func TestFiltersReleaseResourcesAfterPanics(t *testing.T) {
	cases := filterCases()
	for i, factory := range streamFilters() {
		if len(cases[factory.Name]) == 0 {
			t.Errorf("%s: the test has no case", factory.Name)
		}
		for _, c := range cases[factory.Name] {
			for _, point := range filtertest.PanicPoints() {
				t.Run(factory.Name+"/"+string(point), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c.runOnce(t, streamFilters()[i], point) // filters from the same factory share their resources
					})
				})
			}
		}
	}
}

// TestFiltersKeepServiceContract verifies that each registered filter keeps the contract of
// protocol.Service: in each mode, the client and the application get the same messages, the
// counters have the same values, and nothing stays in flight. If the client disconnects while the
// application or the filter waits, the exchange ends with ReasonDownstreamDisconnect.
func TestFiltersKeepServiceContract(t *testing.T) {
	cases := filterCases()
	for _, factory := range streamFilters() {
		for i, c := range cases[factory.Name] {
			t.Run(fmt.Sprint(factory.Name, i), func(t *testing.T) {
				want, wantCounts := c.serveInMode(t, factory.Name, filtertest.Sync)
				if want.Status != 200 || want.Request == "" {
					t.Fatalf("%+v: the case must let requests pass", want)
				}
				for _, mode := range filtertest.Modes() {
					got, counts := c.serveInMode(t, factory.Name, mode)
					if mode == filtertest.Canceled || mode == filtertest.DisconnectedWhileWaiting && c.waits {
						if got.Reason != protocol.ReasonDownstreamDisconnect || got.Request != "" {
							t.Errorf("%s: %+v, want the reason %v and no request that the application read", mode, got, protocol.ReasonDownstreamDisconnect)
						}
						continue
					}
					if got != want || counts != wantCounts {
						t.Errorf("%s: %+v, metrics %s\nwant %+v, %s", mode, got, counts, want, wantCounts)
					}
				}
			})
		}
	}
}

// serveInMode serves one request, and returns its result and the counters of the filter.
func (c *filterCase) serveInMode(t *testing.T, name string, mode filtertest.Mode) (result filtertest.Result, counters string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		factories := streamFilters()
		factory := factories[slices.IndexFunc(factories, func(f filter.StreamFilterFactory) bool { return f.Name == name })]
		calls := &filtertest.ClusterClient{Clusters: c.clusters}
		f, counts := filtertest.BuildWith(t, factory, c.settings, calls)
		for range c.previous {
			if _, err := filtertest.ServeInMode(t.Context(), filtertest.Sync, f, c.request(""), counts); err != nil {
				t.Errorf("previous request: %v", err)
			}
		}
		var err error
		if result, err = filtertest.ServeInMode(t.Context(), mode, f, c.request(""), counts); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		calls.Wait()
		c.checkReleased(t, factory, counts)
		for _, m := range factory.Metrics {
			if m.Kind == metrics.KindCounter {
				counters += fmt.Sprintf("%s %v, ", m.Name, counts.Value(m))
			}
		}
	})
	return result, counters
}

func (c *filterCase) runOnce(t *testing.T, factory filter.StreamFilterFactory, point filtertest.PanicPoint) {
	calls := &filtertest.ClusterClient{Clusters: c.clusters}
	f, counts := filtertest.BuildWith(t, factory, c.settings, calls)
	for range 3 {
		_ = filtertest.ServeLikeEngine(t, f, filtertest.PanickingApplication(point), c.request(point), counts) // a filter may have responded before
		calls.Wait()
		c.checkReleased(t, factory, counts)
	}
	passed := false
	app := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		passed = true
		if body := x.Request.Body; body != nil {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return err
			}
		}
		return x.Serve(ctx, filtertest.Application())
	})
	x := c.request("")
	if err := filtertest.ServeLikeEngine(t, f, app, x, counts); err != nil || !passed || x.Response.Status != 200 {
		t.Errorf("the next request: reached the application: %v, status %d, error %v; want true, 200, nil", passed, x.Response.Status, err)
	}
	calls.Wait()
	c.checkReleased(t, factory, counts)
}

// checkReleased verifies that the gauges of requests in flight are 0, and so is the counter c.zero.
func (c *filterCase) checkReleased(t *testing.T, factory filter.StreamFilterFactory, counts *filtertest.Probe) {
	t.Helper()
	for _, m := range factory.Metrics {
		inFlight := m.Kind == metrics.KindGauge && (strings.HasSuffix(m.Name, "in_flight") || strings.HasSuffix(m.Name, "active"))
		if n := counts.Value(m); n != 0 && (inFlight || c.zero != "" && strings.HasSuffix(m.Name, c.zero)) {
			t.Errorf("%s is %v, want 0", m.Name, n)
		}
	}
	if c.zero != "" && !slices.ContainsFunc(factory.Metrics, func(m metrics.Metric) bool { return strings.HasSuffix(m.Name, c.zero) }) {
		t.Errorf("%s has no metric that ends in %s", factory.Name, c.zero)
	}
}

func (c *filterCase) request(point filtertest.PanicPoint) *protocol.Exchange {
	x := filtertest.NewRequest("/a", c.fields...)
	x.Meta.Protocol = c.protocol
	x.Meta.Conn = &protocol.ConnMeta{Remote: netip.MustParseAddrPort("10.0.0.1:1")}
	if point == filtertest.PanicInRequestRead {
		x.Request.Method, x.Request.ContentLength, x.Request.Body = "POST", -1, filtertest.PanickingBody()
		return x
	}
	if c.body != "" {
		x.Request.Method, x.Request.ContentLength = "POST", int64(len(c.body))
		x.Request.Body = protocol.NewStringBody(c.body)
		if c.slow {
			x.Request.Body = filtertest.NewSlowBody(c.body)
		}
	}
	return x
}
