// Package transport connects to the servers of a bootstrap over gRPC: control planes, sources of
// secrets and receivers of load reports.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/weft-proxy/weft/pkg/network/credential"
	streams "github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
)

// Network configures how to reach servers. The zero value uses the network of the machine.
type Network struct {
	// Dial opens a connection; nil: a net.Dialer with its default TCP keepalive.
	Dial           func(ctx context.Context, network, address string) (net.Conn, error)
	MaxMessageSize int // maximum size of a response in bytes; 0: defaultMaxMessageSize
}

// defaultMaxMessageSize is the maximum size of a response in bytes.
const defaultMaxMessageSize = 256 << 20

// Dialer opens connections to one server. It is not safe for concurrent use. The caller closes it.
type Dialer struct {
	Target   bootstrap.Target
	Reloader *credential.Reloader // watches the certificate files
	Network  Network

	tlsLoaded bool               // LoadTLS has read the certificates
	tls       *credential.Client // nil: plaintext, or not loaded yet
}

// LoadTLS reads the certificates, unless an earlier call has read them.
func (d *Dialer) LoadTLS() error {
	if d.tlsLoaded || d.Target.TLS == nil {
		return nil
	}
	c, err := streams.NewTLSContext(d.Target.TLS, []string{"h2"})
	if err != nil {
		return err
	}
	if d.tls, err = d.Reloader.NewClient(c); err != nil {
		return err
	}
	d.tlsLoaded = true
	return nil
}

// Close ends the watch of the certificate files. Connections stay open.
func (d *Dialer) Close() {
	if d.tlsLoaded {
		d.tls.Close()
		d.tls, d.tlsLoaded = nil, false
	}
}

// Dial returns a connection that connects on first use. It reads the certificates if no earlier
// call has read them. The caller closes the connection.
func (d *Dialer) Dial() (*grpc.ClientConn, error) {
	if err := d.LoadTLS(); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	tlsClient := d.tls
	return grpc.NewClient("passthrough:///"+d.Target.Address,
		// The dialer does TLS, so grpc must not.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return d.connect(ctx, address, tlsClient)
		}),
		grpc.WithAuthority(authority(&d.Target)),
		grpc.WithStreamInterceptor(d.interceptStream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(d.Network.MaxMessageSize, defaultMaxMessageSize))),
	)
}

// interceptStream implements grpc.StreamClientInterceptor. It adds the metadata of the target.
func (d *Dialer) interceptStream(ctx context.Context, s *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	if d.Target.Metadata != nil {
		ctx = metadata.NewOutgoingContext(ctx, d.Target.Metadata)
	}
	return streamer(ctx, s, conn, method, o...)
}

// authority returns the :authority of calls to t.
func authority(t *bootstrap.Target) string {
	switch {
	case t.AuthorityOverride != "":
		return t.AuthorityOverride
	case t.TLS != nil && t.TLS.ServerName != "":
		return t.TLS.ServerName
	case t.IsUnix:
		return "localhost"
	}
	return t.Address
}

func (d *Dialer) connect(ctx context.Context, address string, tlsClient *credential.Client) (net.Conn, error) {
	dial := d.Network.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	network := "tcp"
	if d.Target.IsUnix {
		network = "unix"
	}
	conn, err := dial(ctx, network, address)
	if err != nil || tlsClient == nil {
		return conn, err
	}
	host, _, _ := net.SplitHostPort(address)
	c := tls.Client(conn, tlsClient.Config(credential.Peer{Name: host, Address: address}, []string{"h2"}))
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}
