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
		listener        config.Protocol
		downstream      config.Protocol
		grpc            bool
		want            config.Protocol
		wantUnsupported bool
	}{
		{name: "no protocol configured", downstream: config.HTTP2, want: config.HTTP2},
		{name: "protocol of the listener", listener: config.HTTP1, downstream: config.HTTP2, want: config.HTTP1},
		{name: "auto of the cluster, HTTP/2 downstream", cluster: config.Cluster{Protocol: config.Auto}, listener: config.HTTP1, downstream: config.HTTP2, want: config.HTTP2},
		{name: "auto of the cluster, HTTP/1.1 downstream", cluster: config.Cluster{Protocol: config.Auto}, listener: config.HTTP2, downstream: config.HTTP1, want: config.HTTP1},
		{name: "auto of the cluster, gRPC downstream", cluster: config.Cluster{Protocol: config.Auto}, listener: config.HTTP1, downstream: config.HTTP2, grpc: true, want: config.HTTP2},
		{name: "protocol of the route", route: config.HTTP1, cluster: config.Cluster{Protocol: config.Auto}, downstream: config.HTTP2, want: config.HTTP1},
		{name: "auto of the route", route: config.Auto, cluster: config.Cluster{Protocol: config.HTTP2}, downstream: config.HTTP1, want: config.HTTP2},
		{name: "gRPC in HTTP/1.1", cluster: config.Cluster{Protocol: config.HTTP1}, downstream: config.HTTP2, grpc: true, want: config.HTTP1, wantUnsupported: true},
		{name: "gRPC in HTTP/1.1, GRPCOverHTTP1", cluster: config.Cluster{Protocol: config.HTTP1, GRPCOverHTTP1: true}, downstream: config.HTTP2, grpc: true, want: config.HTTP1},
		{name: "RPC in HTTP", cluster: config.Cluster{Protocol: config.HTTP1, GRPCOverHTTP1: true}, downstream: config.Dubbo, want: config.HTTP1, wantUnsupported: true},
	} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Meta.Protocol = string(test.downstream)
		if test.grpc {
			x.Request.Header.Add("Content-Type", "application/grpc")
		}
		got, err := (&ClusterPicker{Protocol: test.route, FallbackProtocol: test.listener}).upstreamProtocol(&test.cluster, x)
		if got != test.want || (protocol.ReasonOf(err) == protocol.NotImplemented) != test.wantUnsupported {
			t.Errorf("%s: %s, %v; want %s, not supported: %v", test.name, got, err, test.want, test.wantUnsupported)
		}
	}
}
