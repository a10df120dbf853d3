package xprotocol

import (
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

const (
	// maxUnstartedRead is the number of bytes after which the reader starts the requests that it
	// has read, even if there is more to read. It is larger than the bursts of clients that
	// connect, send and disconnect immediately, whose requests need not start.
	maxUnstartedRead = 1 << 20
	// startsPerYield is the number of requests of one connection that start before the reader
	// yields to the readers of other connections, if GOMAXPROCS is 1.
	startsPerYield = 32
)

// server is the downstream side for the connections of one listener.
type server struct {
	engine  *Engine
	codec   codec.Codec
	traits  *codec.Traits // codec's
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
	c.close(cancel)
	return err
}

// downstreamConn is a client's connection. Its reader goroutine owns the fields unless a comment
// says otherwise.
type downstreamConn struct {
	server     *server
	conn       *network.Conn
	ctx        context.Context //nolint:containedctx // the connection's context, for its requests
	oneWayCtx  context.Context //nolint:containedctx // of one-way requests, which outlive the connection
	meta       protocol.ConnMeta
	writeQueue *network.WriteQueue

	in         input
	batch      batch
	onWait     func()                // startAndFlush as a func value, created once
	fullQueues []*network.WriteQueue // write queues at the high watermark
	unstarted  requestQueue          // requests that were read and have not started
	inflight   inflight              // its comments say which goroutines may call each method
	// maxInFlightReached: read stopped at MaxInFlight and left frames in the input.
	maxInFlightReached bool

	abortErr error // the reason for which the reader must end the connection, or nil
	// goAwaySentAt is when GOAWAY was due; zero: not yet. Weft may not have sent the frame: see
	// Traits.OptInGoAway.
	goAwaySentAt time.Time
	rejecting    bool // new requests are rejected because the drain deadline is near
}

// serve calls run and returns a recovered panic as an error: ServeConn then closes the connection
// as after any other error.
func (c *downstreamConn) serve() (err error) {
	defer func() {
		if protocol.ReasonOf(err) == protocol.Internal {
			c.server.engine.logPanicIn("reading requests", err)
			c.conn.CloseReason = network.ClosedInternalError
		}
	}()
	defer protocol.RecoverPanic(&err)
	return c.setCloseReason(c.run())
}

// run reads until the connection has to end or be parked.
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
			return err
		}
	}
}

// flushAndAwaitCapacity flushes if MaxInFlight, maxUnstartedRead or the high watermark is reached.
// Then it waits until the client's and the hosts' write queues have capacity and fewer than
// MaxInFlight requests are in flight. It returns false if the client disconnected meanwhile.
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

// fill reads once. A connection that waits for input holds no buffer.
func (c *downstreamConn) fill() error {
	wait := stream.ParkAfter // if the connection is busy, the interval of checks whether it is idle
	switch {
	case c.in.hasPartialFrame():
		wait = c.server.opts.RPC.FrameTimeout
	case !c.goAwaySentAt.IsZero():
		wait = stream.CloseGrace
	}
	stream.SetReadTimeout(c.conn, wait)
	if c.goAwaySentAt.IsZero() && !c.in.hasPartialFrame() {
		if err := c.conn.SetIdle(true); err != nil {
			return err
		}
		defer c.conn.SetIdle(false) //nolint:errcheck // never fails
	}
	err := c.in.fill(c.conn, c.onWait)
	c.batch.now = time.Now()
	return err
}

// read handles every complete frame until MaxInFlight is reached. flush starts the requests and
// sends the responses to other frames, once there is nothing more to read or maxUnstartedRead bytes
// were read. If the end of the connection comes next, only one-way requests start, unless
// AllowHalfClose is set.
func (c *downstreamConn) read() error {
	var err error
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
		// Weft sent no request on this connection, and a client that sends GOAWAY closes it.
	}
}

// addRequest adds a request for the frame; startAll starts it.
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

// startAndFlush starts the requests that were read and flushes the batch, because there is nothing
// to read. It runs inside a read of the connection and must not close the connection: see abort. If
// GOMAXPROCS is 1, it first yields to the readers of other connections, so that their frames to the
// same hosts are sent in the same writes.
func (c *downstreamConn) startAndFlush() {
	c.startAll()
	if c.server.yields && len(c.batch.dirty.Queues()) > 0 {
		runtime.Gosched()
	}
	c.flush()
}

// startAll serves or rejects the requests that were read. If the end of the connection follows
// them, it is called only with AllowHalfClose; otherwise dropUnstarted ends them.
func (c *downstreamConn) startAll() {
	for n := 1; ; n++ {
		r := c.unstarted.pop()
		switch {
		case r == nil:
			return
		case c.rejecting:
			r.reject(&c.batch)
		default:
			r.serve(&c.batch)
		}
		if c.server.yields && n%startsPerYield == 0 {
			runtime.Gosched()
		}
	}
}

// flush starts the requests that were read and flushes the batch.
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

// handleReadTimeout handles a client that sent nothing for the time that fill set. The error ends
// or parks the connection.
func (c *downstreamConn) handleReadTimeout() error {
	c.flush()
	switch {
	case c.in.hasPartialFrame():
		return protocol.Faultf(protocol.RequestTimeout, "incomplete frame: no data for %v", c.server.opts.RPC.FrameTimeout)
	case c.inflight.count() > 0:
		return nil
	case !c.goAwaySentAt.IsZero():
		return errIdleAfterGoAway
	}
	return stream.Park(c.conn, c.server.opts.IdleTimeout)
}

// sendFrame enqueues a frame that Weft generates.
func (c *downstreamConn) sendFrame(encode func(dst []byte) []byte) {
	if enqueueFrame(c.writeQueue, encode) {
		c.batch.dirty.Add(c.writeQueue)
	}
}

// await waits until done returns true, and calls it each time a request ends. It returns false if
// the client disconnects first. Only the reader calls it, so nothing else watches the connection.
func (c *downstreamConn) await(done func() bool) bool {
	if done() {
		return true
	}
	// AwaitPeerClose cannot watch connections that are not sockets: OnClose does.
	defer c.conn.OnClose(c.inflight.disconnect)()
	c.conn.SetReadDeadline(time.Time{})
	watched := make(chan struct{})
	c.server.engine.goroutines.Start(func() {
		defer close(watched)
		if err := c.conn.AwaitPeerClose(c.server.opts.HTTP1.AllowHalfClose); !errors.Is(err, network.ErrInterrupted) {
			c.inflight.disconnect()
		}
	})
	c.inflight.wait(done)
	c.conn.Interrupt()
	<-watched
	c.conn.Resume()
	return !c.inflight.isDisconnected()
}
