package service

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestRetryOnConditions verifies which results each retry condition covers on its own.
func TestRetryOnConditions(t *testing.T) {
	status := func(code int) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Status = code; return nil }
	}
	fault := func(r protocol.Reason) func(x *protocol.Exchange) error {
		return func(*protocol.Exchange) error { return protocol.NewFault(r, nil) }
	}
	grpc := func(code string) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Header.Add("grpc-status", code); return nil }
	}
	header := func(name, value string) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Header.Add(name, value); return nil }
	}
	rpcStatus := func(code int) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Code = code; return nil }
	}
	policy := config.RetryPolicy{
		NumRetries: 1, StatusCodes: []int{429}, RPCCodes: []int{70},
		Extras: &config.RetryExtras{Headers: []config.RetryHeader{{Name: "x-again"}, {Name: "X-Try", Value: "yes"}}},
	}
	for _, test := range []struct {
		name   string
		result func(x *protocol.Exchange) error
		want   string // the conditions that cover the result
	}{
		{"200", status(200), ""},
		{"404", status(404), ""},
		{"409", status(409), "retriable-4xx"},
		{"429 in the list", status(429), "retriable-status-codes"},
		{"500", status(500), "5xx"},
		{"501", status(501), "5xx"},
		{"502", status(502), "5xx gateway-error"},
		{"503", status(503), "5xx gateway-error"},
		{"504", status(504), "5xx gateway-error"},
		{"505", status(505), "5xx"},
		{"header", header("X-Again", ""), "retriable-headers"},
		{"header with the value", header("x-try", "yes"), "retriable-headers"},
		{"header with another value", header("x-try", "no"), ""},
		{"connect failure", fault(protocol.ConnectFailure), "5xx gateway-error reset connect-failure refused-stream"},
		{"connect timeout", fault(protocol.ConnectTimeout), "5xx gateway-error reset connect-failure refused-stream"},
		{"reset", fault(protocol.UpstreamReset), "5xx gateway-error reset"},
		{"closed connection", fault(protocol.UpstreamClosed), "5xx gateway-error reset"},
		{"malformed response", fault(protocol.UpstreamMalformed), "5xx gateway-error reset"},
		{"per-try timeout", fault(protocol.ReasonPerTryTimeout), "5xx gateway-error reset"},
		{"route timeout", fault(protocol.UpstreamTimeout), ""},
		{"overflow", fault(protocol.Overflow), ""},
		{"client disconnect", fault(protocol.ReasonDownstreamDisconnect), ""},
		{"grpc-status 0", grpc("0"), ""},
		{"grpc-status 1", grpc("1"), "cancelled"},
		{"grpc-status 2", grpc("2"), ""},
		{"grpc-status 4", grpc("4"), "deadline-exceeded"},
		{"grpc-status 8", grpc("8"), "resource-exhausted"},
		{"grpc-status 13", grpc("13"), "internal"},
		{"grpc-status 14", grpc("14"), "unavailable"},
		{"RPC status in the list", rpcStatus(70), "retriable-status-codes"},
		{"RPC status not in the list", rpcStatus(71), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := strings.Fields(test.want)
			for _, condition := range config.RetryOnNames() {
				p := policy
				p.On = config.ParseRetryOn(condition)
				attempts := 0
				next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					x.LocalReply(200, "", "")
					if attempts++; attempts == 1 {
						return test.result(x)
					}
					return nil
				})
				x := newTestExchange()
				if strings.HasPrefix(test.name, "grpc") {
					x.Meta.Protocol = string(config.HTTP2)
					x.Request.Method = "POST"
					x.Request.Header.Add("content-type", "application/grpc")
				}
				err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &p}), unlimitedBudget))
				if wantRetry := slices.Contains(want, condition); (attempts == 2) != wantRetry || wantRetry && err != nil {
					t.Errorf("%s: %d attempts, %v; want a retry: %t", condition, attempts, err, wantRetry)
				}
			}
		})
	}
}

func TestPostIsNotRetriedOnStatus(t *testing.T) {
	for _, condition := range config.RetryOnNames() {
		next := &scriptedService{results: []any{503}}
		x := newTestExchange()
		x.Request.Method = "POST"
		route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.ParseRetryOn(condition), NumRetries: 1, StatusCodes: []int{503}}})
		if err := x.Serve(t.Context(), Retry(next, route, unlimitedBudget)); err != nil || next.attempts != 1 {
			t.Errorf("%s: %d attempts, %v; want 1", condition, next.attempts, err)
		}
	}
}

func TestRetryOnRepeatedHeader(t *testing.T) {
	h := new(protocol.Header)
	h.Add("x-again", "no")
	h.Add("X-Again", "yes")
	for value, want := range map[string]bool{"yes": true, "no": true, "": true, "no,yes": false, "never": false} {
		if got := hasRetriableHeader([]config.RetryHeader{{Name: "x-again", Value: value}}, h); got != want {
			t.Errorf("%q: %t, want %t", value, got, want)
		}
	}
}

func TestAnyMethodRetriesPost(t *testing.T) {
	next := &scriptedService{results: []any{503, 200}}
	x := newTestExchange()
	x.Request.Method = "POST"
	x.Request.Body = protocol.NewStringBody("text")
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.Retry5xx, NumRetries: 1, Extras: &config.RetryExtras{AnyMethod: true}}})
	if err := x.Serve(t.Context(), Retry(next, route, unlimitedBudget)); err != nil || next.attempts != 2 {
		t.Errorf("%d attempts, %v, want 2", next.attempts, err)
	}
}

// TestRetryHeaderConditions verifies conditions of a policy on the headers of requests and responses.
func TestRetryHeaderConditions(t *testing.T) {
	condition := []config.HeaderMatch{{Name: "x-h", Matcher: &config.ValueMatch{Kind: config.ValuePrefix, Text: "ye"}}}
	for _, test := range []struct {
		name              string
		policy            config.RetryPolicy
		request, response string
		want              int
	}{
		{"the response header", config.RetryPolicy{On: config.RetryHeaders, Extras: &config.RetryExtras{ResponseHeaders: condition}}, "", "yes", 2},
		{"another value", config.RetryPolicy{On: config.RetryHeaders, Extras: &config.RetryExtras{ResponseHeaders: condition}}, "yes", "no", 1},
		{"not a condition of the policy", config.RetryPolicy{On: config.Retry5xx, Extras: &config.RetryExtras{ResponseHeaders: condition}}, "", "yes", 1},
		{"the request header", config.RetryPolicy{On: config.RetryStatusCodes, StatusCodes: []int{200}, Extras: &config.RetryExtras{RequestHeaders: condition}}, "yes", "", 2},
		{"another request", config.RetryPolicy{On: config.RetryStatusCodes, StatusCodes: []int{200}, Extras: &config.RetryExtras{RequestHeaders: condition}}, "no", "yes", 1},
	} {
		attempts := 0
		next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			attempts++
			x.LocalReply(200, "", "")
			x.Response.Header.Add("X-H", test.response)
			return nil
		})
		test.policy.NumRetries = 1
		x := newTestExchange("X-H: " + test.request)
		if err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &test.policy}), unlimitedBudget)); err != nil || attempts != test.want {
			t.Errorf("%s: %d attempts, %v, want %d", test.name, attempts, err, test.want)
		}
	}
}

// TestRetryWaitsAsResponseDemands verifies that a reset header replaces the backoff.
func TestRetryWaitsAsResponseDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			attempts++
			x.LocalReply(429, "", "")
			x.Response.Header.Add("Retry-After", "2")
			return nil
		})
		route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{
			On: config.RetryStatusCodes, StatusCodes: []int{429}, NumRetries: 1,
			Extras: &config.RetryExtras{ResetHeaders: []config.ResetHeader{{Name: "retry-after"}}, MaxReset: time.Minute},
		}})
		start := time.Now()
		if err := newTestExchange().Serve(t.Context(), Retry(next, route, unlimitedBudget)); err != nil || attempts != 2 {
			t.Errorf("%d attempts, %v, want 2", attempts, err)
		}
		if took := time.Since(start); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("the retry was sent after %v, want 2 to 3 seconds", took)
		}
	})
}

func TestRouteIdleTimeout(t *testing.T) {
	for configured, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Second, -1: 0} {
		x := newTestExchange()
		x.IdleTimeout = time.Minute
		_ = x.Serve(t.Context(), Timeout(&scriptedService{results: []any{200}}, routeOf(t, config.Forward{Extras: &config.ForwardExtras{IdleTimeout: configured}})))
		if x.IdleTimeout != want {
			t.Errorf("IdleTimeout %v of the route: the exchange has %v, want %v", configured, x.IdleTimeout, want)
		}
	}
}
