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

func (n namedHandler) ServeConn(_ context.Context, conn *network.Conn) error {
	n.served <- n.name
	_, err := conn.Read(make([]byte, 1))
	return err
}

func (namedHandler) IdleTimeout() time.Duration { return time.Minute }

// tlsTest is a TLSHandler for loopback connections, with its results.
type tlsTest struct {
	t             *testing.T
	handler       *TLSHandler
	clientConfig  *tls.Config
	served        chan string
	handshakeErrs []error
	log           bytes.Buffer
}

func newTLSTest(t *testing.T) *tlsTest {
	t.Helper()
	ca := testpki.New(t)
	d := &tlsTest{t: t, served: make(chan string, 1), clientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}}
	d.handler = NewTLSHandler(TLSOptions{
		Config:      &tls.Config{Certificates: []tls.Certificate{ca.Issue(testpki.Spec{}).TLS}, NextProtos: []string{"h2", "http/1.1"}},
		ByALPN:      map[string]network.Handler{"h2": namedHandler{"h2", d.served}},
		Default:     namedHandler{"other", d.served},
		Timeout:     5 * time.Second,
		Log:         slog.New(slog.NewTextHandler(&d.log, nil)),
		OnHandshake: func(err error) { d.handshakeErrs = append(d.handshakeErrs, err) },
	})
	return d
}

// connect runs talk as the client and returns the connection after ServeConn has returned.
func (d *tlsTest) connect(talk func(nc net.Conn)) (*network.Conn, error) {
	d.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		d.t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		d.t.Fatal(err)
	}
	talked := make(chan struct{})
	go func() { defer close(talked); talk(client) }()
	conn := network.NewConn(nc)
	d.t.Cleanup(func() { conn.Close(); client.Close() })
	err = d.handler.ServeConn(d.t.Context(), conn)
	<-talked
	return conn, err
}

func (d *tlsTest) handshake(alpn ...string) func(net.Conn) {
	return func(nc net.Conn) {
		config := d.clientConfig.Clone()
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
			d := newTLSTest(t)
			conn, err := d.connect(d.handshake(test.alpn...))
			if !errors.Is(err, network.ErrPark) {
				t.Fatalf("ServeConn = %v, want ErrPark", err)
			}
			if h, ok := conn.Handler.(namedHandler); !ok || h.name != test.want {
				t.Errorf("the handler is %+v, want %s", conn.Handler, test.want)
			}
			if len(d.handshakeErrs) != 1 || d.handshakeErrs[0] != nil {
				t.Errorf("handshake errors %v, want one nil error", d.handshakeErrs)
			}
			if m := NewConnMeta("l", conn); !m.Secure || m.TLS == nil || m.TLS.Version != "TLSv1.3" {
				t.Errorf("ConnMeta has %+v", m.TLS)
			}
		})
	}
}

func TestPlaintextOnTLSListener(t *testing.T) {
	plain := func(nc net.Conn) { nc.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }
	t.Run("rejected", func(t *testing.T) {
		d := newTLSTest(t)
		conn, err := d.connect(plain)
		if err == nil || conn.CloseReason != network.ClosedHandshakeFailed || len(d.handshakeErrs) != 1 || d.handshakeErrs[0] == nil {
			t.Errorf("ServeConn = %v, close reason %v, handshake errors %v", err, conn.CloseReason, d.handshakeErrs)
		}
	})
	t.Run("plaintext allowed", func(t *testing.T) {
		d := newTLSTest(t)
		d.handler.opts.Plaintext = namedHandler{"plain", d.served}
		if _, err := d.connect(plain); err != nil || <-d.served != "plain" || len(d.handshakeErrs) != 0 {
			t.Errorf("ServeConn = %v, handshake errors %v", err, d.handshakeErrs)
		}
		if conn, err := d.connect(d.handshake("h2")); !errors.Is(err, network.ErrPark) || conn.TLS() == nil {
			t.Errorf("TLS next to plaintext: %v", err)
		}
	})
}

func TestHandshakeFailuresAreLoggedOncePerSecond(t *testing.T) {
	d := newTLSTest(t)
	for range 5 {
		d.connect(func(nc net.Conn) { nc.Write([]byte("no hello\n")) })
		d.handler.logLimiter.lastLogged.Store(time.Now().Add(time.Hour).UnixNano()) // keeps the log interval open on a slow machine
	}
	if n := strings.Count(d.log.String(), "TLS handshake failed"); n != 1 || len(d.handshakeErrs) != 5 {
		t.Errorf("%d lines for %d failures, want 1 for 5:\n%s", n, len(d.handshakeErrs), d.log.String())
	}
	d.handler.logLimiter.lastLogged.Store(0)
	d.connect(func(nc net.Conn) { nc.Write([]byte("no hello\n")) })
	if !strings.Contains(d.log.String(), "not_logged_before=4") {
		t.Errorf("the next line does not report the 4 suppressed lines:\n%s", d.log.String())
	}
}
