package localratelimit

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	synctest.Test(t, func(t *testing.T) {
		shop := newTestFilter(t, Factory(), examples[0])
		if got := shop.sendMany(30, httpRequest("10.0.0.1")); got != 20 {
			t.Errorf("%d of 30 requests of a client were allowed, want 20", got)
		}
		total := 0
		for i := range 20 {
			total += shop.sendMany(10, httpRequest(fmt.Sprintf("10.0.1.%d", i)))
		}
		if total != 180 {
			t.Errorf("%d of 200 requests of other clients were allowed, want 180", total)
		}
		report := newTestFilter(t, Factory(), examples[1])
		if got := report.sendMany(5, rpcCall("org.example.Shop", "report")); got != 1 {
			t.Errorf("%d of 5 calls of the limited method were allowed, want 1", got)
		}
		if got := report.sendMany(2000, rpcCall("org.example.Shop", "buy")); got != 1000 {
			t.Errorf("%d of 2000 calls of another method were allowed, want 1000", got)
		}
	})
}

// testFilter is a filter in front of an application, and its counts.
type testFilter struct {
	t       *testing.T
	service protocol.Service
	counts  *filtertest.Probe
}

func newTestFilter(t *testing.T, factory filter.StreamFilterFactory, s filtertest.Settings) *testFilter {
	t.Helper()
	f, counts := filtertest.Build(t, factory, s)
	return &testFilter{t, f(filtertest.Application()), counts}
}

// send sends x once and returns the status of the response.
func (r *testFilter) send(x *protocol.Exchange) int {
	r.t.Helper()
	x.ResetResponse()
	x.Record.Reason = protocol.ReasonNone
	if err := x.Serve(r.t.Context(), r.service); err != nil {
		r.t.Fatal(err)
	}
	if limited := x.Record.Reason == protocol.RateLimited; limited != (x.Response.Status != 200) {
		r.t.Errorf("status %d with the reason %v, want a status other than 200 exactly for %v", x.Response.Status, x.Record.Reason, protocol.RateLimited)
	}
	return x.Response.Status
}

// sendMany sends x n times and returns the number of 200 responses.
func (r *testFilter) sendMany(n int, x *protocol.Exchange) (allowed int) {
	r.t.Helper()
	for range n {
		if r.send(x) == 200 {
			allowed++
		}
	}
	return allowed
}

// httpRequest returns a request from an address with headers "name: value".
func httpRequest(from string, fields ...string) *protocol.Exchange {
	x := filtertest.NewRequest("/items", fields...)
	x.Meta.Conn = new(protocol.ConnMeta)
	if from != "" {
		x.Meta.Conn.Remote = netip.AddrPortFrom(netip.MustParseAddr(from), 50000)
	}
	return x
}

func rpcCall(service, method string, attachments ...string) *protocol.Exchange {
	x := httpRequest("10.0.0.1", append([]string{"service: " + service, "method: " + method}, attachments...)...)
	x.Request.Method, x.Request.Authority = "", service
	return x
}

func TestRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, Factory(), `{"token_bucket": {"max_tokens": 5, "tokens_per_fill": 10, "fill_interval": "1s"}}`)
		x := httpRequest("10.0.0.1")
		for _, step := range []struct {
			after time.Duration
			want  int // number of allowed requests, of 10
		}{
			{0, 5},
			{99 * time.Millisecond, 0},
			{time.Millisecond, 1},
			{100 * time.Millisecond, 1},
			{250 * time.Millisecond, 2},
			{50 * time.Millisecond, 1},
			{time.Hour, 5},
		} {
			time.Sleep(step.after) // fake time
			if got := r.sendMany(10, x); got != step.want {
				t.Errorf("%v later: %d of 10 were allowed, want %d", step.after, got, step.want)
			}
		}
		if ok, limited, enforced := r.counts.Value(okMetric()), r.counts.Value(limitedMetric()), r.counts.Value(enforcedMetric()); ok != 15 || limited != 55 || enforced != 55 {
			t.Errorf("counted %v ok, %v limited, %v enforced; want 15, 55, 55", ok, limited, enforced)
		}
	})
}

func TestDescriptors(t *testing.T) {
	const two = `"token_bucket": {"max_tokens": 2, "fill_interval": "1h"}`
	limits := func(actions, entries string) filtertest.Settings {
		return filtertest.Settings(`{"rate_limits": [{"actions": [` + actions + `]}], "descriptors": [{"entries": [` + entries + `], ` + two + `}]}`)
	}
	type sent struct {
		x    *protocol.Exchange
		want int // number of allowed requests, of 3
	}
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		sent     []sent
	}{
		{"clients", limits(`{"remote_address": {}}`, `{"key": "remote_address"}`),
			[]sent{{httpRequest("10.0.0.1"), 2}, {httpRequest("10.0.0.2"), 2}, {httpRequest("10.0.0.1"), 0}, {httpRequest("::1"), 2}}},
		{"one client", limits(`{"remote_address": {}}`, `{"key": "remote_address", "value": "10.0.0.1"}`),
			[]sent{{httpRequest("10.0.0.1"), 2}, {httpRequest("10.0.0.2"), 3}}},
		{"networks", limits(`{"masked_remote_address": {"v4_prefix_mask_len": 24, "v6_prefix_mask_len": 64}}`, `{"key": "masked_remote_address"}`),
			[]sent{{httpRequest("10.0.0.1"), 2}, {httpRequest("10.0.0.2"), 0}, {httpRequest("10.0.1.1"), 2}, {httpRequest("2001:db8::1"), 2}, {httpRequest("2001:db8::2"), 0}, {httpRequest("2001:db8:0:1::"), 2}}},
		{"one network", limits(`{"masked_remote_address": {"v4_prefix_mask_len": 24}}`, `{"key": "masked_remote_address", "value": "10.0.0.0/24"}`),
			[]sent{{httpRequest("10.0.0.1"), 2}, {httpRequest("10.0.0.2"), 0}, {httpRequest("10.0.1.1"), 3}}},
		{"no address", limits(`{"remote_address": {}}`, `{"key": "remote_address"}`),
			[]sent{{httpRequest(""), 2}, {httpRequest(""), 0}}},
		{"headers", limits(`{"request_headers": {"header_name": "X-Tenant", "descriptor_key": "tenant"}}`, `{"key": "tenant"}`),
			[]sent{{httpRequest("10.0.0.1", "x-tenant: a"), 2}, {httpRequest("10.0.0.2", "x-tenant: a"), 0}, {httpRequest("10.0.0.1", "x-tenant: b"), 2}, {httpRequest("10.0.0.1"), 3}}},
		{"long values", limits(`{"request_headers": {"header_name": "x", "descriptor_key": "k"}}`, `{"key": "k"}`),
			[]sent{{httpRequest("10.0.0.1", "x: "+strings.Repeat("a", 1000)), 2}, {httpRequest("10.0.0.1", "x: "+strings.Repeat("a", 1000)+"b"), 2}, {httpRequest("10.0.0.1", "x: "+strings.Repeat("a", 1000)), 0}}},
		{"values with the same concatenation", limits(`{"request_headers": {"header_name": "x", "descriptor_key": "k"}}, {"request_headers": {"header_name": "y", "descriptor_key": "l"}}`, `{"key": "k"}, {"key": "l"}`),
			[]sent{{httpRequest("10.0.0.1", "x: ab", "y: c"), 2}, {httpRequest("10.0.0.1", "x: a", "y: bc"), 2}, {httpRequest("10.0.0.1", "x: ab", "y: c"), 0}}},
		{"RPC methods", limits(`{"request_headers": {"header_name": "service", "descriptor_key": "s"}}, {"request_headers": {"header_name": "method", "descriptor_key": "m"}}`, `{"key": "s"}, {"key": "m"}`),
			[]sent{{rpcCall("a", "b"), 2}, {rpcCall("a", "c"), 2}, {rpcCall("a", "b", "Method: d"), 0}, {httpRequest("10.0.0.1"), 3}}},
		{"requests with a header", limits(`{"header_value_match": {"descriptor_value": "w", "headers": [{"name": ":method", "exact_match": "GET"}, {"name": "x"}]}}`, `{"key": "header_match", "value": "w"}`),
			[]sent{{httpRequest("10.0.0.1", "x: 1"), 2}, {httpRequest("10.0.0.1", "x: 2"), 0}, {httpRequest("10.0.0.1"), 3}}},
		{"requests without a header", limits(`{"header_value_match": {"descriptor_value": "w", "expect_match": false, "headers": [{"name": "x"}]}}`, `{"key": "header_match"}`),
			[]sent{{httpRequest("10.0.0.1", "x: 1"), 3}, {httpRequest("10.0.0.1"), 2}}},
		{"generic key", limits(`{"generic_key": {"descriptor_value": "all"}}`, `{"key": "generic_key", "value": "all"}`),
			[]sent{{httpRequest("10.0.0.1"), 2}, {httpRequest("10.0.0.2"), 0}}},
		{"other generic key", limits(`{"generic_key": {"descriptor_value": "all"}}`, `{"key": "generic_key", "value": "other"}`),
			[]sent{{httpRequest("10.0.0.1"), 3}}},
		{"default bucket for all", `{"token_bucket": {"max_tokens": 3, "fill_interval": "1h"},
			"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}], "descriptors": [{"entries": [{"key": "k"}], ` + two + `}]}`,
			[]sent{{httpRequest("10.0.0.1", "x: 1"), 2}, {httpRequest("10.0.0.1"), 1}, {httpRequest("10.0.0.1", "x: 2"), 0}}},
		{"default bucket for requests without a descriptor", `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "always_consume_default_token_bucket": false,
			"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}], "descriptors": [{"entries": [{"key": "k"}], ` + two + `}]}`,
			[]sent{{httpRequest("10.0.0.1", "x: 1"), 2}, {httpRequest("10.0.0.1"), 1}, {httpRequest("10.0.0.1", "x: 2"), 2}}},
		{"exact value before any value", `{"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}],
			"descriptors": [{"entries": [{"key": "k"}], ` + two + `}, {"entries": [{"key": "k", "value": "vip"}], "token_bucket": {"max_tokens": 3, "fill_interval": "1h"}}]}`,
			[]sent{{httpRequest("10.0.0.1", "x: vip"), 3}, {httpRequest("10.0.0.1", "x: a"), 2}}},
		{"disabled", `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "filter_enabled": {"default_value": {}}}`,
			[]sent{{httpRequest("10.0.0.1"), 3}}},
		{"no limits", `{}`, []sent{{httpRequest("10.0.0.1"), 3}}},
		{"clients behind a proxy", `{"xff_num_trusted_hops": 1, "rate_limits": [{"actions": [{"remote_address": {}}]}], "descriptors": [{"entries": [{"key": "remote_address"}], ` + two + `}]}`,
			[]sent{{httpRequest("10.0.0.9", "X-Forwarded-For: 192.0.2.1, 10.0.0.9"), 2}, {httpRequest("10.0.0.9", "X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.9"), 0},
				{httpRequest("10.0.0.9", "X-Forwarded-For: x, 10.0.0.9"), 2}, {httpRequest("10.0.0.8", "X-Forwarded-For: y, 10.0.0.8"), 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTestFilter(t, Factory(), test.settings)
				for i, s := range test.sent {
					if got := r.sendMany(3, s.x); got != s.want {
						t.Errorf("requests %d: %d of 3 were allowed, want %d", i, got, s.want)
					}
				}
			})
		})
	}
}

func TestRejectionResponse(t *testing.T) {
	r := newTestFilter(t, Factory(), `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "status": {"code": "ServiceUnavailable"},
		"response_headers_to_add": [{"header": {"key": "x-limited", "value": "%method%"}}]}`)
	x := httpRequest("10.0.0.1", "secret: token")
	if got := r.send(x); got != 200 || x.Response.Header.Get("x-limited") != "" {
		t.Errorf("first request: %d, x-limited %q; want 200, %q", got, x.Response.Header.Get("x-limited"), "")
	}
	if got := r.send(x); got != 503 || x.Response.Header.Get("x-limited") != "GET" || x.Response.Header.Get("secret") != "" {
		t.Errorf("second request: %d, %v; want 503, x-limited \"GET\" and no header secret", got, x.Response.Header)
	}
	x = rpcCall("a", "b")
	if r.send(x); x.Record.Reason != protocol.RateLimited {
		t.Errorf("RPC: %v, want %v", x.Record.Reason, protocol.RateLimited)
	}
}

func TestUnenforcedLimitsAreCounted(t *testing.T) {
	r := newTestFilter(t, Factory(), `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "filter_enforced": {"default_value": {"numerator": 0}},
		"request_headers_to_add_when_not_enforced": [{"header": {"key": "x-over", "value": "1"}, "append": false}]}`)
	x := httpRequest("10.0.0.1")
	if got := r.sendMany(1, x); got != 1 || x.Request.Header.Get("x-over") != "" {
		t.Errorf("first request: %d allowed, x-over %q; want 1, %q", got, x.Request.Header.Get("x-over"), "")
	}
	if got := r.sendMany(2, x); got != 2 || x.Request.Header.Get("x-over") != "1" {
		t.Errorf("next two requests: %d allowed, x-over %q; want 2, %q", got, x.Request.Header.Get("x-over"), "1")
	}
	if ok, limited, enforced := r.counts.Value(okMetric()), r.counts.Value(limitedMetric()), r.counts.Value(enforcedMetric()); ok != 1 || limited != 2 || enforced != 0 {
		t.Errorf("counted %v ok, %v limited, %v enforced; want 1, 2, 0", ok, limited, enforced)
	}
}

func TestRateLimitHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, Factory(), `{"enable_x_ratelimit_headers": "DRAFT_VERSION_03",
			"token_bucket": {"max_tokens": 100, "tokens_per_fill": 10, "fill_interval": "1s"},
			"rate_limits": [{"actions": [{"remote_address": {}}]}],
			"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 2, "fill_interval": "10s"}}]}`)
		for i, want := range []string{"2 1 10", "2 0 20", "2 0 20"} {
			x := httpRequest("10.0.0.1")
			status := r.send(x)
			var got []string
			for _, name := range quotaHeaders() {
				got = append(got, x.Response.Header.Get(name))
			}
			if strings.Join(got, " ") != want || (status == 200) != (i < 2) {
				t.Errorf("response %d: status %d, %q; want %q", i, status, got, want)
			}
		}
	})
}

func TestResetAtNextToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, Factory(), `{"enable_x_ratelimit_headers": "DRAFT_VERSION_03", "ratelimit_reset": "next_token",
			"token_bucket": {"max_tokens": 2, "tokens_per_fill": 2, "fill_interval": "60s"}}`)
		for i, want := range []string{"0", "30", "30", "20"} {
			if i == 3 {
				time.Sleep(10 * time.Second)
			}
			x := httpRequest("10.0.0.1")
			r.send(x)
			if got := x.Response.Header.Get("x-ratelimit-reset"); got != want {
				t.Errorf("response %d: x-ratelimit-reset %s, want %s", i, got, want)
			}
		}
	})
}

func TestBucketsAreBounded(t *testing.T) {
	for _, maxBuckets := range []int{1, 10, 2048} {
		synctest.Test(t, func(t *testing.T) {
			factory := Factory()
			settings := filtertest.Settings(fmt.Sprintf(`{"max_dynamic_descriptors": %d, "rate_limits": [{"actions": [{"remote_address": {}}]}],
				"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}]}`, maxBuckets))
			f, counts := filtertest.Build(t, factory, settings)
			s := f(filtertest.Application())
			r := &testFilter{t, s, counts}
			addr := netip.MustParseAddr("10.0.0.0")
			for range 3 * maxBuckets {
				addr = addr.Next()
				if got := r.sendMany(1, httpRequest(addr.String())); got != 1 {
					t.Fatalf("the first request of %v is rejected", addr)
				}
			}
			pool := s.(*rateLimit).limiter.pools[0]
			if n := bucketCount(pool); n > maxBuckets {
				t.Errorf("%d buckets, want at most %d", n, maxBuckets)
			}
			if got := counts.Value(droppedMetric()); got < float64(2*maxBuckets) {
				t.Errorf("%v buckets that were not full were dropped, want at least %d", got, 2*maxBuckets)
			}
			before := counts.Value(droppedMetric())
			time.Sleep(time.Hour) // fake time; all buckets fill
			for range maxBuckets / 2 {
				addr = addr.Next()
				r.sendMany(1, httpRequest(addr.String()))
			}
			if got := counts.Value(droppedMetric()) - before; got != 0 {
				t.Errorf("%v buckets that were not full were dropped instead of full ones, want 0", got)
			}
		})
	}
}

// TestBucketInUseIsNotDropped verifies that a client keeps a bucket that it uses while the pool
// replaces others.
func TestBucketInUseIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, Factory(), `{"max_dynamic_descriptors": 8, "rate_limits": [{"actions": [{"remote_address": {}}]}],
			"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}]}`)
		r.sendMany(1, httpRequest("10.0.0.1"))
		addr := netip.MustParseAddr("10.1.0.0")
		for i := range 100 {
			addr = addr.Next()
			r.sendMany(1, httpRequest(addr.String()))
			if got := r.sendMany(1, httpRequest("10.0.0.1")); got != 0 {
				t.Fatalf("the bucket was dropped after %d other clients", i+1)
			}
		}
	})
}

// buildWithKey builds a filter with a key, as a reload does.
func buildWithKey(t *testing.T, factory filter.StreamFilterFactory, s filtertest.Settings, key string) *testFilter {
	t.Helper()
	f, err := factory.New(filtertest.Decode(t, factory, s), filter.Env{Metrics: metrics.New(metrics.Options{}), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return &testFilter{t: t, service: f(filtertest.Application())}
}

func TestBucketsSurviveReload(t *testing.T) {
	const settings = `{"token_bucket": {"max_tokens": 2, "fill_interval": "1h"}}`
	factory, x := Factory(), httpRequest("10.0.0.1")
	before := buildWithKey(t, factory, settings, "a")
	if got := before.sendMany(3, x); got != 2 {
		t.Fatalf("%d of 3 were allowed, want 2", got)
	}
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		key      string
		want     int
	}{
		{"same settings and key", settings, "a", 0},
		{"same limits in other words", `{"token_bucket": {"fill_interval": "60m", "tokens_per_fill": 1, "max_tokens": 2}}`, "a", 0},
		{"other key", settings, "b", 2},
		{"other limits", `{"token_bucket": {"max_tokens": 3, "fill_interval": "1h"}}`, "a", 3},
	} {
		if got := buildWithKey(t, factory, test.settings, test.key).sendMany(5, x); got != test.want {
			t.Errorf("%s: %d of 5 were allowed, want %d", test.name, got, test.want)
		}
	}
	runtime.KeepAlive(before)
}

// onConnection returns a request on the connection with this ID.
func onConnection(conn uint64, fields ...string) *protocol.Exchange {
	x := httpRequest("10.0.0.1", fields...)
	x.Meta.Conn.ID = conn
	return x
}

func TestPerConnectionBuckets(t *testing.T) {
	const two = `"token_bucket": {"max_tokens": 2, "fill_interval": "1h"}`
	type sent struct {
		x    *protocol.Exchange
		want int // number of allowed requests, of 3
	}
	for _, test := range []struct {
		name, settings string
		sent           []sent
	}{
		{"all requests", two, []sent{{onConnection(1), 2}, {onConnection(2), 2}, {onConnection(1), 0}, {httpRequest(""), 2}}},
		{"one value", `"rate_limits": [{"actions": [{"generic_key": {"descriptor_value": "a"}}]}], "descriptors": [{"entries": [{"key": "generic_key", "value": "a"}], ` + two + `}]`,
			[]sent{{onConnection(1), 2}, {onConnection(2), 2}, {onConnection(2), 0}}},
		{"any value", `"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}], "descriptors": [{"entries": [{"key": "k"}], ` + two + `}]`,
			[]sent{{onConnection(1, "x: a"), 2}, {onConnection(1, "x: b"), 2}, {onConnection(2, "x: a"), 2}, {onConnection(1, "x: a"), 0}, {onConnection(1), 3}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTestFilter(t, Factory(), filtertest.Settings(`{"local_rate_limit_per_downstream_connection": true, `+test.settings+`}`))
				for i, s := range test.sent {
					if got := r.sendMany(3, s.x); got != s.want {
						t.Errorf("requests %d: %d of 3 were allowed, want %d", i, got, s.want)
					}
				}
			})
		})
	}
}

func TestBucketsOfConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, Factory(), `{"local_rate_limit_per_downstream_connection": true, "max_dynamic_descriptors": 10, "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}`)
		for conn := range uint64(50) {
			if got := r.sendMany(2, onConnection(conn)); got != 1 {
				t.Fatalf("%d of 2 requests of a new connection were allowed, want 1", got)
			}
		}
		if n := bucketCount(r.service.(*rateLimit).limiter.pools[0]); n > 10 {
			t.Errorf("%d buckets, want at most 10", n)
		}
	})
}

func TestNoTokenIsTakenTwice(t *testing.T) {
	const tokens, goroutines = 1000, 8
	r, err := (&BucketConfig{Max: tokens, Fill: 1, Interval: time.Hour}).compile()
	if err != nil {
		t.Fatal(err)
	}
	var b bucket
	taken := make(chan int)
	for range goroutines {
		go func() {
			n := 0
			for b.take(r, epoch) {
				n++
			}
			taken <- n
		}()
	}
	sum := 0
	for range goroutines {
		sum += <-taken
	}
	if sum != tokens {
		t.Errorf("%d of %d tokens were taken, want %d", sum, tokens, tokens)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	const bucket = `"token_bucket": {"max_tokens": 1, "fill_interval": "1s"}`
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"no tokens":                 {`{"token_bucket": {"max_tokens": 0, "fill_interval": "1s"}}`, "max_tokens"},
		"short interval":            {`{"token_bucket": {"max_tokens": 1, "fill_interval": "10ms"}}`, "50ms"},
		"no interval":               {`{"token_bucket": {"max_tokens": 1}}`, "fill_interval"},
		"fill time too long":        {`{"token_bucket": {"max_tokens": 4000000000, "fill_interval": "1h"}}`, "36 years"},
		"too many tokens at once":   {`{"token_bucket": {"max_tokens": 1, "tokens_per_fill": 100000000, "fill_interval": "50ms"}}`, "nanosecond"},
		"no descriptor for a limit": {`{"rate_limits": [{"actions": [{"remote_address": {}}]}]}`, "rate_limits[0]"},
		"no limit for a descriptor": {`{"descriptors": [{"entries": [{"key": "remote_address"}], ` + bucket + `}]}`, "descriptors[0]"},
		"keys in another order":     {`{"rate_limits": [{"actions": [{"remote_address": {}}, {"generic_key": {"descriptor_value": "a"}}]}], "descriptors": [{"entries": [{"key": "generic_key"}, {"key": "remote_address"}], ` + bucket + `}]}`, "rate_limits[0]"},
		"empty action":              {`{"rate_limits": [{"actions": [{}]}]}`, "found 0 actions"},
		"two actions in one":        {`{"rate_limits": [{"actions": [{"remote_address": {}, "generic_key": {"descriptor_value": "a"}}]}]}`, "found 2 actions"},
		"no actions":                {`{"rate_limits": [{"actions": []}]}`, "actions"},
		"invalid address":           {`{"rate_limits": [{"actions": [{"remote_address": {}}]}], "descriptors": [{"entries": [{"key": "remote_address", "value": "a"}], ` + bucket + `}]}`, "entries[0].value"},
		"invalid bucket":            {`{"rate_limits": [{"actions": [{"remote_address": {}}]}], "descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1ms"}}]}`, "descriptors[0].token_bucket"},
		"invalid header condition":  {`{"rate_limits": [{"actions": [{"header_value_match": {"descriptor_value": "a", "headers": [{"name": ":x"}]}}]}]}`, "headers[0]"},
		"no header condition":       {`{"rate_limits": [{"actions": [{"header_value_match": {"descriptor_value": "a", "headers": []}}]}]}`, "headers is empty"},
		"status is not an error":    {`{"status": {"code": 200}}`, "400"},
		"framing header":            {`{"response_headers_to_add": [{"header": {"key": "content-length", "value": "0"}}]}`, "content-length"},
		"unsupported action":        {`{"rate_limits": [{"actions": [{"source_cluster": {"a": 1}}]}]}`, "source_cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func newAllowedRequest(t testing.TB, extra string) (protocol.Service, *protocol.Exchange) {
	f, _ := filtertest.Build(t, Factory(), filtertest.Settings(`{`+extra+`
		"token_bucket": {"max_tokens": 4000000000, "tokens_per_fill": 1000000000, "fill_interval": "1s"},
		"rate_limits": [{"actions": [{"remote_address": {}}]}],
		"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 4000000000, "tokens_per_fill": 1000000000, "fill_interval": "1s"}}]}`))
	return f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })), httpRequest("10.0.0.1", "Accept: */*")
}

func TestAllowedRequestsDoNotAllocate(t *testing.T) {
	for _, extra := range []string{"", `"local_rate_limit_per_downstream_connection": true, `} {
		s, x := newAllowedRequest(t, extra)
		filtertest.CheckNoAllocs(t, s, x)
		if x.Record.Reason != protocol.ReasonNone {
			t.Fatal(x.Record.Reason)
		}
	}
}

func BenchmarkServe(b *testing.B) {
	for name, extra := range map[string]string{"shared": "", "per connection": `"local_rate_limit_per_downstream_connection": true, `} {
		b.Run(name, func(b *testing.B) {
			s, x := newAllowedRequest(b, extra)
			filtertest.Bench(b, s, x)
		})
	}
}

func bucketCount(p *pool) (n int) {
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		n += len(s.ring)
		s.mu.Unlock()
	}
	return n
}
