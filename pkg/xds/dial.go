package xds

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/weft-proxy/weft/pkg/network/credential"
	streams "github.com/weft-proxy/weft/pkg/stream"
)

// network says how to reach targets. The zero value uses the network of the machine; tests replace
// it.
type network struct {
	dial           func(ctx context.Context, network, address string) (net.Conn, error)
	maxMessageSize int // maximum size of a response in bytes; 0: defaultMaxMessageSize
}

// defaultMaxMessageSize is the maximum size of a response in bytes.
const defaultMaxMessageSize = 256 << 20

// loadTLS returns the TLS client for connections, nil for plaintext. store watches its files until
// the caller calls forget.
func (t target) loadTLS(store *credential.Reloader) (secured *credential.Client, forget func(), err error) {
	if t.tls == nil {
		return nil, func() {}, nil
	}
	c, err := streams.NewTLSContext(t.tls, []string{"h2"})
	if err != nil {
		return nil, nil, err
	}
	if secured, err = store.NewClient(c); err != nil {
		return nil, nil, err
	}
	return secured, secured.Close, nil
}

// dial returns a connection that connects on first use. The caller closes it.
func (t target) dial(secured *credential.Client) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+t.address,
		// The dialer does TLS, so grpc must not.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return t.connect(ctx, address, secured)
		}),
		grpc.WithAuthority(t.authority()),
		grpc.WithStreamInterceptor(t.interceptStream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(t.network.maxMessageSize, defaultMaxMessageSize))),
	)
}

// interceptStream implements grpc.StreamClientInterceptor. It adds metadata.
func (t target) interceptStream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	if t.metadata != nil {
		ctx = metadata.NewOutgoingContext(ctx, t.metadata)
	}
	return open(ctx, d, conn, method, o...)
}

// authority returns the :authority of calls to the control plane.
func (t target) authority() string {
	switch {
	case t.authorityOverride != "":
		return t.authorityOverride
	case t.tls != nil && t.tls.ServerName != "":
		return t.tls.ServerName
	case t.isUnix:
		return "localhost"
	}
	return t.address
}

func (t target) connect(ctx context.Context, address string, secured *credential.Client) (net.Conn, error) {
	dial := t.network.dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext // uses the TCP keepalive of net.Dialer
	}
	family := "tcp"
	if t.isUnix {
		family = "unix"
	}
	conn, err := dial(ctx, family, address)
	if err != nil || secured == nil {
		return conn, err
	}
	host, _, _ := net.SplitHostPort(address)
	c := tls.Client(conn, secured.Config(host, address, []string{"h2"}))
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// Bounds of the backoff between two attempts, which doubles and has a jitter of up to half. A
// session with a response that lasted longer than maxBackoff resets it.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// tlsIdentity loads the TLS client for a control plane on first use and keeps it.
type tlsIdentity struct {
	target   target
	reloader *credential.Reloader

	loaded  bool
	tls     *credential.Client
	release func()
}

// client returns the TLS client, nil for plaintext. It reads the certificates until that succeeds
// once.
func (i *tlsIdentity) client() (*credential.Client, error) {
	if i.loaded {
		return i.tls, nil
	}
	var err error
	if i.tls, i.release, err = i.target.loadTLS(i.reloader); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	i.loaded = true
	return i.tls, nil
}

func (i *tlsIdentity) close() {
	if i.loaded {
		i.release()
	}
}
