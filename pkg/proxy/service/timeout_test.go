package service

import (
	"context"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestGRPCTimeoutModes(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name        string
		rule        config.GRPCTimeout
		route       time.Duration
		grpcTimeout time.Duration // from grpc-timeout; 0: no header
		notGRPC     bool          // not a gRPC request
		want        time.Duration // 0: no deadline
	}{
		{name: "grpc-timeout is shorter", route: 10 * s, grpcTimeout: 3 * s, want: 3 * s},
		{name: "route timeout is shorter", route: 2 * s, grpcTimeout: 3 * s, want: 2 * s},
		{name: "ignored", rule: config.GRPCTimeout{Ignore: true}, route: 10 * s, grpcTimeout: 3 * s, want: 10 * s},
		{name: "ignored, no route timeout", rule: config.GRPCTimeout{Ignore: true}, grpcTimeout: 3 * s},
		{name: "above the maximum", rule: config.GRPCTimeout{Max: s}, route: 10 * s, grpcTimeout: 3 * s, want: s},
		{name: "below the maximum", rule: config.GRPCTimeout{Max: 5 * s}, route: 10 * s, grpcTimeout: 3 * s, want: 3 * s},
		{name: "maximum without grpc-timeout", rule: config.GRPCTimeout{Max: s}, route: 10 * s, want: 10 * s},
		{name: "replaces the route timeout", rule: config.GRPCTimeout{Max: 20 * s, Replace: true}, route: 10 * s, grpcTimeout: 15 * s, want: 15 * s},
		{name: "replaces, above the maximum", rule: config.GRPCTimeout{Max: 12 * s, Replace: true}, route: 10 * s, grpcTimeout: 15 * s, want: 12 * s},
		{name: "replaces, no grpc-timeout", rule: config.GRPCTimeout{Max: 20 * s, Replace: true}, route: 10 * s, want: 20 * s},
		{name: "replaces, no maximum", rule: config.GRPCTimeout{Replace: true}, route: 10 * s, grpcTimeout: 15 * s, want: 15 * s},
		{name: "not gRPC", rule: config.GRPCTimeout{Max: s, Replace: true}, route: 10 * s, notGRPC: true, want: 10 * s},
	} {
		x := newTestExchange()
		x.Meta.Start = time.Now()
		x.Request.Method, x.Meta.Protocol = "POST", string(config.HTTP2)
		if !test.notGRPC {
			x.Request.Header.Add("content-type", "application/grpc")
		}
		if test.grpcTimeout > 0 {
			x.Deadline = x.Meta.Start.Add(test.grpcTimeout)
		}
		var got time.Duration
		next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			if !x.Deadline.IsZero() {
				got = x.Deadline.Sub(x.Meta.Start)
			}
			return nil
		})
		if err := x.Serve(t.Context(), Timeout(next, routeOf(t, config.Forward{Timeout: test.route, GRPCTimeout: test.rule}))); err != nil || got != test.want {
			t.Errorf("%s: %v, %v; want %v", test.name, got, err, test.want)
		}
	}
}
