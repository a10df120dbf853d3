package e2e

import (
	"bufio"
	"crypto/sha1" // RFC 6455 requires SHA-1
	"encoding/base64"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// tunnel is one end of a tunnel in either HTTP version, after the handshake.
type tunnel interface {
	io.ReadWriter
	// closeWrite closes the sending direction.
	closeWrite() error
	// abort closes both directions immediately.
	abort() error
}

// http1Tunnel is a tunnel in HTTP/1.1: a connection after the upgrade.
type http1Tunnel struct {
	*bufio.Reader
	net.Conn
}

func (t http1Tunnel) Read(p []byte) (int, error) { return t.Reader.Read(p) }

func (t http1Tunnel) closeWrite() error { return t.Conn.(*net.TCPConn).CloseWrite() }

func (t http1Tunnel) abort() error {
	return errors.Join(t.Conn.(*net.TCPConn).SetLinger(0), t.Conn.Close()) // a reset
}

// http2Tunnel is a tunnel in HTTP/2: a stream.
type http2Tunnel struct {
	*http2Peer
	stream uint32
	unread []byte
	ended  error
}

func (t *http2Tunnel) Read(p []byte) (int, error) {
	for len(t.unread) == 0 && t.ended == nil {
		f, err := t.fr.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			t.unread = slices.Clone(f.Data())
			if f.StreamEnded() {
				t.ended = io.EOF
			}
		case *http2.RSTStreamFrame:
			t.ended = http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode}
		}
	}
	if len(t.unread) == 0 {
		return 0, t.ended
	}
	n := copy(p, t.unread)
	t.unread = t.unread[n:]
	return n, nil
}

func (t *http2Tunnel) Write(p []byte) (int, error) { return len(p), t.fr.WriteData(t.stream, false, p) }

func (t *http2Tunnel) closeWrite() error { return t.fr.WriteData(t.stream, true, nil) }

func (t *http2Tunnel) abort() error { return t.fr.WriteRSTStream(t.stream, http2.ErrCodeCancel) }

// openTunnel opens a tunnel to Weft in an HTTP version.
func openTunnel(t *testing.T, address, protocol string) tunnel {
	t.Helper()
	c := dialRaw(t, address)
	if protocol == "Http1" {
		c.send("GET /chat HTTP/1.1\nHost: shop.test\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n")
		line, fields, err := http1Reader{c.r}.section(true)
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 101 ") || takeHeader(&fields, "sec-websocket-accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
			t.Fatalf("handshake: %s %q, %v; want 101 and the accept key", line, fields, err)
		}
		return http1Tunnel{c.r, c.Conn}
	}
	p := newHTTP2Peer(c.Conn)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	head := []string{":method: CONNECT", ":protocol: websocket", ":scheme: http", ":authority: shop.test", ":path: /chat", "sec-websocket-version: 13"}
	if err := errors.Join(p.fr.WriteSettings(), p.headers(1, head, false)); err != nil {
		t.Fatal(err)
	}
	if status, err := p.head(); status != "200" || err != nil {
		t.Fatalf("handshake: %s, %v; want \"200\"", status, err)
	}
	return &http2Tunnel{http2Peer: p, stream: 1}
}

// head reads up to the next headers and returns their status.
func (p *http2Peer) head() (status string, err error) {
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return "", err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = p.fr.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status"), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// startTunnelUpstream starts an upstream that accepts every WebSocket handshake in an HTTP version.
// It sends its ends of the tunnels to ends and keeps them open until the test ends.
func startTunnelUpstream(t *testing.T, protocol string) (address string, ends <-chan tunnel) {
	accepted, done := make(chan tunnel, 1), t.Context().Done()
	return startTCPServer(t, func(c net.Conn) {
		var end tunnel
		if protocol == "Http1" {
			end = acceptHTTP1Tunnel(c)
		} else {
			end = acceptHTTP2Tunnel(c)
		}
		if end != nil {
			accepted <- end
			<-done
		}
	}), accepted
}

// acceptHTTP1Tunnel accepts a handshake over HTTP/1.1. It returns nil if there is none.
func acceptHTTP1Tunnel(c net.Conn) tunnel {
	r := bufio.NewReader(c)
	_, fields, err := http1Reader{r}.section(true)
	key := takeHeader(&fields, "sec-websocket-key")
	if err != nil || key == "" {
		return nil
	}
	accept := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_, err = io.WriteString(c, http1Text("HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Accept: "+
		base64.StdEncoding.EncodeToString(accept[:])+"\n\n"))
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(4 * waitTimeout)) // the next read reports an error
	return http1Tunnel{r, c}
}

// acceptHTTP2Tunnel accepts a handshake over HTTP/2. It returns nil if there is none.
func acceptHTTP2Tunnel(c net.Conn) tunnel {
	p := newHTTP2Peer(c)
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return nil
	}
	if p.fr.WriteSettings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1}) != nil {
		return nil
	}
	if _, err := p.head(); err != nil || p.headers(1, []string{":status: 200"}, false) != nil {
		return nil
	}
	return &http2Tunnel{http2Peer: p, stream: 1}
}

// TestTunnelClose verifies the close of tunnels through each pair of versions, and that the limit
// on request bodies does not apply to them.
func TestTunnelClose(t *testing.T) {
	t.Parallel()
	for _, down := range []string{"Http1", "Http2"} {
		for _, up := range []string{"Http1", "Http2"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				t.Parallel()
				for name, check := range map[string]func(t *testing.T, client, app tunnel){
					"half-close":                     checkHalfClose,
					"client disconnects":             func(t *testing.T, client, app tunnel) { checkClosePropagates(t, client, app) },
					"application disconnects":        func(t *testing.T, client, app tunnel) { checkClosePropagates(t, app, client) },
					"more bytes than a request body": checkBulkTransfer,
				} {
					t.Run(name, func(t *testing.T) {
						address, ends := startTunnelUpstream(t, up)
						front, log := freeAddress(), filepath.Join(t.TempDir(), "log")
						w := startWeft(t, setup{
							listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
								"downstream_protocol": down, "upstream_protocol": up, "router_config_name": "front",
								"extend_config": object{"max_request_body_size": "1KB"}}},
								object{"access_logs": list{object{"log_path": log, "log_format": "%method% %path% %response_code%"}}})},
							tables:   list{routeTable("front", routeTo("/", "app", object{"timeout": "5s"}))},
							clusters: list{cluster("app", nil, address)},
						}.config())
						client := openTunnel(t, front, down)
						check(t, client, <-ends)
						eventually(t, "the tunnel has ended", func() bool { return w.metric("weft_listener_requests_total") == 1 })
						w.signal(sigterm)
						w.awaitExit(waitTimeout)
						if got, want := rotatedLines(t, log)[0], []string{"GET /chat 101"}; !slices.Equal(got, want) {
							t.Errorf("the access log has %q, want %q", got, want)
						}
					})
				}
			})
		}
	}
}

// checkPasses sends text from one end to the other.
func checkPasses(t *testing.T, from, to tunnel, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("sent %.20q, received %.20q, %v; want the same", text, got, err)
	}
}

// readToEnd reads to the end and returns its error. It fails the test if it reads bytes or times
// out.
func readToEnd(t *testing.T, end tunnel) error {
	t.Helper()
	rest, err := io.ReadAll(end)
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() || len(rest) > 0 {
		t.Errorf("got %q, %v, want EOF or a reset", rest, err)
	}
	return err
}

func checkHalfClose(t *testing.T, client, app tunnel) {
	checkPasses(t, client, app, "ping")
	checkPasses(t, app, client, "pong")
	if err := app.closeWrite(); err != nil {
		t.Fatal(err)
	}
	if err := readToEnd(t, client); err != nil {
		t.Errorf("after the half-close of the upstream, the client got %v, want EOF", err)
	}
	checkPasses(t, client, app, "after EOF")
	if err := client.closeWrite(); err != nil {
		t.Fatal(err)
	}
	if err := readToEnd(t, app); err != nil {
		t.Errorf("after the half-close of the client, the upstream got %v, want EOF", err)
	}
}

// checkClosePropagates closes one end and verifies that the other end closes.
func checkClosePropagates(t *testing.T, closing, other tunnel) {
	checkPasses(t, closing, other, "ping")
	if err := closing.abort(); err != nil {
		t.Fatal(err)
	}
	_ = readToEnd(t, other) // the error depends on the HTTP version
	_ = other.abort()       // the tunnel may be closed already
}

func checkBulkTransfer(t *testing.T, client, app tunnel) {
	for range 10 {
		checkPasses(t, client, app, strings.Repeat("much ", 1000))
	}
	checkHalfClose(t, client, app)
}
