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
	examples := filtertest.CheckReadme(t, Kind(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	synctest.Test(t, func(t *testing.T) {
		shop := behind(t, Kind(), examples[0])
		if got := shop.passed(30, http("10.0.0.1")); got != 20 {
			t.Errorf("of 30 requests of a client %d passed, want 20", got)
		}
		total := 0
		for i := range 20 {
			total += shop.passed(10, http(fmt.Sprintf("10.0.1.%d", i)))
		}
		if total != 180 {
			t.Errorf("of 200 requests of other clients %d passed, want 180", total)
		}
		report := behind(t, Kind(), examples[1])
		if got := report.passed(5, rpc("org.example.Shop", "report")); got != 1 {
			t.Errorf("of 5 calls of the limited method %d passed, want 1", got)
		}
		if got := report.passed(2000, rpc("org.example.Shop", "buy")); got != 1000 {
			t.Errorf("of 2000 calls of another %d passed, want 1000", got)
		}
	})
}

// rig is a filter in front of an application, and its counts.
type rig struct {
	t      *testing.T
	s      protocol.Service
	counts *filtertest.Counts
}

func behind(t *testing.T, kind filter.StreamFilterFactory, s filtertest.Settings) *rig {
	t.Helper()
	made, counts := filtertest.Build(t, kind, s)
	return &rig{t, made(filtertest.Application()), counts}
}

// sent sends x once and returns the status of the response.
func (r *rig) sent(x *protocol.Exchange) int {
	r.t.Helper()
	x.ResetResponse()
	x.Record.Reason = protocol.ReasonNone
	if err := r.s.Serve(r.t.Context(), x); err != nil {
		r.t.Fatal(err)
	}
	if limited := x.Record.Reason == protocol.RateLimited; limited != (x.Response.Status != 200) {
		r.t.Errorf("status %d with the reason %v", x.Response.Status, x.Record.Reason)
	}
	return x.Response.Status
}

// passed sends x n times and returns how often the response was a 200.
func (r *rig) passed(n int, x *protocol.Exchange) (passed int) {
	r.t.Helper()
	for range n {
		if r.sent(x) == 200 {
			passed++
		}
	}
	return passed
}

// http returns a request from an address with headers "name: value".
func http(from string, fields ...string) *protocol.Exchange {
	x := filtertest.Get("/items", fields...)
	x.Meta.Conn = new(protocol.ConnMeta)
	if from != "" {
		x.Meta.Conn.Remote = netip.AddrPortFrom(netip.MustParseAddr(from), 50000)
	}
	return x
}

func rpc(service, method string, attachments ...string) *protocol.Exchange {
	x := http("10.0.0.1", append([]string{"service: " + service, "method: " + method}, attachments...)...)
	x.Request.Method, x.Request.Authority = "", service
	return x
}

func TestTokensComeBackOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := behind(t, Kind(), `{"token_bucket": {"max_tokens": 5, "tokens_per_fill": 10, "fill_interval": "1s"}}`)
		x := http("10.0.0.1")
		for _, step := range []struct {
			after time.Duration
			want  int // passed requests of 10
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
			if got := r.passed(10, x); got != step.want {
				t.Errorf("%v later %d of 10 passed, want %d", step.after, got, step.want)
			}
		}
		if ok, l, e := r.counts.Value(ok()), r.counts.Value(limited()), r.counts.Value(enforced()); ok != 15 || l != 55 || e != 55 {
			t.Errorf("counted %v ok, %v limited, %v enforced; want 15, 55, 55", ok, l, e)
		}
	})
}

func TestWhatIsCountedApart(t *testing.T) {
	const two = `"token_bucket": {"max_tokens": 2, "fill_interval": "1h"}`
	limits := func(actions, entries string) filtertest.Settings {
		return filtertest.Settings(`{"rate_limits": [{"actions": [` + actions + `]}], "descriptors": [{"entries": [` + entries + `], ` + two + `}]}`)
	}
	type sent struct {
		x    *protocol.Exchange
		want int // of 3
	}
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		sent     []sent
	}{
		{"clients", limits(`{"remote_address": {}}`, `{"key": "remote_address"}`),
			[]sent{{http("10.0.0.1"), 2}, {http("10.0.0.2"), 2}, {http("10.0.0.1"), 0}, {http("::1"), 2}}},
		{"one client", limits(`{"remote_address": {}}`, `{"key": "remote_address", "value": "10.0.0.1"}`),
			[]sent{{http("10.0.0.1"), 2}, {http("10.0.0.2"), 3}}},
		{"networks", limits(`{"masked_remote_address": {"v4_prefix_mask_len": 24, "v6_prefix_mask_len": 64}}`, `{"key": "masked_remote_address"}`),
			[]sent{{http("10.0.0.1"), 2}, {http("10.0.0.2"), 0}, {http("10.0.1.1"), 2}, {http("2001:db8::1"), 2}, {http("2001:db8::2"), 0}, {http("2001:db8:0:1::"), 2}}},
		{"one network", limits(`{"masked_remote_address": {"v4_prefix_mask_len": 24}}`, `{"key": "masked_remote_address", "value": "10.0.0.0/24"}`),
			[]sent{{http("10.0.0.1"), 2}, {http("10.0.0.2"), 0}, {http("10.0.1.1"), 3}}},
		{"those without an address", limits(`{"remote_address": {}}`, `{"key": "remote_address"}`),
			[]sent{{http(""), 2}, {http(""), 0}}},
		{"fields", limits(`{"request_headers": {"header_name": "X-Tenant", "descriptor_key": "tenant"}}`, `{"key": "tenant"}`),
			[]sent{{http("10.0.0.1", "x-tenant: a"), 2}, {http("10.0.0.2", "x-tenant: a"), 0}, {http("10.0.0.1", "x-tenant: b"), 2}, {http("10.0.0.1"), 3}}},
		{"long values", limits(`{"request_headers": {"header_name": "x", "descriptor_key": "k"}}`, `{"key": "k"}`),
			[]sent{{http("10.0.0.1", "x: "+strings.Repeat("a", 1000)), 2}, {http("10.0.0.1", "x: "+strings.Repeat("a", 1000)+"b"), 2}, {http("10.0.0.1", "x: "+strings.Repeat("a", 1000)), 0}}},
		{"values that meet", limits(`{"request_headers": {"header_name": "x", "descriptor_key": "k"}}, {"request_headers": {"header_name": "y", "descriptor_key": "l"}}`, `{"key": "k"}, {"key": "l"}`),
			[]sent{{http("10.0.0.1", "x: ab", "y: c"), 2}, {http("10.0.0.1", "x: a", "y: bc"), 2}, {http("10.0.0.1", "x: ab", "y: c"), 0}}},
		{"methods of RPC", limits(`{"request_headers": {"header_name": "service", "descriptor_key": "s"}}, {"request_headers": {"header_name": "method", "descriptor_key": "m"}}`, `{"key": "s"}, {"key": "m"}`),
			[]sent{{rpc("a", "b"), 2}, {rpc("a", "c"), 2}, {rpc("a", "b", "Method: d"), 0}, {http("10.0.0.1"), 3}}},
		{"requests with a field", limits(`{"header_value_match": {"descriptor_value": "w", "headers": [{"name": ":method", "exact_match": "GET"}, {"name": "x"}]}}`, `{"key": "header_match", "value": "w"}`),
			[]sent{{http("10.0.0.1", "x: 1"), 2}, {http("10.0.0.1", "x: 2"), 0}, {http("10.0.0.1"), 3}}},
		{"requests without it", limits(`{"header_value_match": {"descriptor_value": "w", "expect_match": false, "headers": [{"name": "x"}]}}`, `{"key": "header_match"}`),
			[]sent{{http("10.0.0.1", "x: 1"), 3}, {http("10.0.0.1"), 2}}},
		{"a part of a route", limits(`{"generic_key": {"descriptor_value": "all"}}`, `{"key": "generic_key", "value": "all"}`),
			[]sent{{http("10.0.0.1"), 2}, {http("10.0.0.2"), 0}}},
		{"another part", limits(`{"generic_key": {"descriptor_value": "all"}}`, `{"key": "generic_key", "value": "other"}`),
			[]sent{{http("10.0.0.1"), 3}}},
		{"all that are described", `{"token_bucket": {"max_tokens": 3, "fill_interval": "1h"},
			"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}], "descriptors": [{"entries": [{"key": "k"}], ` + two + `}]}`,
			[]sent{{http("10.0.0.1", "x: 1"), 2}, {http("10.0.0.1"), 1}, {http("10.0.0.1", "x: 2"), 0}}},
		{"all that are not", `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "always_consume_default_token_bucket": false,
			"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}], "descriptors": [{"entries": [{"key": "k"}], ` + two + `}]}`,
			[]sent{{http("10.0.0.1", "x: 1"), 2}, {http("10.0.0.1"), 1}, {http("10.0.0.1", "x: 2"), 2}}},
		{"an exact value before any", `{"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}],
			"descriptors": [{"entries": [{"key": "k"}], ` + two + `}, {"entries": [{"key": "k", "value": "vip"}], "token_bucket": {"max_tokens": 3, "fill_interval": "1h"}}]}`,
			[]sent{{http("10.0.0.1", "x: vip"), 3}, {http("10.0.0.1", "x: a"), 2}}},
		{"nothing, of a part of none", `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "filter_enabled": {"default_value": {}}}`,
			[]sent{{http("10.0.0.1"), 3}}},
		{"nothing, without limits", `{}`, []sent{{http("10.0.0.1"), 3}}},
		{"clients behind a proxy", `{"xff_num_trusted_hops": 1, "rate_limits": [{"actions": [{"remote_address": {}}]}], "descriptors": [{"entries": [{"key": "remote_address"}], ` + two + `}]}`,
			[]sent{{http("10.0.0.9", "X-Forwarded-For: 192.0.2.1, 10.0.0.9"), 2}, {http("10.0.0.9", "X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.9"), 0},
				{http("10.0.0.9", "X-Forwarded-For: x, 10.0.0.9"), 2}, {http("10.0.0.8", "X-Forwarded-For: y, 10.0.0.8"), 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := behind(t, Kind(), test.settings)
				for i, s := range test.sent {
					if got := r.passed(3, s.x); got != s.want {
						t.Errorf("of sender %d %d of 3 passed, want %d", i, got, s.want)
					}
				}
			})
		})
	}
}

func TestAnswersToThoseBeyond(t *testing.T) {
	r := behind(t, Kind(), `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "status": {"code": "ServiceUnavailable"},
		"response_headers_to_add": [{"header": {"key": "x-limited", "value": "%method%"}}]}`)
	x := http("10.0.0.1", "secret: token")
	if got := r.sent(x); got != 200 || x.Response.Header.Get("x-limited") != "" {
		t.Errorf("the first: %d with x-limited %q", got, x.Response.Header.Get("x-limited"))
	}
	if got := r.sent(x); got != 503 || x.Response.Header.Get("x-limited") != "GET" || x.Response.Header.Get("secret") != "" {
		t.Errorf("the second: %d with %v", got, x.Response.Header)
	}
	x = rpc("a", "b")
	if r.sent(x); x.Record.Reason != protocol.RateLimited {
		t.Errorf("a call of RPC: %v", x.Record.Reason)
	}
}

func TestLimitsThatAreNotEnforcedAreCounted(t *testing.T) {
	r := behind(t, Kind(), `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}, "filter_enforced": {"default_value": {"numerator": 0}},
		"request_headers_to_add_when_not_enforced": [{"header": {"key": "x-over", "value": "1"}, "append": false}]}`)
	x := http("10.0.0.1")
	if got := r.passed(1, x); got != 1 || x.Request.Header.Get("x-over") != "" {
		t.Errorf("the first: passed %d with x-over %q", got, x.Request.Header.Get("x-over"))
	}
	if got := r.passed(2, x); got != 2 || x.Request.Header.Get("x-over") != "1" {
		t.Errorf("two more: passed %d with x-over %q", got, x.Request.Header.Get("x-over"))
	}
	if o, l, e := r.counts.Value(ok()), r.counts.Value(limited()), r.counts.Value(enforced()); o != 1 || l != 2 || e != 0 {
		t.Errorf("counted %v ok, %v limited, %v enforced; want 1, 2, 0", o, l, e)
	}
}

func TestAnswersSayWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := behind(t, Kind(), `{"enable_x_ratelimit_headers": "DRAFT_VERSION_03",
			"token_bucket": {"max_tokens": 100, "tokens_per_fill": 10, "fill_interval": "1s"},
			"rate_limits": [{"actions": [{"remote_address": {}}]}],
			"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 2, "fill_interval": "10s"}}]}`)
		for i, want := range []string{"2 1 10", "2 0 20", "2 0 20"} {
			x := http("10.0.0.1")
			status := r.sent(x)
			var got []string
			for _, name := range fields() {
				got = append(got, x.Response.Header.Get(name))
			}
			if strings.Join(got, " ") != want || (status == 200) != (i < 2) {
				t.Errorf("answer %d: status %d, %q; want %q", i, status, got, want)
			}
		}
	})
}

func TestBucketsAreBounded(t *testing.T) {
	for _, most := range []int{1, 10, 2048} {
		synctest.Test(t, func(t *testing.T) {
			kind := Kind()
			settings := filtertest.Settings(fmt.Sprintf(`{"max_dynamic_descriptors": %d, "rate_limits": [{"actions": [{"remote_address": {}}]}],
				"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}]}`, most))
			made, counts := filtertest.Build(t, kind, settings)
			s := made(filtertest.Application())
			r := &rig{t, s, counts}
			addr := netip.MustParseAddr("10.0.0.0")
			for range 3 * most {
				addr = addr.Next()
				if got := r.passed(1, http(addr.String())); got != 1 {
					t.Fatalf("the first request of %v is refused", addr)
				}
			}
			pool := s.(*rateLimit).limiter.pools[0]
			if n := pool.len(); n > most {
				t.Errorf("%d buckets, want at most %d", n, most)
			}
			if got := counts.Value(dropped()); got < float64(2*most) {
				t.Errorf("%v buckets that were not full were dropped, want %d or more", got, 2*most)
			}
			before := counts.Value(dropped())
			time.Sleep(time.Hour) // fake time, in which all buckets fill
			for range most / 2 {
				addr = addr.Next()
				r.passed(1, http(addr.String()))
			}
			if got := counts.Value(dropped()) - before; got != 0 {
				t.Errorf("%v buckets were dropped that were not full, though full ones were there", got)
			}
		})
	}
}

// TestABucketInUseIsNotDropped verifies that a client keeps a bucket that it uses while the pool
// replaces others.
func TestABucketInUseIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := behind(t, Kind(), `{"max_dynamic_descriptors": 8, "rate_limits": [{"actions": [{"remote_address": {}}]}],
			"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}]}`)
		r.passed(1, http("10.0.0.1"))
		addr := netip.MustParseAddr("10.1.0.0")
		for i := range 100 {
			addr = addr.Next()
			r.passed(1, http(addr.String()))
			if got := r.passed(1, http("10.0.0.1")); got != 0 {
				t.Fatalf("after %d other clients the bucket was replaced", i+1)
			}
		}
	})
}

// build builds a filter of kind, as a reload does.
func build(t *testing.T, kind filter.StreamFilterFactory, s filtertest.Settings, place string) *rig {
	t.Helper()
	made, err := kind.New(filtertest.Decode(t, kind, s), filter.Env{Metrics: metrics.New(metrics.Options{}), Key: place})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, s: made(filtertest.Application())}
}

func TestBucketsOutliveAReload(t *testing.T) {
	const settings = `{"token_bucket": {"max_tokens": 2, "fill_interval": "1h"}}`
	kind, x := Kind(), http("10.0.0.1")
	before := build(t, kind, settings, "a")
	if got := before.passed(3, x); got != 2 {
		t.Fatalf("%d of 3 passed, want 2", got)
	}
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		place    string
		want     int
	}{
		{"the same", settings, "a", 0},
		{"written in another way", `{"token_bucket": {"fill_interval": "60m", "tokens_per_fill": 1, "max_tokens": 2}}`, "a", 0},
		{"at another place", settings, "b", 2},
		{"with other limits", `{"token_bucket": {"max_tokens": 3, "fill_interval": "1h"}}`, "a", 3},
	} {
		if got := build(t, kind, test.settings, test.place).passed(5, x); got != test.want {
			t.Errorf("%s: %d of 5 passed, want %d", test.name, got, test.want)
		}
	}
	runtime.KeepAlive(before)
}

// over returns a request on the connection with this ID.
func over(conn uint64, fields ...string) *protocol.Exchange {
	x := http("10.0.0.1", fields...)
	x.Meta.Conn.ID = conn
	return x
}

func TestConnectionsHaveBucketsOfTheirOwn(t *testing.T) {
	const two = `"token_bucket": {"max_tokens": 2, "fill_interval": "1h"}`
	type sent struct {
		x    *protocol.Exchange
		want int // of 3
	}
	for _, test := range []struct {
		name, settings string
		sent           []sent
	}{
		{"of all requests", two, []sent{{over(1), 2}, {over(2), 2}, {over(1), 0}, {http(""), 2}}},
		{"of a value", `"rate_limits": [{"actions": [{"generic_key": {"descriptor_value": "a"}}]}], "descriptors": [{"entries": [{"key": "generic_key", "value": "a"}], ` + two + `}]`,
			[]sent{{over(1), 2}, {over(2), 2}, {over(2), 0}}},
		{"of any value", `"rate_limits": [{"actions": [{"request_headers": {"header_name": "x", "descriptor_key": "k"}}]}], "descriptors": [{"entries": [{"key": "k"}], ` + two + `}]`,
			[]sent{{over(1, "x: a"), 2}, {over(1, "x: b"), 2}, {over(2, "x: a"), 2}, {over(1, "x: a"), 0}, {over(1), 3}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := behind(t, Kind(), filtertest.Settings(`{"local_rate_limit_per_downstream_connection": true, `+test.settings+`}`))
				for i, s := range test.sent {
					if got := r.passed(3, s.x); got != s.want {
						t.Errorf("of sender %d %d of 3 passed, want %d", i, got, s.want)
					}
				}
			})
		})
	}
}

func TestBucketsOfConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := behind(t, Kind(), `{"local_rate_limit_per_downstream_connection": true, "max_dynamic_descriptors": 10, "token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}`)
		for conn := range uint64(50) {
			if got := r.passed(2, over(conn)); got != 1 {
				t.Fatalf("of 2 on a new connection %d passed, want 1", got)
			}
		}
		if n := r.s.(*rateLimit).limiter.pools[0].len(); n > 10 {
			t.Errorf("%d buckets, want 10 at most", n)
		}
	})
}

func TestNoTokenIsTakenTwice(t *testing.T) {
	const tokens, takers = 1000, 8
	r, err := (&BucketConfig{Max: tokens, Fill: 1, Interval: time.Hour}).compile()
	if err != nil {
		t.Fatal(err)
	}
	var b bucket
	taken := make(chan int)
	for range takers {
		go func() {
			n := 0
			for b.take(r, epoch) {
				n++
			}
			taken <- n
		}()
	}
	sum := 0
	for range takers {
		sum += <-taken
	}
	if sum != tokens {
		t.Errorf("%d tokens were taken of %d", sum, tokens)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	const bucket = `"token_bucket": {"max_tokens": 1, "fill_interval": "1s"}`
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"no tokens":                  {`{"token_bucket": {"max_tokens": 0, "fill_interval": "1s"}}`, "max_tokens"},
		"a short interval":           {`{"token_bucket": {"max_tokens": 1, "fill_interval": "10ms"}}`, "50ms"},
		"no interval":                {`{"token_bucket": {"max_tokens": 1}}`, "fill_interval"},
		"a bucket for ever":          {`{"token_bucket": {"max_tokens": 4000000000, "fill_interval": "1h"}}`, "36 years"},
		"too many tokens at once":    {`{"token_bucket": {"max_tokens": 1, "tokens_per_fill": 100000000, "fill_interval": "50ms"}}`, "nanosecond"},
		"a limit of no descriptor":   {`{"rate_limits": [{"actions": [{"remote_address": {}}]}]}`, "rate_limits[0]"},
		"a descriptor of no limit":   {`{"descriptors": [{"entries": [{"key": "remote_address"}], ` + bucket + `}]}`, "descriptors[0]"},
		"keys in another order":      {`{"rate_limits": [{"actions": [{"remote_address": {}}, {"generic_key": {"descriptor_value": "a"}}]}], "descriptors": [{"entries": [{"key": "generic_key"}, {"key": "remote_address"}], ` + bucket + `}]}`, "rate_limits[0]"},
		"an action of nothing":       {`{"rate_limits": [{"actions": [{}]}]}`, "found 0 actions"},
		"an action of two":           {`{"rate_limits": [{"actions": [{"remote_address": {}, "generic_key": {"descriptor_value": "a"}}]}]}`, "found 2 actions"},
		"no actions":                 {`{"rate_limits": [{"actions": []}]}`, "actions"},
		"an address that is none":    {`{"rate_limits": [{"actions": [{"remote_address": {}}]}], "descriptors": [{"entries": [{"key": "remote_address", "value": "a"}], ` + bucket + `}]}`, "entries[0].value"},
		"a bad bucket inside":        {`{"rate_limits": [{"actions": [{"remote_address": {}}]}], "descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 1, "fill_interval": "1ms"}}]}`, "descriptors[0].token_bucket"},
		"a bad header condition":     {`{"rate_limits": [{"actions": [{"header_value_match": {"descriptor_value": "a", "headers": [{"name": ":x"}]}}]}]}`, "headers[0]"},
		"no header condition":        {`{"rate_limits": [{"actions": [{"header_value_match": {"descriptor_value": "a", "headers": []}}]}]}`, "headers is empty"},
		"a status that is no error":  {`{"status": {"code": 200}}`, "400"},
		"a field of the framing":     {`{"response_headers_to_add": [{"header": {"key": "content-length", "value": "0"}}]}`, "content-length"},
		"an action that is not made": {`{"rate_limits": [{"actions": [{"source_cluster": {"a": 1}}]}]}`, "source_cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Kind(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("refused with %q, want %q in it", got, test.want)
			}
		})
	}
}

func passing(t testing.TB, more string) (protocol.Service, *protocol.Exchange) {
	made, _ := filtertest.Build(t, Kind(), filtertest.Settings(`{`+more+`
		"token_bucket": {"max_tokens": 4000000000, "tokens_per_fill": 1000000000, "fill_interval": "1s"},
		"rate_limits": [{"actions": [{"remote_address": {}}]}],
		"descriptors": [{"entries": [{"key": "remote_address"}], "token_bucket": {"max_tokens": 4000000000, "tokens_per_fill": 1000000000, "fill_interval": "1s"}}]}`))
	return made(protocol.ServiceFunc(func(context.Context, *protocol.Exchange) error { return nil })), http("10.0.0.1", "Accept: */*")
}

func TestPassingAllocatesNothing(t *testing.T) {
	for _, more := range []string{"", `"local_rate_limit_per_downstream_connection": true, `} {
		s, x := passing(t, more)
		filtertest.CheckNoAllocs(t, s, x)
		if x.Record.Reason != protocol.ReasonNone {
			t.Fatal(x.Record.Reason)
		}
	}
}

func BenchmarkServe(b *testing.B) {
	for name, more := range map[string]string{"shared": "", "by connection": `"local_rate_limit_per_downstream_connection": true, `} {
		b.Run(name, func(b *testing.B) {
			s, x := passing(b, more)
			filtertest.Bench(b, s, x)
		})
	}
}
