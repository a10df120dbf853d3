package http2

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// startEchoHost starts a host that accepts every tunnel and echoes its bytes, and returns its
// address.
func startEchoHost(t *testing.T) string {
	return startHost(t, func(p *peer) {
		for {
			switch f := p.next().(type) {
			case nil:
				return
			case *http2.MetaHeadersFrame:
				p.headers(f.StreamID, false, ":status", "200")
			case *http2.DataFrame:
				p.must(p.fr.WriteData(f.StreamID, f.StreamEnded(), f.Data()))
			}
		}
	}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
}

// checkEcho sends text through a tunnel whose other side echoes it.
func checkEcho(t *testing.T, tunnel protocol.Tunnel, text string) {
	t.Helper()
	if _, err := io.WriteString(tunnel, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(tunnel, got); err != nil || string(got) != text {
		t.Fatalf("sent %q, received %q, %v; want the same", text, got, err)
	}
}

// TestClosedTunnelDoesNotAffectNext verifies that methods of a closed tunnel fail, although its
// call may belong to another exchange by then.
func TestClosedTunnelDoesNotAffectNext(t *testing.T) {
	r := newRig(t, nil, nil)
	u := r.dialUpstream(startEchoHost(t), nil)
	for range 20 {
		x, err := openWebSocket(u, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		closed := x.Response.Tunnel
		checkEcho(t, closed, "first")
		x.ResetResponse()
		next, err := openWebSocket(u, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if err := closed.Close(); err != nil {
			t.Errorf("the second Close = %v, want nil", err)
		}
		if n, err := closed.Write([]byte("stray")); n != 0 || err == nil {
			t.Errorf("Write after Close = %d, %v; want 0 and an error", n, err)
		}
		if err := closed.CloseWrite(); err == nil {
			t.Error("CloseWrite after Close = nil")
		}
		if n, err := closed.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("Read after Close = %d, %v; want 0 and an error", n, err)
		}
		checkEcho(t, next.Response.Tunnel, "second")
		next.ResetResponse()
	}
}

// TestTunnelCloseUnblocksRead verifies that closing a tunnel unblocks a concurrent Read, and that
// the call is released exactly once.
func TestTunnelCloseUnblocksRead(t *testing.T) {
	r := newRig(t, nil, nil)
	released := make(chan struct{}, 10)
	u := r.dialUpstream(startEchoHost(t), func(o *stream.UpstreamConnOptions) { o.OnRelease = func(bool) { released <- struct{}{} } })
	for range 20 {
		x, err := openWebSocket(u, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		tunnel := x.Response.Tunnel
		checkEcho(t, tunnel, "text")
		readErr := make(chan error)
		go func() {
			_, err := tunnel.Read(make([]byte, 1))
			readErr <- err
		}()
		_ = tunnel.Close()
		if err := <-readErr; err == nil {
			t.Error("Read of a closed tunnel returned no error")
		}
		awaitClosed(t, released, "OnRelease")
		x.ResetResponse()
	}
	if n := len(released); n > 0 {
		t.Errorf("OnRelease was called %d more times than Start, want 0", n)
	}
}

func TestTunnelReadDeadline(t *testing.T) {
	r := newRig(t, nil, nil)
	x, err := openWebSocket(r.dialUpstream(startEchoHost(t), nil), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.ResetResponse()
	tunnel := x.Response.Tunnel
	deadliner, ok := tunnel.(interface{ SetReadDeadline(at time.Time) })
	if !ok {
		t.Fatal("the tunnel has no SetReadDeadline, which the idle timeout of Relay needs")
	}
	deadliner.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := tunnel.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %d, %v; want 0, %v", n, err, os.ErrDeadlineExceeded)
	}
	deadliner.SetReadDeadline(time.Time{})
	checkEcho(t, tunnel, "later")
}

// silentTunnel is an upstream tunnel whose host never sends a byte.
type silentTunnel struct {
	writeClosed, closed chan struct{}
	once                sync.Once
}

func (t *silentTunnel) Read([]byte) (int, error) {
	<-t.closed
	return 0, io.ErrClosedPipe
}

func (t *silentTunnel) Write(p []byte) (int, error) { return len(p), nil }

func (t *silentTunnel) CloseWrite() error {
	close(t.writeClosed)
	return nil
}

func (t *silentTunnel) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// TestDisconnectAfterHalfCloseEndsTunnel verifies that a tunnel ends if its client disconnects
// after it has ended its direction, although the engine no longer reads from that client and the
// host sends nothing.
func TestDisconnectAfterHalfCloseEndsTunnel(t *testing.T) {
	for name, disconnect := range map[string]func(p *peer){
		"reset": func(p *peer) { p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel)) },
		"close": func(p *peer) { _ = p.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			tunnel := &silentTunnel{writeClosed: make(chan struct{}), closed: make(chan struct{})}
			t.Cleanup(func() { _ = tunnel.Close() })
			r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				x.Response.Status, x.Response.Version, x.Response.Tunnel = 101, "HTTP/1.1", tunnel
				return nil
			}), nil)
			p := r.dial()
			p.request(1, false, ":method", "CONNECT", ":protocol", "websocket")
			if fields := p.awaitFields(1); fields[":status"] != "200" {
				t.Fatalf("response %v to CONNECT, want status 200", fields)
			}
			p.must(p.fr.WriteData(1, true, nil))
			awaitClosed(t, tunnel.writeClosed, "end of the client's direction")
			disconnect(p)
			awaitClosed(t, tunnel.closed, "close of the tunnel")
			r.awaitRecord()
		})
	}
}

// TestTunnelOfHTTPIsRejected verifies that tunnels of protocols that carry HTTP are rejected: their
// requests would bypass routes and filters.
func TestTunnelOfHTTPIsRejected(t *testing.T) {
	for _, name := range []string{"h2c", "h2", "http", "HTTP", "TLS"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				t.Errorf("the service got the upgrade %q, want no call", x.Request.Upgrade)
				return nil
			}), nil)
			p := r.dial()
			p.request(1, false, ":method", "CONNECT", ":protocol", name)
			if fields := p.awaitFields(1); fields[":status"] != "501" {
				t.Errorf("response %v to CONNECT, want 501", fields)
			}
		})
	}
}
