package service

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestRetryOnConditions is what each of them alone has tried again.
func TestRetryOnConditions(t *testing.T) {
	status := func(code int) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Status = code; return nil }
	}
	fails := func(r protocol.Reason) func(x *protocol.Exchange) error {
		return func(*protocol.Exchange) error { return protocol.NewFault(r, nil) }
	}
	grpc := func(code string) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Header.Add("grpc-status", code); return nil }
	}
	field := func(name, value string) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Header.Add(name, value); return nil }
	}
	native := func(code int) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error { x.Response.Code = code; return nil }
	}
	policy := config.RetryPolicy{
		NumRetries: 1, StatusCodes: []int{429}, RPCCodes: []int{70},
		Headers: []config.RetryHeader{{Name: "x-again"}, {Name: "X-Try", Value: "yes"}},
	}
	for _, test := range []struct {
		name  string
		first func(x *protocol.Exchange) error
		want  string // the words that cover it
	}{
		{"200", status(200), ""},
		{"404", status(404), ""},
		{"409", status(409), "retriable-4xx"},
		{"429, which is listed", status(429), "retriable-status-codes"},
		{"500", status(500), "5xx"},
		{"501", status(501), "5xx"},
		{"502", status(502), "5xx gateway-error"},
		{"503", status(503), "5xx gateway-error"},
		{"504", status(504), "5xx gateway-error"},
		{"505", status(505), "5xx"},
		{"a field", field("X-Again", ""), "retriable-headers"},
		{"a field with its value", field("x-try", "yes"), "retriable-headers"},
		{"a field with another value", field("x-try", "no"), ""},
		{"a host that refuses", fails(protocol.ConnectFailure), "5xx gateway-error reset connect-failure refused-stream"},
		{"a host that is not reached", fails(protocol.ConnectTimeout), "5xx gateway-error reset connect-failure refused-stream"},
		{"a reset", fails(protocol.UpstreamReset), "5xx gateway-error reset"},
		{"a lost connection", fails(protocol.UpstreamClosed), "5xx gateway-error reset"},
		{"an answer that makes no sense", fails(protocol.UpstreamMalformed), "5xx gateway-error reset"},
		{"a try that takes too long", fails(protocol.ReasonPerTryTimeout), "5xx gateway-error reset"},
		{"the end of the whole time", fails(protocol.UpstreamTimeout), ""},
		{"a full cluster", fails(protocol.Overflow), ""},
		{"a caller that left", fails(protocol.ReasonDownstreamDisconnect), ""},
		{"grpc-status 0", grpc("0"), ""},
		{"grpc-status 1", grpc("1"), "cancelled"},
		{"grpc-status 2", grpc("2"), ""},
		{"grpc-status 4", grpc("4"), "deadline-exceeded"},
		{"grpc-status 8", grpc("8"), "resource-exhausted"},
		{"grpc-status 13", grpc("13"), "internal"},
		{"grpc-status 14", grpc("14"), "unavailable"},
		{"a status of RPC that is listed", native(70), "retriable-status-codes"},
		{"another status of RPC", native(71), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := strings.Fields(test.want)
			for _, word := range config.RetryOnNames() {
				p := policy
				p.On = config.ParseRetryOn(word)
				tries := 0
				next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					x.LocalReply(200, "", "")
					if tries++; tries == 1 {
						return test.first(x)
					}
					return nil
				})
				x := newTestExchange()
				if strings.HasPrefix(test.name, "grpc") {
					x.Meta.Protocol = string(config.HTTP2)
					x.Request.Method = "POST"
					x.Request.Header.Add("content-type", "application/grpc")
				}
				err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &p}), unlimited))
				if again := slices.Contains(want, word); (tries == 2) != again || again && err != nil {
					t.Errorf("%s: %d tries, %v; want another try: %t", word, tries, err, again)
				}
			}
		})
	}
}

func TestPostIsNotRetriedOnStatus(t *testing.T) {
	for _, word := range config.RetryOnNames() {
		next := &scriptedService{results: []any{503}}
		x := newTestExchange()
		x.Request.Method = "POST"
		route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.ParseRetryOn(word), NumRetries: 1, StatusCodes: []int{503}}})
		if err := x.Serve(t.Context(), Retry(next, route, unlimited)); err != nil || next.attempts != 1 {
			t.Errorf("%s: %d tries, %v; want 1", word, next.attempts, err)
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
