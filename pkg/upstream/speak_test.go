package upstream

import (
	"context"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestWhatHostsAreSpokenToIn is who says it, and whose requests cannot be said in it.
func TestWhatHostsAreSpokenToIn(t *testing.T) {
	const http1, http2, dubbo, auto = config.HTTP1, config.HTTP2, config.Dubbo, config.Auto
	for _, test := range []struct {
		name                             string
		route, cluster, listener, caller config.Protocol
		grpc                             bool
		want                             config.Protocol
		refused                          bool
	}{
		{"nobody says anything", "", "", "", http1, false, http1, false},
		{"Auto says nothing", auto, auto, auto, http2, false, http2, false},
		{"the listener", "", "", http2, http1, false, http2, false},
		{"the cluster before the listener", "", http2, http1, http1, false, http2, false},
		{"the route before the cluster", http1, http2, http2, http2, false, http1, false},
		{"RPC as it came", "", dubbo, "", dubbo, false, dubbo, false},
		{"RPC in HTTP", "", http1, "", dubbo, false, http1, true},
		{"HTTP in RPC", dubbo, http1, "", http1, false, dubbo, true},
		{"gRPC in HTTP/2", "", http2, "", http2, true, http2, false},
		{"gRPC in HTTP/1.1", "", http1, "", http2, true, http1, true},
	} {
		x := get()
		x.Meta.Protocol = string(test.caller)
		if test.grpc {
			x.Request.Header.Add("content-type", "application/grpc")
		}
		via := &Via{Protocol: test.route, Fallback: test.listener}
		got, err := via.speaks(&config.Cluster{Name: "app", Protocol: test.cluster}, x)
		if got != test.want || (protocol.ReasonOf(err) == protocol.NotImplemented) != test.refused {
			t.Errorf("%s: %s, %v; want %s, refused: %t", test.name, got, err, test.want, test.refused)
		}
	}
}

// TestARequestThatCannotBeSaidCostsNoHost: it is not in flight, and no attempt was made.
func TestARequestThatCannotBeSaidCostsNoHost(t *testing.T) {
	cfg := cluster("web", "a")
	cfg.Protocol = config.Dubbo
	s, c := one(t, newWorld(), cfg)
	x := get()
	err := (&Via{Cluster: c}).Serve(context.Background(), x)
	if protocol.ReasonOf(err) != protocol.NotImplemented || !strings.Contains(err.Error(), "cluster web") || len(x.Record.Attempts) != 0 {
		t.Errorf("Serve = %v after %d attempts", err, len(x.Record.Attempts))
	}
	if x.Record.Cluster != protocol.Place(c) {
		t.Errorf("the fault is of the cluster %v", x.Record.Cluster)
	}
	wantCounts(t, s, 0, 0, 0)
}
