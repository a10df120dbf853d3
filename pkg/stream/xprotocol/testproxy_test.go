package xprotocol

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// testProxy is an engine with a listener that serves a service of the test.
type testProxy struct {
	t       testing.TB
	engine  *Engine
	codec   codec.Codec
	options config.RPCOptions
	address string
	ln      *network.Listener
	served  chan struct{} // closed when Serve has returned

	dropObservations atomic.Bool
	readsUnstarted   atomic.Bool // the result of batchRecorder.BindConfig
	mu               sync.Mutex
	observed         []observation
}

// observation is the record of an exchange.
type observation struct {
	reason protocol.Reason
	code   int
	detail string
	path   string
}

func newTestProxy(t testing.TB, service protocol.Service, change func(o *stream.ServerOptions)) *testProxy {
	t.Helper()
	return newTestProxyWithCodec(t, toyCodec{}, service, change)
}

func newTestProxyWithCodec(t testing.TB, c codec.Codec, service protocol.Service, change func(o *stream.ServerOptions)) *testProxy {
	t.Helper()
	return newTestProxyWithEngine(t, c, service, change, func(*Engine) {})
}

// newTestProxyWithEngine is like newTestProxyWithCodec, and calls prepare with the engine before
// the listener serves.
func newTestProxyWithEngine(t testing.TB, c codec.Codec, service protocol.Service, change func(o *stream.ServerOptions), prepare func(e *Engine)) *testProxy {
	t.Helper()
	before := buffer.Outstanding()
	engine := New(slog.New(slog.DiscardHandler))
	prepare(engine)
	p := &testProxy{t: t, engine: engine, codec: c, options: config.DefaultRPCOptions(), served: make(chan struct{})}
	o := stream.ServerOptions{
		Listener: "test", Service: service, RPC: p.options, Log: slog.New(slog.DiscardHandler),
		Observe: p.observe, NewBatchObserver: func() stream.BatchObserver { return &batchRecorder{proxy: p} },
	}
	if change != nil {
		change(&o)
	}
	server := engine.Protocol(c).NewServer(o)
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	p.ln, err = network.Listen(ctx, network.ListenOptions{Name: "test", Network: "tcp", Address: "127.0.0.1:0"}, server)
	if err != nil {
		t.Fatal(err)
	}
	p.address = p.ln.Addr().String()
	go func() {
		defer close(p.served)
		_ = p.ln.Serve(ctx) // returns after Drain
	}()
	t.Cleanup(func() {
		drainCtx, cancelDrain := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancelDrain()
		p.ln.Drain(drainCtx)
		cancel()
		<-p.served
		engine.Close()
		if outstanding := buffer.Outstanding(); invariants.Enabled && outstanding != before {
			t.Errorf("%d buffers are in use, want %d as before the test", outstanding, before)
		}
	})
	return p
}

func (p *testProxy) observe(x *protocol.Exchange) {
	b := batchRecorder{proxy: p}
	b.Observe(x)
	b.Flush()
}

// batchRecorder is a BatchObserver that passes observations to the proxy only in Flush. So tests
// can detect whether Flush ran before the response was sent.
type batchRecorder struct {
	proxy *testProxy
	seen  []observation
}

func (b *batchRecorder) BindConfig(*protocol.Exchange) (readsRequest bool) {
	return b.proxy.readsUnstarted.Load()
}

func (b *batchRecorder) Observe(x *protocol.Exchange) {
	if !b.proxy.dropObservations.Load() {
		b.seen = append(b.seen, observation{x.Record.Reason, x.Response.Code, x.Record.Detail, strings.Clone(x.Request.Path)})
	}
}

func (b *batchRecorder) Flush() {
	b.proxy.mu.Lock()
	defer b.proxy.mu.Unlock()
	b.proxy.observed = append(b.proxy.observed, b.seen...)
	b.seen = b.seen[:0]
}

// client opens an upstream connection of the engine to address.
func (p *testProxy) client(address string, change func(o *stream.UpstreamConnOptions)) *UpstreamConn {
	p.t.Helper()
	conn, err := network.Dialer{}.Dial(context.Background(), "tcp", address, time.Now().Add(5*time.Second))
	if err != nil {
		p.t.Fatal(err)
	}
	o := stream.UpstreamConnOptions{RPC: p.options, OnRelease: func(bool) {}}
	if change != nil {
		change(&o)
	}
	u := newUpstreamConn(p.engine, toyCodec{}, conn, o)
	p.t.Cleanup(func() { _ = u.Close() })
	return u
}

// peer is the test's end of a connection. It reads and writes frames.
type peer struct {
	t    testing.TB
	conn net.Conn
	buf  []byte
}

func (p *testProxy) dial() *peer {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return &peer{t: p.t, conn: conn}
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next frame, or nil at the end of the connection or after a timeout.
func (p *peer) read() (codec.Frame, []byte) {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		head, err := toyCodec{}.ParseFrame(p.buf)
		if err != nil {
			p.t.Fatal(err)
		}
		if head.Size > 0 && len(p.buf) >= head.Size {
			frame := p.buf[:head.Size:head.Size]
			p.buf = p.buf[head.Size:]
			return head, frame
		}
		chunk := make([]byte, 64<<10)
		n, err := p.conn.Read(chunk)
		p.buf = append(p.buf, chunk[:n]...)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				p.t.Error("timeout waiting for a frame")
			}
			return codec.Frame{}, nil
		}
	}
}

// startHost starts a server that runs serve for each connection, and returns its address.
func startHost(t testing.TB, serve func(p *peer)) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(&peer{t: t, conn: conn})
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

func requestFrame(id uint64, text string) []byte {
	b := appendToy(nil, codec.Request, 0, 0, "svc echo\x00"+text)
	toyCodec{}.SetID(b, id)
	return b
}

func responseFrame(request codec.Frame, text string) []byte {
	b := appendToy(nil, codec.Response, 0, 0, text)
	toyCodec{}.SetID(b, request.ID)
	return b
}
