package transport

import (
	"context"
	"net"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestControlPlaneAuthorityAndMetadata verifies the :authority and the initial metadata of a stream
// to the control plane.
func TestControlPlaneAuthorityAndMetadata(t *testing.T) {
	ln := bufconn.Listen(1 << 20)
	received := make(chan metadata.MD, 1)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		received <- md
		return nil
	}))
	serveErr := make(chan error)
	go func() { serveErr <- server.Serve(ln) }()
	defer func() {
		server.Stop()
		<-serveErr
	}()
	for _, c := range []struct {
		name string
		b    config.Bootstrap
		want map[string][]string
	}{
		{"default", xdstest.Bootstrap("GRPC"), map[string][]string{":authority": {"127.0.0.1:1"}, "authorization": nil}},
		{"authority and metadata", xdstest.BootstrapWith("", `, "initial_metadata": [{"key": "Authorization", "value": "Bearer x"}, {"key": "x-a", "value": "1"}, {"key": "x-a", "raw_value": "Mg=="}]`, `, "authority": "xds.test"`, ""),
			map[string][]string{":authority": {"xds.test"}, "authorization": {"Bearer x"}, "x-a": {"1", "2"}}},
	} {
		b, _, err := bootstrap.Read(c.b, resource.Capabilities{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		dialer := Dialer{Target: b.Targets[b.ADSCluster], Network: Network{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.DialContext(ctx) }}}
		conn, err := dialer.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/service/Method"); err != nil {
			t.Fatal(err)
		}
		md := <-received
		for name, want := range c.want {
			if got := md.Get(name); !slices.Equal(got, want) {
				t.Errorf("%s: metadata %s = %q, want %q", c.name, name, got, want)
			}
		}
		_ = conn.Close()
	}
}
