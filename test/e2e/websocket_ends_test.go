package e2e

import (
	"bufio"
	"crypto/sha1" // RFC 6455 names it
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

// socket is one end of a tunnel in either HTTP version, after the handshake.
type socket interface {
	io.ReadWriter
	// end closes the sending direction.
	end() error
	// leave closes both directions immediately.
	leave() error
}

// socket1 is a tunnel in HTTP/1.1: the rest of a connection.
type socket1 struct {
	*bufio.Reader
	net.Conn
}

func (s socket1) Read(p []byte) (int, error) { return s.Reader.Read(p) }

func (s socket1) end() error { return s.Conn.(*net.TCPConn).CloseWrite() }

func (s socket1) leave() error {
	return errors.Join(s.Conn.(*net.TCPConn).SetLinger(0), s.Conn.Close()) // a reset
}

// socket2 is a tunnel in HTTP/2: a stream.
type socket2 struct {
	*peer2
	stream uint32
	unread []byte
	ended  error
}

func (s *socket2) Read(p []byte) (int, error) {
	for len(s.unread) == 0 && s.ended == nil {
		f, err := s.fr.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			s.unread = slices.Clone(f.Data())
			if f.StreamEnded() {
				s.ended = io.EOF
			}
		case *http2.RSTStreamFrame:
			s.ended = http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode}
		}
	}
	if len(s.unread) == 0 {
		return 0, s.ended
	}
	n := copy(p, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

func (s *socket2) Write(p []byte) (int, error) { return len(p), s.fr.WriteData(s.stream, false, p) }

func (s *socket2) end() error { return s.fr.WriteData(s.stream, true, nil) }

func (s *socket2) leave() error { return s.fr.WriteRSTStream(s.stream, http2.ErrCodeCancel) }

// open opens a tunnel to Weft in an HTTP version.
func open(t *testing.T, address, protocol string) socket {
	t.Helper()
	c := dial(t, address)
	if protocol == "Http1" {
		c.send("GET /chat HTTP/1.1\nHost: shop.test\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n")
		line, fields, err := reader1{c.r}.section(true)
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 101 ") || take(&fields, "sec-websocket-accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
			t.Fatalf("the handshake: %s %q, %v", line, fields, err)
		}
		return socket1{c.r, c.Conn}
	}
	p := newPeer2(c.Conn)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	head := []string{":method: CONNECT", ":protocol: websocket", ":scheme: http", ":authority: shop.test", ":path: /chat", "sec-websocket-version: 13"}
	if err := errors.Join(p.fr.WriteSettings(), p.headers(1, head, false)); err != nil {
		t.Fatal(err)
	}
	if status, err := p.head(); status != "200" || err != nil {
		t.Fatalf("the handshake: %s, %v", status, err)
	}
	return &socket2{peer2: p, stream: 1}
}

// head reads up to the next headers and returns their status.
func (p *peer2) head() (status string, err error) {
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

// chat starts an upstream that accepts every WebSocket handshake in an HTTP version. It sends its
// ends of the tunnels to ends and keeps them open until the test ends.
func chat(t *testing.T, protocol string) (address string, ends <-chan socket) {
	taken, over := make(chan socket, 1), t.Context().Done()
	return accept(t, func(c net.Conn) {
		var s socket
		if protocol == "Http1" {
			s = taken1(c)
		} else {
			s = taken2(c)
		}
		if s != nil {
			taken <- s
			<-over
		}
	}), taken
}

// taken1 accepts a handshake over HTTP/1.1. It returns nil if there is none.
func taken1(c net.Conn) socket {
	r := bufio.NewReader(c)
	_, fields, err := reader1{r}.section(true)
	key := take(&fields, "sec-websocket-key")
	if err != nil || key == "" {
		return nil
	}
	proof := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_, err = io.WriteString(c, ofHTTP1("HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Accept: "+
		base64.StdEncoding.EncodeToString(proof[:])+"\n\n"))
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(4 * patience)) // the next read reports an error
	return socket1{r, c}
}

// taken2 accepts a handshake over HTTP/2. It returns nil if there is none.
func taken2(c net.Conn) socket {
	p := newPeer2(c)
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return nil
	}
	if p.fr.WriteSettings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1}) != nil {
		return nil
	}
	if _, err := p.head(); err != nil || p.headers(1, []string{":status: 200"}, false) != nil {
		return nil
	}
	return &socket2{peer2: p, stream: 1}
}

// TestTunnelsEndAsTheirEndsDo verifies the close of tunnels through each pair of versions, and that
// the limit on request bodies does not apply to them.
func TestTunnelsEndAsTheirEndsDo(t *testing.T) {
	t.Parallel()
	for _, down := range []string{"Http1", "Http2"} {
		for _, up := range []string{"Http1", "Http2"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				t.Parallel()
				for name, scene := range map[string]func(t *testing.T, caller, app socket){
					"each direction by itself":              endsApart,
					"with a caller that leaves":             func(t *testing.T, caller, app socket) { endsWith(t, caller, app) },
					"with an application that leaves":       func(t *testing.T, caller, app socket) { endsWith(t, app, caller) },
					"after more bytes than a request's are": carriesMuch,
				} {
					t.Run(name, func(t *testing.T) {
						address, ends := chat(t, up)
						front, log := free(), filepath.Join(t.TempDir(), "log")
						w := run(t, setup{
							listeners: list{chained("front", front, object{"type": "proxy", "config": object{
								"downstream_protocol": down, "upstream_protocol": up, "router_config_name": "front",
								"extend_config": object{"max_request_body_size": "1KB"}}},
								object{"access_logs": list{object{"log_path": log, "log_format": "%method% %path% %response_code%"}}})},
							tables:   list{table("front", to("/", "app", object{"timeout": "5s"}))},
							clusters: list{cluster("app", nil, address)},
						}.config())
						caller := open(t, front, down)
						scene(t, caller, <-ends)
						eventually(t, "the tunnel is over", func() bool { return w.metric("weft_listener_requests_total") == 1 })
						w.signal(sigterm)
						w.awaitExit(patience)
						if got, want := linesOf(t, log)[0], []string{"GET /chat 101"}; !slices.Equal(got, want) {
							t.Errorf("the access log has %q, want %q", got, want)
						}
					})
				}
			})
		}
	}
}

// passes sends text from one end to the other.
func passes(t *testing.T, from, to socket, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("of %.20q came %.20q, %v", text, got, err)
	}
}

// endsIn reads to the end and returns its error. Neither more bytes nor a timeout may come first.
func endsIn(t *testing.T, s socket) error {
	t.Helper()
	rest, err := io.ReadAll(s)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() || len(rest) > 0 {
		t.Errorf("there is no end, but %q, %v", rest, err)
	}
	return err
}

func endsApart(t *testing.T, caller, app socket) {
	passes(t, caller, app, "ping")
	passes(t, app, caller, "pong")
	if err := app.end(); err != nil {
		t.Fatal(err)
	}
	if err := endsIn(t, caller); err != nil {
		t.Errorf("the application's end came as %v", err)
	}
	passes(t, caller, app, "last words")
	if err := caller.end(); err != nil {
		t.Fatal(err)
	}
	if err := endsIn(t, app); err != nil {
		t.Errorf("the caller's end came as %v", err)
	}
}

// endsWith closes one end and verifies that the other end notices it.
func endsWith(t *testing.T, leaves, stays socket) {
	passes(t, leaves, stays, "ping")
	if err := leaves.leave(); err != nil {
		t.Fatal(err)
	}
	_ = endsIn(t, stays) // how it ends depends on the version
	_ = stays.leave()    // it may be closed
}

func carriesMuch(t *testing.T, caller, app socket) {
	for range 10 {
		passes(t, caller, app, strings.Repeat("much ", 1000))
	}
	endsApart(t, caller, app)
}
