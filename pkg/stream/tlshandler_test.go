package stream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/network"
)

// namedHandler reports its name for each connection. Like the engines, it is a ClientFirstHandler.
type namedHandler struct {
	name   string
	served chan<- string
}

func (h namedHandler) ServeConn(_ context.Context, conn *network.Conn) error {
	h.served <- h.name
	_, err := conn.Read(make([]byte, 1))
	return err
}

func (namedHandler) IdleTimeout() time.Duration { return time.Minute }

// tlsFixture is a TLSHandler for loopback connections, with its results.
type tlsFixture struct {
	t             *testing.T
	handler       *TLSHandler
	clientConfig  *tls.Config
	served        chan string
	handshakeErrs []error
	log           bytes.Buffer
}

func newTLSFixture(t *testing.T) *tlsFixture {
	t.Helper()
	ca := testpki.New(t)
	f := &tlsFixture{t: t, served: make(chan string, 1), clientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}}
	f.handler = NewTLSHandler(TLSOptions{
		Config:      &tls.Config{Certificates: []tls.Certificate{ca.Issue(testpki.Spec{}).TLS}, NextProtos: []string{"h2", "http/1.1"}},
		ByALPN:      map[string]network.Handler{"h2": namedHandler{"h2", f.served}},
		Default:     namedHandler{"other", f.served},
		Timeout:     5 * time.Second,
		Log:         slog.New(slog.NewTextHandler(&f.log, nil)),
		OnHandshake: func(err error) { f.handshakeErrs = append(f.handshakeErrs, err) },
	})
	return f
}

// connect serves a connection and runs client on the client's side. It returns the connection after
// ServeConn has returned, and the error of ServeConn.
func (f *tlsFixture) connect(client func(nc net.Conn)) (*network.Conn, error) {
	f.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		f.t.Fatal(err)
	}
	clientDone := make(chan struct{})
	go func() { defer close(clientDone); client(peer) }()
	conn := network.NewConn(nc)
	f.t.Cleanup(func() { conn.Close(); peer.Close() })
	err = f.handler.ServeConn(f.t.Context(), conn)
	<-clientDone
	return conn, err
}

// handshake returns a client that performs a TLS handshake with the given ALPN protocols.
func (f *tlsFixture) handshake(alpn ...string) func(net.Conn) {
	return func(nc net.Conn) {
		config := f.clientConfig.Clone()
		config.NextProtos = alpn
		_ = tls.Client(nc, config).Handshake() // the server reports the error
	}
}

func TestALPNSelectsHandler(t *testing.T) {
	for _, test := range []struct {
		name string
		alpn []string
		want string
	}{
		{"protocol with a handler", []string{"h2"}, "h2"},
		{"protocol without a handler", []string{"http/1.1"}, "other"},
		{"no ALPN", nil, "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newTLSFixture(t)
			conn, err := f.connect(f.handshake(test.alpn...))
			if !errors.Is(err, network.ErrPark) {
				t.Fatalf("ServeConn = %v, want ErrPark", err)
			}
			if h, ok := conn.Handler.(namedHandler); !ok || h.name != test.want {
				t.Errorf("the handler is %+v, want %s", conn.Handler, test.want)
			}
			if len(f.handshakeErrs) != 1 || f.handshakeErrs[0] != nil {
				t.Errorf("handshake errors %v, want one nil error", f.handshakeErrs)
			}
			if m := NewConnMeta("l", conn); !m.Secure || m.TLS == nil || m.TLS.Version != "TLSv1.3" {
				t.Errorf("ConnMeta has %+v, want TLSv1.3", m.TLS)
			}
		})
	}
}

func TestPlaintextOnTLSListener(t *testing.T) {
	sendPlaintext := func(nc net.Conn) { nc.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }
	t.Run("rejected", func(t *testing.T) {
		f := newTLSFixture(t)
		conn, err := f.connect(sendPlaintext)
		if err == nil || conn.CloseReason != network.ClosedHandshakeFailed || len(f.handshakeErrs) != 1 || f.handshakeErrs[0] == nil {
			t.Errorf("ServeConn = %v, close reason %v, handshake errors %v; want one error and %v", err, conn.CloseReason, f.handshakeErrs, network.ClosedHandshakeFailed)
		}
	})
	t.Run("plaintext allowed", func(t *testing.T) {
		f := newTLSFixture(t)
		f.handler.opts.Plaintext = namedHandler{"plain", f.served}
		if _, err := f.connect(sendPlaintext); err != nil || <-f.served != "plain" || len(f.handshakeErrs) != 0 {
			t.Errorf("ServeConn = %v, handshake errors %v; want none", err, f.handshakeErrs)
		}
		if conn, err := f.connect(f.handshake("h2")); !errors.Is(err, network.ErrPark) || conn.TLS() == nil {
			t.Errorf("TLS on a listener that allows plaintext: %v, want network.ErrPark after the handshake", err)
		}
	})
}

func TestHandshakeFailuresAreLoggedOncePerSecond(t *testing.T) {
	f := newTLSFixture(t)
	for range 5 {
		f.connect(func(nc net.Conn) { nc.Write([]byte("not TLS\n")) })
		f.handler.logLimiter.lastLogged.Store(time.Now().Add(time.Hour).UnixNano()) // so that the log interval does not end on a slow machine
	}
	if n := strings.Count(f.log.String(), "TLS handshake failed"); n != 1 || len(f.handshakeErrs) != 5 {
		t.Errorf("%d lines for %d failures, want 1 for 5:\n%s", n, len(f.handshakeErrs), f.log.String())
	}
	f.handler.logLimiter.lastLogged.Store(0)
	f.connect(func(nc net.Conn) { nc.Write([]byte("not TLS\n")) })
	if !strings.Contains(f.log.String(), "not_logged_before=4") {
		t.Errorf("the next line does not report the 4 suppressed lines:\n%s", f.log.String())
	}
}
