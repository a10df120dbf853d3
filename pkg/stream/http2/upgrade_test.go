package http2

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// upgradeHandler upgrades every connection immediately, with the same request.
type upgradeHandler struct {
	upgrader   stream.Upgrader
	newUpgrade func() stream.Upgrade
}

func (h upgradeHandler) ServeConn(ctx context.Context, conn *network.Conn) error {
	return h.upgrader.Upgrade(conn, h.newUpgrade()).ServeConn(ctx, conn)
}

// dialUpgraded connects to r's engine as a client that has just received 101 in response to the
// HTTP/1.1 request that newUpgrade returns. If preface is set, the client sends its preface and
// settings immediately.
func (r *rig) dialUpgraded(newUpgrade func() stream.Upgrade, change func(o *stream.ServerOptions), service protocol.Service, preface bool) *peer {
	r.t.Helper()
	o := stream.ServerOptions{
		Service: service, Observe: r.observe, Log: slog.New(slog.DiscardHandler),
		HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options(),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := upgradeHandler{newServer(r.engine, o), newUpgrade}
	ln, err := network.Listen(ctx, network.ListenOptions{Name: "upgraded", Network: "tcp", Address: "127.0.0.1:0"}, server)
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = ln.Serve(ctx) // returns after Drain
	}()
	r.t.Cleanup(func() {
		drainCtx, cancelDrain := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancelDrain()
		ln.Drain(drainCtx)
		cancel()
		<-done
	})
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	p := newPeer(r.t, conn)
	if preface {
		_, err := io.WriteString(conn, syntax.Preface)
		p.must(err)
		p.must(p.fr.WriteSettings())
	}
	return p
}

// encodeSettings encodes a SETTINGS payload as the value of HTTP2-Settings.
func encodeSettings(settings ...syntax.Setting) string {
	frame := syntax.AppendSettings(nil, settings...)
	return base64.RawURLEncoding.EncodeToString(frame[syntax.FrameHeaderLen:])
}

// newUpgradeRequest returns a function that creates an HTTP/1.1 request with Upgrade: h2c.
func newUpgradeRequest(method, body, settings string) func() stream.Upgrade {
	return func() stream.Upgrade {
		var x protocol.Exchange
		x.Reset()
		x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = method, "http", "shop.test", "/a"
		x.Request.Header.Add("X-One", "1")
		if body != "" {
			x.Request.ContentLength = int64(len(body))
		}
		x.Meta.Version, x.Meta.Start = "HTTP/1.1", time.Now()
		return stream.Upgrade{Request: &x.Request, Meta: &x.Meta, Body: []byte(body), Settings: settings, AcceptsTrailers: true}
	}
}

// describingService responds with a description of the request.
var describingService = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
	r := &x.Request
	var content []byte
	if r.Body != nil {
		var err error
		if content, err = io.ReadAll(r.Body); err != nil {
			return err
		}
	}
	parts := []string{r.Method, r.Scheme, r.Authority, r.Path, r.Header.Get("x-one"), string(content), x.Meta.Protocol, x.Meta.Version}
	x.LocalReply(200, "text/plain", strings.Join(parts, " "))
	return nil
})

// nextWithoutAck is like next, but does not acknowledge SETTINGS: the client has not sent its
// preface.
func (p *peer) nextWithoutAck() http2.Frame {
	p.t.Helper()
	for {
		_ = p.conn.SetReadDeadline(time.Now().Add(eventTimeout)) // fails only on a closed connection
		f, err := p.fr.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.t.Fatal("timeout waiting for a frame")
		}
		if err != nil {
			return nil
		}
		switch f.(type) {
		case *http2.SettingsFrame, *http2.WindowUpdateFrame:
		default:
			return f
		}
	}
}

// readBody reads the DATA of a stream to its end.
func (p *peer) readBody(id uint32) string {
	p.t.Helper()
	var body strings.Builder
	for {
		switch f := p.next().(type) {
		case nil:
			p.t.Fatalf("the connection ended before stream %d; it had %q", id, body.String())
		case *http2.DataFrame:
			body.Write(f.Data())
			if f.StreamEnded() {
				return body.String()
			}
		}
	}
}

func TestUpgradeRequestIsStream1(t *testing.T) { // RFC 7540 3.2
	for name, test := range map[string]struct{ method, content, want string }{
		"without body": {"GET", "", "GET http shop.test /a 1  Http2 HTTP/1.1"},
		"with body":    {"POST", "hello", "POST http shop.test /a 1 hello Http2 HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, describingService, nil)
			p := r.dialUpgraded(newUpgradeRequest(test.method, test.content, encodeSettings()), nil, describingService, true)
			if fields := p.awaitFields(1); fields[":status"] != "200" {
				t.Errorf("the head on stream 1 is %v, want 200", fields)
			}
			if got := p.readBody(1); got != test.want {
				t.Errorf("the service got %q, want %q", got, test.want)
			}
			if o := r.awaitRecord(); o.reason != protocol.ReasonNone || o.in != int64(len(test.content)) || o.out != int64(len(test.want)) {
				t.Errorf("recorded: %+v, want %d bytes in and %d out", o, len(test.content), len(test.want))
			}
			p.request(3, true, ":path", "/b")
			p.awaitFields(3)
			if got, want := p.readBody(3), "GET http shop.test /b   Http2 HTTP/2.0"; got != want {
				t.Errorf("stream 3: the service got %q, want %q", got, want)
			}
		})
	}
}

func TestUpgradeSettingsApply(t *testing.T) { // RFC 7540 3.2.1
	r := newRig(t, describingService, nil)
	p := r.dialUpgraded(newUpgradeRequest("GET", "", encodeSettings(syntax.Setting{ID: syntax.SettingInitialWindowSize, Value: 5})), nil, describingService, false)
	if h, ok := p.nextWithoutAck().(*http2.MetaHeadersFrame); !ok || h.StreamID != 1 {
		t.Fatalf("the first frame is %v, want the head on stream 1", h)
	}
	f, ok := p.nextWithoutAck().(*http2.DataFrame)
	if !ok || string(f.Data()) != "GET h" || f.StreamEnded() {
		t.Fatalf("the frame after the head is %v, want 5 bytes of DATA", f)
	}
	_, err := io.WriteString(p.conn, syntax.Preface)
	p.must(err)
	p.must(p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}))
	if got, want := p.readBody(1), "ttp shop.test /a 1  Http2 HTTP/1.1"; got != want {
		t.Errorf("remaining body %q, want %q", got, want)
	}
}

func TestUpgradeStreamIsHalfClosedRemote(t *testing.T) { // RFC 9113 5.1: half-closed (remote)
	h := newHeldService()
	r := newRig(t, h, nil)
	p := r.dialUpgraded(newUpgradeRequest("GET", "", encodeSettings()), nil, h, true)
	<-h.started
	p.must(p.fr.WriteData(1, true, []byte("more")))
	if code := p.awaitReset(1); code != http2.ErrCodeStreamClosed {
		t.Errorf("DATA on stream 1: reset with %v, want STREAM_CLOSED", code)
	}
	awaitClosed(t, h.disconnected, "OnDisconnect callback")
}

func TestUpgradeWithoutPrefaceTimesOut(t *testing.T) {
	r := newRig(t, describingService, nil)
	p := r.dialUpgraded(newUpgradeRequest("GET", "", encodeSettings()), func(o *stream.ServerOptions) { o.HTTP1.BodyTimeout = 20 * time.Millisecond }, describingService, false)
	var got []string
	for f := p.nextWithoutAck(); f != nil; f = p.nextWithoutAck() {
		got = append(got, f.Header().Type.String())
	}
	if want := []string{"HEADERS", "DATA", "GOAWAY"}; !slices.Equal(got, want) {
		t.Errorf("the client received %v before EOF, want %v", got, want)
	}
}

func TestInvalidUpgradeSettingsAreRejected(t *testing.T) {
	for name, value := range map[string]string{
		"invalid base64url":  "AAMA/ABk",
		"trailing bits":      "AAMAAABkAB",
		"partial setting":    "AAMAAA",
		"value out of range": encodeSettings(syntax.Setting{ID: syntax.SettingMaxFrameSize, Value: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, describingService, nil)
			o := stream.ServerOptions{Service: describingService, HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options()}
			server, client := net.Pipe()
			defer client.Close()
			conn := network.NewConn(server)
			defer conn.Close()
			if h := newServer(r.engine, o).Upgrade(conn, newUpgradeRequest("GET", "", value)()); h != nil {
				t.Errorf("HTTP2-Settings %q was accepted", value)
			}
		})
	}
}
