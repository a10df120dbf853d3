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

// rig is an engine with a listener that serves a service of the test.
type rig struct {
	t       testing.TB
	engine  *Engine
	codec   codec.Codec
	options config.RPCOptions
	address string
	ln      *network.Listener
	ended   chan struct{}

	deaf     atomic.Bool // observations are dropped
	reads    atomic.Bool // Enter asks the engine to read requests that do not start
	mu       sync.Mutex
	observed []observation
}

// observation is the record of an exchange.
type observation struct {
	reason protocol.Reason
	code   int
	detail string
	path   string
}

func newRig(t testing.TB, service protocol.Service, change func(o *stream.ServerOptions)) *rig {
	t.Helper()
	return newRigOf(t, toyCodec{}, service, change)
}

func newRigOf(t testing.TB, c codec.Codec, service protocol.Service, change func(o *stream.ServerOptions)) *rig {
	t.Helper()
	return newRigOn(t, c, service, change, func(*Engine) {})
}

// newRigOn is newRigOf that calls prepare with the engine before it serves.
func newRigOn(t testing.TB, c codec.Codec, service protocol.Service, change func(o *stream.ServerOptions), prepare func(e *Engine)) *rig {
	t.Helper()
	before := buffer.Outstanding()
	engine := New(slog.New(slog.DiscardHandler))
	prepare(engine)
	r := &rig{t: t, engine: engine, codec: c, options: config.DefaultRPCOptions(), ended: make(chan struct{})}
	o := stream.ServerOptions{
		Listener: "test", Service: service, RPC: r.options, Log: slog.New(slog.DiscardHandler),
		Observe: r.observe, NewBatchObserver: func() stream.BatchObserver { return &batchRecorder{rig: r} },
	}
	if change != nil {
		change(&o)
	}
	server := engine.Protocol(c).NewServer(o)
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	r.ln, err = network.Listen(ctx, network.ListenOptions{Name: "test", Network: "tcp", Address: "127.0.0.1:0"}, server)
	if err != nil {
		t.Fatal(err)
	}
	r.address = r.ln.Addr().String()
	go func() {
		defer close(r.ended)
		_ = r.ln.Serve(ctx) // returns after Drain
	}()
	t.Cleanup(func() {
		stop, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer done()
		r.ln.Drain(stop)
		cancel()
		<-r.ended
		engine.Close()
		if left := buffer.Outstanding(); invariants.Enabled && left != before {
			t.Errorf("%d buffers are in use, %d before the test", left, before)
		}
	})
	return r
}

func (r *rig) observe(x *protocol.Exchange) {
	t := batchRecorder{rig: r}
	t.Observe(x)
	t.Flush()
}

// batchRecorder is a BatchObserver that passes observations to the rig only in Flush. So tests can
// detect whether Flush ran before the response was sent.
type batchRecorder struct {
	rig  *rig
	seen []observation
}

func (t *batchRecorder) Enter(*protocol.Exchange) (readsRequest bool) { return t.rig.reads.Load() }

func (t *batchRecorder) Observe(x *protocol.Exchange) {
	if !t.rig.deaf.Load() {
		t.seen = append(t.seen, observation{x.Record.Reason, x.Response.Code, x.Record.Detail, strings.Clone(x.Request.Path)})
	}
}

func (t *batchRecorder) Flush() {
	t.rig.mu.Lock()
	defer t.rig.mu.Unlock()
	t.rig.observed = append(t.rig.observed, t.seen...)
	t.seen = t.seen[:0]
}

// client opens an upstream connection of the engine to address.
func (r *rig) client(address string, change func(o *stream.UpstreamConnOptions)) *UpstreamConn {
	r.t.Helper()
	conn, err := network.Dialer{}.Dial(context.Background(), "tcp", address, time.Now().Add(5*time.Second))
	if err != nil {
		r.t.Fatal(err)
	}
	o := stream.UpstreamConnOptions{RPC: r.options, OnRelease: func(bool) {}}
	if change != nil {
		change(&o)
	}
	u := newUpstreamConn(r.engine, toyCodec{}, conn, o)
	r.t.Cleanup(func() { _ = u.Close() })
	return u
}

// peer is the test's end of a connection. It reads and writes frames.
type peer struct {
	t    testing.TB
	conn net.Conn
	buf  []byte
}

func (r *rig) dial() *peer {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return &peer{t: r.t, conn: conn}
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
		more := make([]byte, 64<<10)
		n, err := p.conn.Read(more)
		p.buf = append(p.buf, more[:n]...)
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
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(&peer{t: t, conn: conn})
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
	return ln.Addr().String()
}

// requestFrame returns a request frame.
func requestFrame(id uint64, text string) []byte {
	b := appendToy(nil, codec.Request, 0, 0, "svc echo\x00"+text)
	toyCodec{}.SetID(b, id)
	return b
}

// responseFrame returns the response frame to a request frame.
func responseFrame(request codec.Frame, text string) []byte {
	b := appendToy(nil, codec.Response, 0, 0, text)
	toyCodec{}.SetID(b, request.ID)
	return b
}
