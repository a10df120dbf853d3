package xprotocol

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// maxUnstartedRead is the number of bytes after which a reader starts the requests in them, even if
// it can read more. The requests of a client that sends less and disconnects immediately need not
// start, so a flood of such clients is cheap.
const maxUnstartedRead = 1 << 20

// server is the downstream side for the connections of one listener.
type server struct {
	engine  *Engine
	codec   codec.Codec
	traits  *codec.Traits // of codec
	opts    stream.ServerOptions
	service protocol.Service // opts.Service
	yields  bool             // GOMAXPROCS is 1: see startAndFlush
}

func newServer(e *Engine, c codec.Codec, o stream.ServerOptions) *server {
	return &server{engine: e, codec: c, traits: c.Traits(), opts: o, service: o.Service, yields: runtime.GOMAXPROCS(0) == 1}
}

// IdleTimeout implements network.ClientFirstHandler.
func (s *server) IdleTimeout() time.Duration { return s.opts.IdleTimeout }

// ServeConn implements network.Handler.
func (s *server) ServeConn(ctx context.Context, conn *network.Conn) error {
	oneWayCtx := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &downstreamConn{server: s, conn: conn, ctx: ctx, oneWayCtx: oneWayCtx, meta: stream.NewConnMeta(s.opts.Listener, conn)}
	c.inflight.init(s.engine, s.opts.RPC.MaxInFlight)
	c.onWait = c.startAndFlush
	c.writeQueue = network.NewWriteQueue(conn, s.engine.goroutines.Start)
	c.writeQueue.SetLimit(s.opts.RPC.MaxPendingBytes)
	conn.SetWriteTimeout(s.opts.RPC.WriteTimeout)
	err := c.serve()
	if errors.Is(err, network.ErrPark) {
		stream.SetReadTimeout(conn, s.opts.IdleTimeout)
	} else {
		conn.CloseReason, err = stream.CloseReasonOf(err, c.in.hasPartialFrame())
	}
	c.close(cancel)
	return err
}

// downstreamConn is a client's connection. Its reader goroutine owns the fields unless a comment
// says otherwise.
type downstreamConn struct {
	server     *server
	conn       *network.Conn
	ctx        context.Context //nolint:containedctx // for requests; canceled when the connection ends
	oneWayCtx  context.Context //nolint:containedctx // for one-way requests, which outlive the connection
	meta       protocol.ConnMeta
	writeQueue *network.WriteQueue

	in         input
	batch      batch
	onWait     func()                // startAndFlush as a func value, created once
	fullQueues []*network.WriteQueue // write queues at the high watermark
	unstarted  requestQueue          // requests that were read and have not started
	inflight   inflight              // its comments say which goroutines may call each method
	// maxInFlightReached: read stopped at MaxInFlight and left bytes in the input.
	maxInFlightReached bool

	abortErr error // the error with which the reader must end the connection; nil: none
	// goAwayAt is the time of the first sendGoAway; zero: not called yet. For some protocols
	// sendGoAway sends no frame: see Traits.OptInGoAway.
	goAwayAt  time.Time
	rejecting bool // requests that have not started are rejected, because the drain deadline is near
}

// serve calls run. It returns a recovered panic as an error, so that ServeConn closes the
// connection as after any other error.
func (c *downstreamConn) serve() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.engine.goroutines.LogPanic("reading requests", p)
			err = protocol.NewFault(protocol.Internal, protocol.NewPanic(p))
		}
	}()
	return c.run()
}

// run reads frames and handles them until the connection has to end or be parked.
func (c *downstreamConn) run() error {
	for {
		if c.conn.Draining() {
			c.sendGoAway()
		}
		if c.conn.DrainExpiring() {
			return c.rejectAndClose()
		}
		if !c.flushAndAwaitCapacity() {
			return io.EOF
		}
		if c.abortErr != nil {
			return c.abortErr
		}
		err := error(nil)
		if !c.maxInFlightReached {
			err = c.fill()
		}
		if err == nil {
			err = c.read()
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.handleReadTimeout()
		}
		switch {
		case err == nil:
		case errors.Is(err, network.ErrDraining):
			c.sendGoAway()
		case err == io.EOF && c.server.opts.HTTP1.AllowHalfClose && !c.in.hasPartialFrame():
			c.respondToAll()
			return err
		default:
			return cmp.Or(c.abortErr, err)
		}
	}
}

// flushAndAwaitCapacity flushes if MaxInFlight, maxUnstartedRead or the high watermark is reached.
// Then it waits until the client's and the hosts' write queues have capacity, and until fewer than
// MaxInFlight requests are in flight or the drain deadline is near. It returns false if the client
// disconnects while MaxInFlight requests are in flight.
func (c *downstreamConn) flushAndAwaitCapacity() bool {
	if c.maxInFlightReached || c.in.Unflushed >= maxUnstartedRead || c.writeQueue.Queued() >= network.HighWatermark || c.inflight.atLimit() {
		c.flush()
	}
	for _, q := range c.fullQueues {
		q.AwaitCapacity()
	}
	clear(c.fullQueues)
	c.fullQueues = c.fullQueues[:0]
	c.writeQueue.AwaitCapacity()
	return c.await(func() bool { return !c.inflight.atLimit() || c.conn.DrainExpiring() })
}

// fill waits for input and reads once. It chooses the read timeout by the state of the connection.
// Before GOAWAY, it marks the connection as idle while it waits for the first byte of a frame.
func (c *downstreamConn) fill() error {
	timeout := stream.ParkAfter // afterwards handleReadTimeout parks a connection without requests
	switch {
	case c.in.hasPartialFrame():
		timeout = c.server.opts.RPC.FrameTimeout
	case !c.goAwayAt.IsZero():
		timeout = stream.CloseGrace
	}
	idle := c.goAwayAt.IsZero() && !c.in.hasPartialFrame()
	err := c.in.FillTimeout(c.conn, timeout, idle, c.onWait)
	c.batch.now = time.Now()
	return err
}

// read handles the complete frames in the input until MaxInFlight requests are in flight. It starts
// no request: startAndFlush does when there is nothing more to read, or flushAndAwaitCapacity at a
// limit. If the client disconnects before that, only one-way requests start, unless AllowHalfClose
// is set.
func (c *downstreamConn) read() error {
	var err error
	c.in.drop()
	for c.maxInFlightReached = false; c.in.HasBytes(); {
		if c.maxInFlightReached = !c.rejecting && c.inflight.atLimit(); c.maxInFlightReached {
			break
		}
		head, frame, parseErr := c.in.next(c.server.codec, c.server.opts.RPC.MaxFrameSize)
		if parseErr != nil {
			err = protocol.NewFault(protocol.MalformedRequest, parseErr)
			break
		}
		if frame == nil {
			break
		}
		c.handleFrame(head, frame)
		c.in.consume(head, len(frame))
	}
	c.in.ReleaseEmpty()
	if err != nil {
		c.observeMalformed(err)
	}
	return err
}

// handleFrame handles one frame. If the frame is too large, frame holds only its beginning.
func (c *downstreamConn) handleFrame(head codec.Frame, frame []byte) {
	switch head.Kind {
	case codec.Request, codec.OneWay:
		c.addRequest(head, frame)
	case codec.Heartbeat:
		if head.Size == len(frame) {
			c.sendFrame(func(dst []byte) []byte { return c.server.codec.AppendHeartbeatAck(dst, frame) })
		}
	case codec.Response, codec.HeartbeatAck, codec.GoAway, codec.Ignored:
		// Weft sends no requests or heartbeats to clients. After GOAWAY, the client closes the
		// connection.
	}
}

// addRequest adds a request for the frame to unstarted.
func (c *downstreamConn) addRequest(head codec.Frame, frame []byte) {
	r := c.inflight.acquire()
	r.c, r.head, r.sentCall = c, head, pendingCall{}
	if r.frame == nil {
		r.frame = buffer.Get(len(frame))
	}
	_, _ = r.frame.Write(frame) // never fails
	c.conn.Requests++
	c.unstarted.push(r)
}

// startAndFlush starts the requests that were read and flushes the batch. FillOnWait calls it when
// there is nothing to read, inside a read of the connection, so it must not close the connection:
// see abort. If GOMAXPROCS is 1, it yields to the readers of other connections before the flush, so
// that their frames to the same hosts are sent in the same writes.
func (c *downstreamConn) startAndFlush() {
	c.startAll()
	if c.server.yields && len(c.batch.dirty.Queues()) > 0 {
		runtime.Gosched()
	}
	c.flush()
}

// startAll serves or rejects the requests that were read. If the client disconnects before they
// start, the reader calls startAll only with AllowHalfClose, and otherwise dropUnstarted.
func (c *downstreamConn) startAll() {
	for {
		r := c.unstarted.pop()
		switch {
		case r == nil:
			return
		case c.rejecting:
			r.reject(&c.batch)
		default:
			r.serve(&c.batch)
		}
	}
}

// flush starts the requests that were read and flushes the batch. It records the write queues at
// the high watermark, for which flushAndAwaitCapacity waits.
func (c *downstreamConn) flush() {
	c.startAll()
	for _, q := range c.batch.dirty.Queues() {
		if q.Queued() >= network.HighWatermark {
			c.fullQueues = append(c.fullQueues, q)
		}
	}
	c.batch.flush()
	c.in.Unflushed = 0
}

// handleReadTimeout handles a client that sent nothing for the read timeout of fill. An error ends
// or parks the connection.
func (c *downstreamConn) handleReadTimeout() error {
	c.flush()
	s := stream.SilentConn{
		PartialFrame: c.in.hasPartialFrame(), Inflight: c.inflight.count() > 0, Draining: !c.goAwayAt.IsZero(), FrameTimeout: c.server.opts.RPC.FrameTimeout,
	}
	return s.Err()
}

// sendFrame enqueues a frame that Weft generates.
func (c *downstreamConn) sendFrame(encode func(dst []byte) []byte) {
	if enqueueFrame(c.writeQueue, encode) {
		c.batch.dirty.Add(c.writeQueue)
	}
}

// await waits until done returns true, and calls done each time a request ends. It returns false if
// the client disconnects first. The reader calls it and so does not read meanwhile: another
// goroutine watches for the disconnect.
func (c *downstreamConn) await(done func() bool) bool {
	if done() {
		return true
	}
	// AwaitPeerClose cannot watch a connection that is not a socket. OnClose at least detects that
	// this side has closed it.
	defer c.conn.OnClose(c.inflight.disconnect)()
	c.conn.SetReadDeadline(time.Time{})
	watchEnded := make(chan struct{})
	c.server.engine.goroutines.Start(func() {
		defer close(watchEnded)
		if err := c.conn.AwaitPeerClose(c.server.opts.HTTP1.AllowHalfClose); !errors.Is(err, network.ErrInterrupted) {
			c.inflight.disconnect()
		}
	})
	c.inflight.wait(done)
	c.conn.Interrupt()
	<-watchEnded
	c.conn.Resume()
	return !c.inflight.isDisconnected()
}
