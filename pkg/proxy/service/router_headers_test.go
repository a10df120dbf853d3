package service

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// headersOfAttempts serves an exchange by a route with f and returns the request headers of each
// attempt, one header per line, and the exchange. serve is the upstream.
func headersOfAttempts(t *testing.T, f config.Forward, c *config.RouterHeaders, serve serviceFunc, headers ...string) (attempts []string, x *protocol.Exchange, err error) {
	t.Helper()
	x = newTestExchange(headers...)
	x.Meta.Protocol, x.Meta.Start = string(config.HTTP1), time.Now()
	upstream := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		attempts = append(attempts, strings.TrimPrefix(headerLines(&x.Request.Header), "Authorization: secret-token\nCookie: secret-cookie\n"))
		x.Record.BeginAttempt(nil)
		err := serve(ctx, x)
		if err != nil {
			x.Record.Attempts[len(x.Record.Attempts)-1].Reason = protocol.ReasonOf(err)
			return err
		}
		x.Response.Source, x.Record.UpstreamFirstByte = protocol.UpstreamResponse, time.Now()
		return nil
	})
	s := RouterHeaders(routeOf(t, f), c, func(route *router.Route) protocol.Service {
		none := func(*protocol.Exchange) RetryBudget { return nil }
		return Timeout(Retry(AttemptHeaders(upstream, route, c), route, none), route)
	})
	err = x.Serve(t.Context(), s)
	return attempts, x, err
}

// respondWith returns an upstream that responds with a status after a delay, unless the exchange
// times out before.
//
//arch:clock called in bubbles of testing/synctest only
func respondWith(status int, delay time.Duration) serviceFunc {
	return func(_ context.Context, x *protocol.Exchange) error {
		if d := x.EffectiveDeadline(); !d.IsZero() && time.Until(d) < delay {
			<-time.After(time.Until(d))
			return protocol.Faultf(protocol.UpstreamTimeout, "timeout")
		}
		<-time.After(delay)
		x.Response.Status = status
		return nil
	}
}

func TestRouterHeadersOfRequests(t *testing.T) {
	retry := &config.RetryPolicy{On: config.Retry5xx, NumRetries: 2, PerTryTimeout: time.Second}
	counts := config.AttemptHeaders{CountInRequest: true, TimeoutRetry: true}
	for _, test := range []struct {
		name     string
		forward  config.Forward
		settings config.RouterHeaders
		upstream serviceFunc
		headers  []string
		want     string // headers of the attempts, separated by "--"
	}{
		{"timeout", config.Forward{Timeout: 15 * time.Second}, config.RouterHeaders{}, respondWith(200, 0), nil, "x-envoy-expected-rq-timeout-ms: 15000\n"},
		{"no timeout", config.Forward{}, config.RouterHeaders{}, respondWith(200, 0), nil, ""},
		{"hidden timeout", config.Forward{Timeout: time.Second, HideTimeout: true}, config.RouterHeaders{}, respondWith(200, 0), nil, ""},
		{"suppressed", config.Forward{Timeout: time.Second, Attempts: counts}, config.RouterHeaders{Suppress: true}, respondWith(200, 0), nil, "x-envoy-attempt-count: 1\n"},
		{"removed by the route", config.Forward{Timeout: time.Second, Attempts: counts, Request: config.HeaderMutation{Remove: []string{"X-Envoy-Expected-Rq-Timeout-Ms", "x-envoy-attempt-count"}}}, config.RouterHeaders{}, respondWith(200, 0), nil, ""},
		{"per-try timeout", config.Forward{Timeout: 3 * time.Second, Retry: retry, Attempts: counts}, config.RouterHeaders{}, respondWith(503, 0), nil,
			"x-envoy-expected-rq-timeout-ms: 1000\nx-envoy-attempt-count: 1\n--" +
				"x-envoy-expected-rq-timeout-ms: 1000\nx-envoy-attempt-count: 2\nx-envoy-is-timeout-retry: false\n--" +
				"x-envoy-expected-rq-timeout-ms: 1000\nx-envoy-attempt-count: 3\nx-envoy-is-timeout-retry: false\n"},
		{"time that is left", config.Forward{Timeout: 1500 * time.Millisecond, Retry: retry, Attempts: counts}, config.RouterHeaders{}, respondWith(200, time.Minute), nil,
			"x-envoy-expected-rq-timeout-ms: 1000\nx-envoy-attempt-count: 1\n--" +
				"x-envoy-expected-rq-timeout-ms: 500\nx-envoy-attempt-count: 2\nx-envoy-is-timeout-retry: true\n"},
		{"timeout of the request", config.Forward{Timeout: time.Second}, config.RouterHeaders{}, respondWith(200, 0), []string{"X-Envoy-Upstream-Rq-Timeout-Ms: 70"}, "x-envoy-expected-rq-timeout-ms: 70\n"},
		{"invalid timeout", config.Forward{Timeout: time.Second}, config.RouterHeaders{}, respondWith(200, 0), []string{"x-envoy-upstream-rq-timeout-ms: -1"}, "x-envoy-expected-rq-timeout-ms: 1000\n"},
		{"no timeout, by the request", config.Forward{Timeout: time.Second}, config.RouterHeaders{}, respondWith(200, time.Minute),
			[]string{"x-envoy-upstream-rq-timeout-ms: 0", "x-envoy-upstream-rq-per-try-timeout-ms: 300000", "x-envoy-expected-rq-timeout-ms: 7"}, "x-envoy-expected-rq-timeout-ms: 300000\n"},
		{"timeout of another proxy", config.Forward{Timeout: time.Second}, config.RouterHeaders{RespectExpectedTimeout: true}, respondWith(200, 0),
			[]string{"x-envoy-expected-rq-timeout-ms: 77", "x-envoy-upstream-rq-timeout-ms: 99"}, "x-envoy-expected-rq-timeout-ms: 77\nx-envoy-upstream-rq-timeout-ms: 99\n"},
		{"no timeout of another proxy", config.Forward{Timeout: time.Second}, config.RouterHeaders{RespectExpectedTimeout: true}, respondWith(200, 0),
			[]string{"x-envoy-upstream-rq-timeout-ms: 99"}, "x-envoy-expected-rq-timeout-ms: 99\n"},
		{"headers without effect", config.Forward{}, config.RouterHeaders{}, respondWith(200, 0),
			[]string{"x-envoy-upstream-alt-stat-name: a", "x-envoy-max-retries: 2", "x-envoy-foo: 1"}, "x-envoy-foo: 1\n"},
		{"maximum duration", config.Forward{Timeout: time.Minute}, config.RouterHeaders{}, respondWith(200, 0), []string{"x-envoy-upstream-stream-duration-ms: 500"}, "x-envoy-expected-rq-timeout-ms: 60000\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts, _, _ := headersOfAttempts(t, test.forward, &test.settings, test.upstream, test.headers...)
				if got := strings.Join(attempts, "--"); got != test.want {
					t.Errorf("headers of the attempts:\n%s\nwant:\n%s", got, test.want)
				}
			})
		})
	}
}

func TestRetriesByHeader(t *testing.T) {
	conflict := &config.RetryPolicy{On: config.Retry4xx, NumRetries: 2, StatusCodes: []int{418}}
	for _, test := range []struct {
		name    string
		forward config.Forward
		status  int
		headers []string
		want    int // attempts
	}{
		{"no policy", config.Forward{}, 500, nil, 1},
		{"number without a condition", config.Forward{}, 500, []string{"x-envoy-max-retries: 3"}, 1},
		{"condition", config.Forward{}, 500, []string{"x-envoy-retry-on: 5xx"}, 2},
		{"condition and number", config.Forward{}, 503, []string{"x-envoy-retry-on: foo, gateway-error", "x-envoy-max-retries: 3"}, 4},
		{"condition of gRPC in the wrong header", config.Forward{}, 500, []string{"x-envoy-retry-on: internal", "x-envoy-retry-grpc-on: 5xx"}, 1},
		{"status codes", config.Forward{}, 404, []string{"x-envoy-retry-on: retriable-status-codes", "x-envoy-retriable-status-codes: 403, 404,x"}, 2},
		{"policy and condition", config.Forward{Retry: conflict}, 500, []string{"x-envoy-retry-on: 5xx"}, 3},
		{"policy, other condition", config.Forward{Retry: conflict}, 409, []string{"x-envoy-retry-on: 5xx"}, 3},
		{"policy, fewer retries", config.Forward{Retry: conflict}, 409, []string{"x-envoy-max-retries: 0"}, 1},
		{"policy, status codes", config.Forward{Retry: conflict}, 418, []string{"x-envoy-retry-on: retriable-status-codes"}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts, x, err := headersOfAttempts(t, test.forward, &config.RouterHeaders{}, respondWith(test.status, 0), test.headers...)
				if err != nil || len(attempts) != test.want || x.Response.Status != test.status {
					t.Errorf("%d attempts, status %d, error %v; want %d, %d, nil", len(attempts), x.Response.Status, err, test.want, test.status)
				}
			})
		})
	}
	if len(conflict.StatusCodes) != 1 || conflict.NumRetries != 2 || conflict.On != config.Retry4xx {
		t.Errorf("the policy of the route changed: %+v", conflict)
	}
}

func TestRetryByHeaderName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts, _, err := headersOfAttempts(t, config.Forward{}, &config.RouterHeaders{}, func(_ context.Context, x *protocol.Exchange) error {
			x.Response.Status = 200
			x.Response.Header.Add("x-again", "1")
			return nil
		}, "x-envoy-retry-on: retriable-headers", "x-envoy-retriable-header-names: x-other, x-again")
		if err != nil || len(attempts) != 2 {
			t.Errorf("%d attempts, error %v; want 2, nil", len(attempts), err)
		}
	})
}

func TestRouterHeadersOfResponses(t *testing.T) {
	retry := &config.RetryPolicy{On: config.Retry5xx, NumRetries: 1}
	for _, test := range []struct {
		name     string
		forward  config.Forward
		settings config.RouterHeaders
		want     string
	}{
		{"time of all attempts", config.Forward{Retry: retry}, config.RouterHeaders{}, "x-envoy-upstream-service-time: 500\n"},
		{"suppressed", config.Forward{}, config.RouterHeaders{Suppress: true}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, x, err := headersOfAttempts(t, test.forward, &test.settings, respondWith(503, 250*time.Millisecond))
				if got := headerLines(&x.Response.Header); err != nil || got != test.want {
					t.Errorf("headers %q, error %v; want %q, nil", got, err, test.want)
				}
			})
		})
	}
}

// unreceived is a Downstream whose request has not arrived completely.
type unreceived struct{ protocol.Downstream }

func (unreceived) RequestReceived() bool { return false }

// TestNoServiceTimeOfEarlyResponse verifies that a response to an incomplete request has no service
// time, as in Envoy.
func TestNoServiceTimeOfEarlyResponse(t *testing.T) {
	_, x, err := headersOfAttempts(t, config.Forward{}, &config.RouterHeaders{}, func(_ context.Context, x *protocol.Exchange) error {
		x.Request.Body, x.Downstream = protocol.NewStringBody("a"), unreceived{}
		x.Response.Status = 200
		return nil
	})
	if got := headerLines(&x.Response.Header); err != nil || got != "" {
		t.Errorf("headers %q, error %v; want none, nil", got, err)
	}
}

func TestStrictChecks(t *testing.T) {
	all := config.StrictlyCheckedHeaders()
	for _, test := range []struct {
		header string
		checks []string
		valid  bool
	}{
		{"x-envoy-upstream-rq-timeout-ms: 1", all, true},
		{"x-envoy-upstream-rq-timeout-ms: abc", all, false},
		{"x-envoy-upstream-rq-timeout-ms: abc", nil, true},
		{"x-envoy-upstream-rq-timeout-ms: abc", []string{"x-envoy-retry-on"}, true},
		{"x-envoy-upstream-rq-per-try-timeout-ms: 1s", all, false},
		{"x-envoy-max-retries: -1", all, false},
		{"x-envoy-retry-on: 5xx,reset-before-request, envoy-ratelimited", all, true},
		{"x-envoy-retry-on: 5xx,foo", all, false},
		{"x-envoy-retry-on: cancelled", all, false},
		{"x-envoy-retry-grpc-on: cancelled,internal", all, true},
		{"x-envoy-retry-grpc-on: 5xx", all, false},
	} {
		attempts, _, err := headersOfAttempts(t, config.Forward{}, &config.RouterHeaders{StrictChecks: test.checks}, respondWith(200, 0), test.header)
		if valid := err == nil && len(attempts) == 1; valid != test.valid || !valid && protocol.ReasonOf(err) != protocol.MalformedRequest {
			t.Errorf("%s with the checks %q: error %v, want valid = %t", test.header, test.checks, err, test.valid)
		}
	}
}

func TestAltResponseToTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, x, err := headersOfAttempts(t, config.Forward{}, &config.RouterHeaders{}, respondWith(200, time.Minute),
			"x-envoy-upstream-rq-timeout-ms: 100", "x-envoy-upstream-rq-timeout-alt-response: 1")
		if err != nil || x.Response.Status != 204 || x.Response.Body != nil || x.Record.Reason != protocol.UpstreamTimeout {
			t.Errorf("error %v, status %d, reason %v; want nil, 204, %v", err, x.Response.Status, x.Record.Reason, protocol.UpstreamTimeout)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, _, err := headersOfAttempts(t, config.Forward{}, &config.RouterHeaders{}, func(context.Context, *protocol.Exchange) error {
			return protocol.Faultf(protocol.ConnectFailure, "refused")
		}, "x-envoy-upstream-rq-timeout-alt-response: 1")
		if protocol.ReasonOf(err) != protocol.ConnectFailure {
			t.Errorf("error %v, want %v", err, protocol.ConnectFailure)
		}
	})
}

func TestResponseHeaders(t *testing.T) {
	for _, test := range []struct {
		name    string
		envoy   config.EnvoyHeaders
		source  protocol.ResponseSource
		request []string
		headers []string // of the response
		want    string
	}{
		{"overwritten", config.EnvoyHeaders{Server: config.ServerOverwrite}, protocol.UpstreamResponse, nil, []string{"Server: app"}, "Server: weft\n"},
		{"overwritten, missing", config.EnvoyHeaders{Server: config.ServerOverwrite}, protocol.UpstreamResponse, nil, nil, "server: weft\n"},
		{"added", config.EnvoyHeaders{Server: config.ServerAdd}, protocol.UpstreamResponse, nil, nil, "server: weft\n"},
		{"present", config.EnvoyHeaders{Server: config.ServerAdd}, protocol.UpstreamResponse, nil, []string{"Server: app"}, "Server: app\n"},
		{"kept", config.EnvoyHeaders{Server: config.ServerKeep}, protocol.UpstreamResponse, nil, []string{"Server: app"}, "Server: app\n"},
		{"local reply", config.EnvoyHeaders{Server: config.ServerOverwrite}, protocol.LocalReply, nil, nil, "server: weft\n"},
		{"request ID", config.EnvoyHeaders{RequestID: config.RequestID{InResponse: true}}, protocol.LocalReply, []string{"x-request-id: a"}, nil, "x-request-id: a\n"},
		{"no request ID", config.EnvoyHeaders{RequestID: config.RequestID{InResponse: true}}, protocol.UpstreamResponse, nil, []string{"x-request-id: app"}, "x-request-id: app\n"},
		{"forced trace", config.EnvoyHeaders{}, protocol.UpstreamResponse, []string{"x-request-id: a", "x-envoy-force-trace: 1"}, []string{"x-request-id: app"}, "x-request-id: a\n"},
		{"request ID stays in the request", config.EnvoyHeaders{}, protocol.UpstreamResponse, []string{"x-request-id: a"}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newTestExchange(test.request...)
			p := &config.Proxy{HTTP1: config.HTTP1Options{ServerName: "weft"}, ClientHeaders: config.ClientHeaders{Envoy: &test.envoy}}
			s := ResponseHeaders(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				x.Response.Status, x.Response.Source = 200, test.source
				for _, line := range test.headers {
					name, value, _ := strings.Cut(line, ": ")
					x.Response.Header.Add(name, value)
				}
				return nil
			}), p)
			if err := x.Serve(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := headerLines(&x.Response.Header); got != test.want {
				t.Errorf("headers %q, want %q", got, test.want)
			}
		})
	}
}

func TestSuppressedOverload(t *testing.T) {
	for _, suppress := range []bool{false, true} {
		x := newTestExchange()
		p := &config.Proxy{ClientHeaders: config.ClientHeaders{Envoy: &config.EnvoyHeaders{}}, RouterHeaders: &config.RouterHeaders{Suppress: suppress}}
		s := ResponseHeaders(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			x.LocalReplyError(protocol.NewFault(protocol.Overflow, nil))
			return nil
		}), p)
		if err := x.Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if _, ok := x.Response.Header.Lookup("x-envoy-overloaded"); ok == suppress {
			t.Errorf("suppressed %t: the reply has x-envoy-overloaded: %t, want %t", suppress, ok, !suppress)
		}
	}
}

func TestAttemptCountInResponses(t *testing.T) {
	for _, test := range []struct {
		attempts int
		retries  uint16
		include  bool
		want     string
	}{{1, 0, true, "1"}, {3, 2, true, "3"}, {1, 0, false, ""}, {0, 0, true, ""}} {
		x := newTestExchange()
		route := routeOf(t, config.Forward{Attempts: config.AttemptHeaders{CountInResponse: test.include}})
		s := ResponseHeaders(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			x.Record.Route, x.Record.Retries = &routeScope{route: route}, test.retries
			for range test.attempts {
				x.Record.BeginAttempt(nil)
			}
			x.LocalReplyError(protocol.NewFault(protocol.ConnectFailure, nil))
			return nil
		}), &config.Proxy{ClientHeaders: config.ClientHeaders{Envoy: &config.EnvoyHeaders{}}})
		if err := x.Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got := x.Response.Header.Get("x-envoy-attempt-count"); got != test.want {
			t.Errorf("%+v: x-envoy-attempt-count is %q, want %q", test, got, test.want)
		}
	}
}

func TestMaximumDurationByHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, _, err := headersOfAttempts(t, config.Forward{Timeout: time.Minute}, &config.RouterHeaders{}, respondWith(200, time.Hour), "x-envoy-upstream-stream-duration-ms: 500")
		if got := time.Since(start); protocol.ReasonOf(err) != protocol.UpstreamTimeout || got != 500*time.Millisecond {
			t.Errorf("error %v after %v, want %v after 500ms", err, got, protocol.UpstreamTimeout)
		}
	})
}

// TestControlHeadersDoNotAllocate verifies that requests without control headers cost no
// allocation, except for those that AttemptHeaders needs.
func TestControlHeadersDoNotAllocate(t *testing.T) {
	r := &routerHeaders{config: &config.RouterHeaders{}}
	x := newTestExchange("x-envoy-foo: 1", "x-envoy-external-address: 1.1.1.1", "user-agent: curl")
	if n := testing.AllocsPerRun(100, func() {
		if r.hasControls(&x.Request.Header) {
			t.Error("hasControls = true, want false")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzReadOverrides(f *testing.F) {
	for _, value := range []string{"", "0", "1", "-1", "5xx,foo", "true", "409, 500", "18446744073709551616", "x-a,, x-b"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var h protocol.Header
		for _, name := range controlHeaders {
			h.Add(name, value)
		}
		o := readOverrides(&config.Forward{Timeout: time.Second}, &h, true)
		if o.forward.Timeout < 0 || o.forward.Timeout > maxHeaderTimeout {
			t.Errorf("timeout %v, want 0 to %v", o.forward.Timeout, maxHeaderTimeout)
		}
		if r := o.forward.Retry; r != nil && (r.NumRetries < 0 || r.NumRetries > maxHeaderRetries || r.PerTryTimeout < 0) {
			t.Errorf("retry policy %+v, want at most %d retries and no negative timeout", r, maxHeaderRetries)
		}
		_ = checkControls(&h, config.StrictlyCheckedHeaders())
	})
}
