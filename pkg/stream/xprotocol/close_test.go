package xprotocol

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestCloseSendsOneWayRequest verifies that a one-way request is sent although the pool closes the
// connection in OnRelease.
func TestCloseSendsOneWayRequest(t *testing.T) {
	inBothModes(t, testCloseSendsOneWayRequest)
}

func testCloseSendsOneWayRequest(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	got := make(chan codec.Frame, 3)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		for {
			head, frame := p.read()
			if frame == nil {
				close(got)
				return
			}
			got <- head
		}
	}), func(o *stream.UpstreamConnOptions) {
		o.OnRelease = func(bool) { _ = upstream.client.Load().Close() }
	}))
	p := proxy.dial()
	p.write(appendToy(nil, codec.OneWay, 0, 0, "svc notify\x00x"))
	if head, ok := <-got; !ok || head.Kind != codec.OneWay {
		t.Errorf("the host got %v, %v, want the request", head, ok)
	}
}

// TestCloseSendsOneWayRequestToSlowHost verifies that a one-way request is sent completely to a
// host that reads nothing until the pool has called Close.
func TestCloseSendsOneWayRequestToSlowHost(t *testing.T) {
	inBothModes(t, testCloseSendsOneWayRequestToSlowHost)
}

func testCloseSendsOneWayRequestToSlowHost(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	closed, got := make(chan struct{}), make(chan int, 1)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		<-closed
		_, frame := p.read()
		got <- len(frame)
	}), func(o *stream.UpstreamConnOptions) {
		o.OnRelease = func(bool) {
			_ = upstream.client.Load().Close()
			close(closed)
		}
		o.RPC.HeartbeatInterval = 0 // on a busy machine, the request may take longer to arrive
	}))
	sent := appendToy(nil, codec.OneWay, 0, 0, "svc notify\x00"+strings.Repeat("x", 7<<20)) // more than sockets hold
	p := proxy.dial()
	p.write(sent)
	if n := <-got; n != len(sent) {
		t.Errorf("the host got %d bytes, want %d", n, len(sent))
	}
}

// TestAbortError verifies that a connection that ends because the reader could not send a response
// ends with the reason, and not with the interruption of the read.
func TestAbortError(t *testing.T) {
	engine := New(slog.New(slog.DiscardHandler))
	defer engine.Close()
	local, peer := net.Pipe()
	defer peer.Close()
	conn := network.NewConn(local)
	defer conn.Close()
	go func() {
		_, _ = peer.Write(requestFrame(1, ""))
		_, _ = io.Copy(io.Discard, peer) // until the connection ends
	}()
	service := protocol.ServiceFunc(func(context.Context, *protocol.Exchange) error {
		return protocol.Faultf(protocol.ReasonNoRoute, "no route")
	})
	err := newServer(engine, errorPanicCodec{}, stream.ServerOptions{Service: service}).ServeConn(t.Context(), conn)
	if protocol.PanicIn(err) == nil || conn.CloseReason != network.ClosedInternalError {
		t.Errorf("ServeConn = %v, close reason %v; want the panic of the codec, %v", err, conn.CloseReason, network.ClosedInternalError)
	}
}

// brokenConn is a connection whose reads return bytes and then err.
type brokenConn struct {
	net.Conn
	bytes io.Reader
	err   error
}

func (c brokenConn) Read(p []byte) (int, error) {
	if n, _ := c.bytes.Read(p); n > 0 {
		return n, nil
	}
	return 0, c.err
}

func TestCloseReason(t *testing.T) {
	errReset := errors.New("connection reset by peer")
	for _, tt := range []struct {
		name, bytes string
		readErr     error
		wantErr     bool
		want        network.CloseReason
	}{
		{"a client closes between two frames", "", io.EOF, false, network.ClosedByPeer},
		{"a client closes within a frame", "T", io.EOF, true, network.ClosedByPeer},
		{"a client resets the connection", "", errReset, true, network.ClosedByPeer},
		{"a frame is malformed", "x", io.EOF, true, network.ClosedProtocolError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			engine := New(slog.New(slog.DiscardHandler))
			defer engine.Close()
			local, peer := net.Pipe()
			defer peer.Close()
			conn := network.NewConn(brokenConn{local, strings.NewReader(tt.bytes), tt.readErr})
			defer conn.Close()
			err := newServer(engine, toyCodec{}, stream.ServerOptions{}).ServeConn(t.Context(), conn)
			if (err != nil) != tt.wantErr || conn.CloseReason != tt.want {
				t.Errorf("ServeConn = %v, close reason %v; want an error: %t, %v", err, conn.CloseReason, tt.wantErr, tt.want)
			}
		})
	}
}
