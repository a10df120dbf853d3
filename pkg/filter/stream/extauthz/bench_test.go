package extauthz

import (
	"context"
	"io"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// BenchmarkCheck measures the filter without the cost of a network call.
func BenchmarkCheck(b *testing.B) {
	response, err := proto.Marshal(&authv3.CheckResponse{})
	if err != nil {
		b.Fatal(err)
	}
	services := map[string]protocol.BlockingFunc{
		"HTTP": func(_ context.Context, x *protocol.Exchange) error { x.LocalReply(200, "", ""); return nil },
		"gRPC": func(_ context.Context, x *protocol.Exchange) error {
			if _, err := io.Copy(io.Discard, x.Request.Body); err != nil {
				return err
			}
			return respondFrame("\x00\x00\x00\x00\x00"+string(response), "0")(x)
		},
	}
	for name, settings := range map[string]filtertest.Settings{"HTTP": httpSettings(""), "gRPC": grpcConfig} {
		b.Run(name, func(b *testing.B) {
			f, _ := filtertest.BuildWith(b, Factory(), settings, &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"authz": services[name]}})
			s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
			filtertest.Bench(b, s, newGET("Authorization: a", "Cookie: b", "User-Agent: c", "Accept: d"))
		})
	}
}
