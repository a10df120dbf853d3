package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestUpstreamProtocol(t *testing.T) {
	for _, test := range []struct {
		name            string
		route           config.Protocol
		cluster         config.Cluster
		proxy           config.Protocol
		caller          config.Protocol
		grpc            bool
		want            config.Protocol
		wantUnsupported bool
	}{
		{name: "nothing is said", caller: config.HTTP2, want: config.HTTP2},
		{name: "the proxy says", proxy: config.HTTP1, caller: config.HTTP2, want: config.HTTP1},
		{name: "the cluster follows the caller", cluster: config.Cluster{Protocol: config.Auto}, proxy: config.HTTP1, caller: config.HTTP2, want: config.HTTP2},
		{name: "of HTTP/1.1, too", cluster: config.Cluster{Protocol: config.Auto}, proxy: config.HTTP2, caller: config.HTTP1, want: config.HTTP1},
		{name: "gRPC follows", cluster: config.Cluster{Protocol: config.Auto}, proxy: config.HTTP1, caller: config.HTTP2, grpc: true, want: config.HTTP2},
		{name: "the route says", route: config.HTTP1, cluster: config.Cluster{Protocol: config.Auto}, caller: config.HTTP2, want: config.HTTP1},
		{name: "a route that says nothing", route: config.Auto, cluster: config.Cluster{Protocol: config.HTTP2}, caller: config.HTTP1, want: config.HTTP2},
		{name: "gRPC in HTTP/1.1", cluster: config.Cluster{Protocol: config.HTTP1}, caller: config.HTTP2, grpc: true, want: config.HTTP1, wantUnsupported: true},
		{name: "gRPC in HTTP/1.1 that the cluster takes", cluster: config.Cluster{Protocol: config.HTTP1, GRPCOverHTTP1: true}, caller: config.HTTP2, grpc: true, want: config.HTTP1},
		{name: "RPC in HTTP", cluster: config.Cluster{Protocol: config.HTTP1, GRPCOverHTTP1: true}, caller: config.Dubbo, want: config.HTTP1, wantUnsupported: true},
	} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Meta.Protocol = string(test.caller)
		if test.grpc {
			x.Request.Header.Add("Content-Type", "application/grpc")
		}
		got, err := (&ClusterPicker{Protocol: test.route, Fallback: test.proxy}).upstreamProtocol(&test.cluster, x)
		if got != test.want || (protocol.ReasonOf(err) == protocol.NotImplemented) != test.wantUnsupported {
			t.Errorf("%s: %s, %v; want %s, not supported: %v", test.name, got, err, test.want, test.wantUnsupported)
		}
	}
}
