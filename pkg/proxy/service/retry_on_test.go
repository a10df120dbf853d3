package service

import (
	"context"
	"slices"
	"strings"
	"testing"

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
		Headers: []config.RetryHeader{{Name: "x-again"}, {Name: "X-Try", Value: "yes"}},
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
