package stream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
)

const (
	textHeader    = "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"
	binaryHeader  = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0f\xc0\x00\x02\x01\xc0\x00\x02\x02\xdc\x04\x01\xbb\x04\x00\x00"
	localHeader   = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	unknownHeader = "PROXY UNKNOWN\r\n"
)

// servedConn describes a connection after it was served to its end.
type servedConn struct {
	read        string // "-": the next handler was not called
	addresses   string
	closeReason network.CloseReason
	err         error
	log         string
}

// recordingHandler reads connections to their end and records their bytes and addresses.
type recordingHandler struct{ result *servedConn }

func (h recordingHandler) ServeConn(_ context.Context, conn *network.Conn) error {
	data, err := io.ReadAll(conn)
	meta := stream.NewConnMeta("in", conn)
	h.result.read, h.result.addresses = string(data), meta.RemoteText+" "+meta.LocalText
	return err
}

// serveClient serves a connection and runs client on the client's side.
func serveClient(t *testing.T, headers config.ProxyProtocol, client func(peer net.Conn)) servedConn {
	t.Helper()
	got := servedConn{read: "-"}
	var log bytes.Buffer
	h := stream.NewProxyProtocolHandler(stream.ProxyProtocolOptions{
		Headers: headers, Next: recordingHandler{&got}, Listener: "in", Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	local, peer := net.Pipe()
	conn := network.NewConn(local)
	clientDone := make(chan struct{})
	go func() { defer close(clientDone); client(peer); _ = peer.Close() }()
	got.err = h.ServeConn(t.Context(), conn)
	_ = conn.Close()
	<-clientDone
	got.closeReason, got.log = conn.CloseReason, log.String()
	return got
}

func testDefaults() config.ProxyProtocol { return config.ProxyProtocol{Timeout: time.Second} }

func TestProxyProtocolSetsAddresses(t *testing.T) {
	const proxied = "192.0.2.1:56324 192.0.2.2:443"
	for _, test := range []struct{ name, header, addresses string }{
		{"text", textHeader, proxied},
		{"binary, with extensions", binaryHeader, proxied},
		{"LOCAL", localHeader, "pipe pipe"},
		{"UNKNOWN", unknownHeader, "pipe pipe"},
	} {
		t.Run(test.name, func(t *testing.T) {
			forEachSplit(test.header+"hello", func(first, rest string) {
				synctest.Test(t, func(t *testing.T) {
					got := serveClient(t, testDefaults(), func(peer net.Conn) { writeParts(peer, first, rest) })
					if got.read != "hello" || got.addresses != test.addresses || got.err != nil {
						t.Errorf("%q, then %q: %+v, want hello from %s", first, rest, got, test.addresses)
					}
				})
			})
		})
	}
}

func TestProxyProtocolHeaderIsChecked(t *testing.T) {
	optional, onlyV2, onlyV1 := testDefaults(), testDefaults(), testDefaults() // no header is required; only one version is allowed
	optional.AllowMissing = true
	onlyV2.DisallowedVersions = []int{1}
	onlyV1.DisallowedVersions, onlyV1.AllowMissing = []int{2}, true
	for _, test := range []struct {
		name    string
		headers config.ProxyProtocol
		text    string
		read    string // "-": the connection was rejected
		log     string
	}{
		{"no header", testDefaults(), "GET / HTTP/1.1\r\n", "-", "no PROXY protocol header"},
		{"TLS", testDefaults(), "\x16\x03\x01", "-", "no PROXY protocol header"},
		{"wrong address family", testDefaults(), "PROXY TCP4 ::1 ::2 1 2\r\nhello", "-", "declared family"},
		{"disallowed version", onlyV2, textHeader + "hello", "-", "not allowed: 1"},
		{"allowed version", onlyV2, binaryHeader + "hello", "hello", ""},
		{"optional header, missing", optional, "PUT / HTTP/1.1\r\n", "PUT / HTTP/1.1\r\n", ""},
		{"optional header, present", optional, textHeader + "hello", "hello", ""},
		{"optional header, invalid", optional, "PROXY TCP9\r\n", "-", "unknown family"},
		{"optional header, disallowed version is payload", onlyV1, localHeader + "hello", localHeader + "hello", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := serveClient(t, test.headers, func(peer net.Conn) { writeParts(peer, strings.Split(test.text, "")...) })
				rejected := test.read == "-"
				if got.read != test.read || rejected != (got.closeReason == network.ClosedProxyProtocolError) || rejected != (got.err != nil) {
					t.Errorf("got %+v, want the bytes %q", got, test.read)
				}
				if !strings.Contains(got.log, test.log) || (got.log == "") != (test.log == "") {
					t.Errorf("log %q, want %q", got.log, test.log)
				}
			})
		})
	}
}

func TestProxyProtocolHeaderTimeout(t *testing.T) {
	for _, test := range []struct{ name, prefix string }{
		{"no bytes", ""},
		{"partial text header", textHeader[:10]},
		{"partial binary header", binaryHeader[:10]},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				got := serveClient(t, testDefaults(), func(peer net.Conn) {
					writeParts(peer, test.prefix)
					_, _ = peer.Read(make([]byte, 1)) // blocks until the connection is closed
				})
				if got.closeReason != network.ClosedProxyProtocolError || time.Since(start) != time.Second || !strings.Contains(got.log, "timeout before") {
					t.Errorf("got %+v after %v, want a timeout after 1s", got, time.Since(start))
				}
			})
		})
	}
}

func TestProxyProtocolTimeoutEndsWithHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := serveClient(t, testDefaults(), func(peer net.Conn) {
			writeParts(peer, textHeader)
			<-time.After(time.Hour)
			writeParts(peer, "hello")
		})
		if got.read != "hello" || got.err != nil {
			t.Errorf("got %+v, want hello", got)
		}
	})
}

func TestProxyProtocolDoesNotLogPortProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := serveClient(t, testDefaults(), func(net.Conn) {})
		if got.closeReason != network.ClosedByPeer || got.err != nil || got.log != "" {
			t.Errorf("got %+v, want ClosedByPeer and no log", got)
		}
	})
}

// clientFirstHandler is a handler of a protocol in which the client sends first.
type clientFirstHandler struct{ network.Handler }

func (clientFirstHandler) IdleTimeout() time.Duration { return time.Minute }

// TestProxyProtocolParksForClientFirstHandlers verifies that a connection is parked until the
// client sends. It uses sockets, because AwaitReadable does not wait on a pipe.
func TestProxyProtocolParksForClientFirstHandlers(t *testing.T) {
	for _, test := range []struct {
		name   string
		text   string
		action func(conn *network.Conn)
		want   error
	}{
		{"header without payload", textHeader, func(*network.Conn) {}, network.ErrPark},
		{"drain", "", func(conn *network.Conn) { conn.Drain(true) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			local, peer := tcpPair(t)
			conn := network.NewConn(local)
			t.Cleanup(func() { _ = conn.Close() })
			next := clientFirstHandler{recordingHandler{&servedConn{}}}
			h := stream.NewProxyProtocolHandler(stream.ProxyProtocolOptions{Headers: config.ProxyProtocol{Timeout: time.Minute}, Next: next})
			if _, err := io.WriteString(peer, test.text); err != nil {
				t.Fatal(err)
			}
			test.action(conn)
			if err := h.ServeConn(t.Context(), conn); !errors.Is(err, test.want) {
				t.Errorf("ServeConn = %v, want %v", err, test.want)
			}
			if parked := conn.Handler == network.Handler(next); parked != (test.want != nil) {
				t.Errorf("conn.Handler is the next handler: %v, want %t", parked, test.want != nil)
			}
		})
	}
}

// tcpPair returns both ends of a loopback connection.
func tcpPair(t *testing.T) (local, peer net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if peer, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	if local, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return local, peer
}
