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

// named is a handler that reports the connections that it gets. Like the engines, it is a
// ClientFirstHandler.
type named struct {
	name string
	got  chan<- string
}

func (n named) ServeConn(_ context.Context, conn *network.Conn) error {
	n.got <- n.name
	_, err := conn.Read(make([]byte, 1))
	return err
}

func (named) IdleTimeout() time.Duration { return time.Minute }

// door is a TLSHandler on a loopback connection, with what it reports.
type door struct {
	t       *testing.T
	secured *TLSHandler
	client  *tls.Config
	got     chan string
	shaken  []error
	log     bytes.Buffer
}

func newDoor(t *testing.T) *door {
	t.Helper()
	ca := testpki.New(t)
	d := &door{t: t, got: make(chan string, 1), client: &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}}
	d.secured = NewTLSHandler(TLSOptions{
		Config:      &tls.Config{Certificates: []tls.Certificate{ca.Issue(testpki.Spec{}).TLS}, NextProtos: []string{"h2", "http/1.1"}},
		ByALPN:      map[string]network.Handler{"h2": named{"h2", d.got}},
		Default:     named{"other", d.got},
		Timeout:     5 * time.Second,
		Log:         slog.New(slog.NewTextHandler(&d.log, nil)),
		OnHandshake: func(err error) { d.shaken = append(d.shaken, err) },
	})
	return d
}

// knock runs talk as the client, and returns the connection once it was served.
func (d *door) knock(talk func(nc net.Conn)) (*network.Conn, error) {
	d.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	defer ln.Close()
	caller, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		d.t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		d.t.Fatal(err)
	}
	talked := make(chan struct{})
	go func() { defer close(talked); talk(caller) }()
	conn := network.NewConn(nc)
	d.t.Cleanup(func() { conn.Close(); caller.Close() })
	err = d.secured.ServeConn(d.t.Context(), conn)
	<-talked
	return conn, err
}

func (d *door) shake(alpn ...string) func(net.Conn) {
	return func(nc net.Conn) {
		config := d.client.Clone()
		config.NextProtos = alpn
		_ = tls.Client(nc, config).Handshake() // the server reports the error
	}
}

func TestAConnectionIsParkedForWhomALPNChose(t *testing.T) {
	for _, test := range []struct {
		name string
		alpn []string
		want string
	}{
		{"a protocol that has a handler", []string{"h2"}, "h2"},
		{"one that has none", []string{"http/1.1"}, "other"},
		{"no ALPN", nil, "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDoor(t)
			conn, err := d.knock(d.shake(test.alpn...))
			if !errors.Is(err, network.ErrPark) {
				t.Fatalf("ServeConn = %v, want ErrPark", err)
			}
			if h, ok := conn.Handler.(named); !ok || h.name != test.want {
				t.Errorf("the handler is %+v, want %s", conn.Handler, test.want)
			}
			if len(d.shaken) != 1 || d.shaken[0] != nil {
				t.Errorf("handshakes %v, want one that succeeded", d.shaken)
			}
			if m := NewConnMeta("l", conn); !m.Secure || m.TLS == nil || m.TLS.Version != "TLSv1.3" {
				t.Errorf("ConnMeta has %+v", m.TLS)
			}
		})
	}
}

func TestWhoBeginsWithoutAHandshake(t *testing.T) {
	plain := func(nc net.Conn) { nc.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }
	t.Run("is refused", func(t *testing.T) {
		d := newDoor(t)
		conn, err := d.knock(plain)
		if err == nil || conn.CloseReason != network.CauseHandshake || len(d.shaken) != 1 || d.shaken[0] == nil {
			t.Errorf("ServeConn = %v, cause %v, handshakes %v", err, conn.CloseReason, d.shaken)
		}
	})
	t.Run("is served where plaintext may be", func(t *testing.T) {
		d := newDoor(t)
		d.secured.o.Plaintext = named{"plain", d.got}
		if _, err := d.knock(plain); err != nil || <-d.got != "plain" || len(d.shaken) != 0 {
			t.Errorf("ServeConn = %v, handshakes %v", err, d.shaken)
		}
		if conn, err := d.knock(d.shake("h2")); !errors.Is(err, network.ErrPark) || conn.TLS() == nil {
			t.Errorf("TLS beside it: %v", err)
		}
	})
}

func TestFailuresAreLoggedOnceASecond(t *testing.T) {
	d := newDoor(t)
	for range 5 {
		d.knock(func(nc net.Conn) { nc.Write([]byte("no hello\n")) })
		d.secured.lull.logged.Store(time.Now().Add(time.Hour).UnixNano()) // within the log interval, however slow the test is
	}
	if n := strings.Count(d.log.String(), "TLS handshake failed"); n != 1 || len(d.shaken) != 5 {
		t.Errorf("%d lines for %d failures, want 1 for 5:\n%s", n, len(d.shaken), d.log.String())
	}
	d.secured.lull.logged.Store(0)
	d.knock(func(nc net.Conn) { nc.Write([]byte("no hello\n")) })
	if !strings.Contains(d.log.String(), "not_logged_before=4") {
		t.Errorf("the next line does not tell of the 4 that were not logged:\n%s", d.log.String())
	}
}
