package xprotocol

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

const (
	// parkAfter is how long an idle connection keeps its goroutine's stack, and the interval at
	// which a busy connection checks whether it is idle.
	parkAfter = 200 * time.Millisecond
	// downstreamCloseGrace is how long a client may be silent after GOAWAY before Weft closes the
	// connection. Frames that the client sent before it read the GOAWAY arrive in that time.
	downstreamCloseGrace = 500 * time.Millisecond
)

// server is the downstream side for the connections of one listener.
type server struct {
	engine  *Engine
	codec   codec.Codec
	traits  *codec.Traits // codec's
	o       stream.ServerOptions
	service protocol.Service // o.Service
	yields  bool             // GOMAXPROCS is 1: see pause
}

func newServer(e *Engine, c codec.Codec, o stream.ServerOptions) *server {
	return &server{engine: e, codec: c, traits: c.Traits(), o: o, service: o.Service, yields: runtime.GOMAXPROCS(0) == 1}
}

// IdleTimeout implements network.ClientFirstHandler.
func (s *server) IdleTimeout() time.Duration { return s.o.IdleTimeout }

// ServeConn implements network.Handler.
func (s *server) ServeConn(ctx context.Context, conn *network.Conn) error {
	lasting := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &downstreamConn{s: s, conn: conn, ctx: ctx, lasting: lasting, meta: stream.NewConnMeta(s.o.Listener, conn)}
	c.fewer.L = &c.mu
	c.onWait = c.pause
	c.outbox = network.NewWriteQueue(conn, s.engine.start)
	c.outbox.Limit(s.o.RPC.MaxPendingBytes)
	conn.SetWriteTimeout(s.o.RPC.WriteTimeout)
	err := c.contained()
	c.close(cancel)
	return err
}

// contained calls run and turns a panic into an error: the connection ends as after any error, its
// requests are notified and its batch is flushed.
func (c *downstreamConn) contained() (err error) {
	defer func() {
		if protocol.ReasonOf(err) == protocol.Internal {
			c.s.engine.report("reading requests", err)
			c.conn.CloseReason = network.ClosedInternalError
		}
	}()
	defer protocol.RecoverPanic(&err)
	return c.run()
}

// downstreamConn is a client's connection. Its reader goroutine owns the fields unless a comment
// says otherwise.
type downstreamConn struct {
	s    *server
	conn *network.Conn
	ctx  context.Context //nolint:containedctx // the connection's context, for its requests
	// lasting is the context of one-way requests, which outlive the connection.
	lasting            context.Context //nolint:containedctx // see ctx
	meta               protocol.ConnMeta
	outbox             *network.WriteQueue
	in                 input
	batch              batch
	onWait             func()                // c.pause, bound once
	fullQueues         []*network.WriteQueue // write queues at the high watermark
	maxInFlightReached bool                  // read stopped at MaxInFlight and left frames in the input
	allRequests        []*request            // requests taken from the engine and not returned to it
	freeRequests       *request              // idle ones that are not in returnedRequests, linked by next
	begun              int64                 // number of requests ever begun
	fresh              *request              // the oldest request that has not started; linked by next
	newest             *request              // the newest of those; undefined if fresh is nil
	cut                error                 // why the reader must end the connection, or nil
	known              int64                 // the value of over that busy read last
	// goAwaySentAt is when GOAWAY was due; zero: not yet. Weft may not have sent the frame: see
	// Traits.OptInGoAway.
	goAwaySentAt time.Time
	rejecting    bool // new requests are rejected because the drain deadline is near

	returnedRequests atomic.Pointer[request] // requests that ended since reclaimRequests; linked by next
	over             atomic.Int64            // number of requests that have ended
	waits            atomic.Bool             // the reader waits on fewer

	mu    sync.Mutex
	fewer sync.Cond // on mu: over has grown, or the client has disconnected
}

// keepSpare is how many idle requests a busy connection keeps.
const keepSpare = 64

// keepFrame is the maximum capacity, in bytes, of the frame buffer that an idle request keeps.
const keepFrame = 4 << 10

// run reads until the connection ends or is parked. It returns nil for a normal end.
func (c *downstreamConn) run() error {
	for {
		if c.conn.Draining() {
			c.sendGoAway()
		}
		if c.conn.DrainExpiring() {
			return c.ended(c.rejectAndClose())
		}
		if !c.flushAndAwaitCapacity() {
			return c.ended(io.EOF)
		}
		if c.cut != nil {
			return c.ended(c.cut)
		}
		err := error(nil)
		if !c.maxInFlightReached {
			err = c.fill()
		}
		if err == nil {
			err = c.read()
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.silent()
		}
		switch {
		case err == nil:
		case errors.Is(err, network.ErrDraining):
			c.sendGoAway()
		case err == io.EOF && c.s.o.HTTP1.AllowHalfClose && !c.in.partial():
			c.answerAll()
			return c.ended(err)
		default:
			return c.ended(err)
		}
	}
}

// answerAll serves the requests that were read and waits for their responses. The client has closed
// its direction or the connection.
func (c *downstreamConn) answerAll() {
	c.flush()
	c.await(func() bool { return c.count() == 0 })
}

// flushAndAwaitCapacity flushes if MaxInFlight, mostUnstarted or the high watermark is reached.
// Then it waits until the client's and the hosts' write queues have capacity and fewer than
// MaxInFlight requests are in flight. It returns false if the client disconnected meanwhile.
func (c *downstreamConn) flushAndAwaitCapacity() bool {
	if c.maxInFlightReached || c.in.read >= mostUnstarted || c.outbox.Queued() >= network.HighWatermark || c.busy() {
		c.flush()
	}
	for _, o := range c.fullQueues {
		o.AwaitCapacity()
	}
	clear(c.fullQueues)
	c.fullQueues = c.fullQueues[:0]
	c.outbox.AwaitCapacity()
	limit := int64(c.s.o.RPC.MaxInFlight)
	return limit <= 0 || c.await(func() bool { return c.count() < limit || c.conn.DrainExpiring() })
}

// pause starts the requests that were read and flushes the batch, because there is nothing to read.
// It runs inside a read of the connection and must not close the connection: see abort. With one
// processor it first yields to the readers of other connections, whose frames to the same hosts
// then leave in the same writes.
func (c *downstreamConn) pause() {
	c.startAll()
	if c.s.yields && len(c.batch.dirty) > 0 {
		runtime.Gosched()
	}
	c.flush()
}

// startAll serves or rejects the requests that were read. The end of the connection was not read
// behind them.
func (c *downstreamConn) startAll() {
	for n := 1; c.fresh != nil; n++ {
		r := c.takeFresh()
		if c.rejecting {
			r.refuse(&c.batch)
		} else {
			r.serve(&c.batch)
		}
		if c.s.yields && n%mostAtOnce == 0 {
			runtime.Gosched()
		}
	}
}

const (
	// mostUnstarted is how many bytes the reader reads before it starts the requests in them
	// although there may be more to read. It exceeds the bursts of clients that connect, send and
	// disconnect.
	mostUnstarted = 1 << 20
	// mostAtOnce is how many requests of one connection start before the reader yields to the
	// readers of other connections, if there is one processor.
	mostAtOnce = 32
)

// takeFresh removes and returns the oldest request that has not started, or nil.
func (c *downstreamConn) takeFresh() *request {
	r := c.fresh
	if r != nil {
		c.fresh, r.next = r.next, nil
	}
	return r
}

// errUnanswered ends a connection on which a response could not be sent.
var errUnanswered = errors.New("a response could not be sent")

// abort ends the connection, because its client would wait for a response forever. b is the batch
// of the calling goroutine. The reader may be inside a read of the connection, for which Close
// would wait, so abort interrupts that read and run closes the connection.
func (c *downstreamConn) abort(b *batch) {
	if b != &c.batch {
		_ = c.conn.Close() // the listener closes it again
		return
	}
	c.cut = errUnanswered
	c.conn.Interrupt()
}

// flush starts the requests that were read and flushes the batch.
func (c *downstreamConn) flush() {
	c.startAll()
	for _, o := range c.batch.dirty {
		if o.Queued() >= network.HighWatermark {
			c.fullQueues = append(c.fullQueues, o)
		}
	}
	c.batch.flush()
	c.in.read = 0
}

var errFarewell = errors.New("the client is idle after GOAWAY")

// ended sets the close reason and returns the error to log, if any.
func (c *downstreamConn) ended(err error) error {
	cause := &c.conn.CloseReason
	switch {
	case errors.Is(err, network.ErrPark):
		return err
	case errors.Is(err, errFarewell):
		*cause = network.ClosedDrained
		return nil
	case err == io.EOF && !c.in.partial():
		*cause = network.ClosedByPeer
		return nil
	}
	switch protocol.ReasonOf(err) {
	case protocol.MalformedRequest:
		*cause = network.ClosedProtocolError
	case protocol.RequestTimeout:
		*cause = network.ClosedRequestTimeout
	default:
		*cause = network.ClosedByPeer
	}
	return err
}

// fill reads once. A connection that waits for input holds no buffer.
func (c *downstreamConn) fill() error {
	wait := parkAfter
	switch {
	case c.in.partial():
		wait = c.s.o.RPC.FrameTimeout
	case !c.goAwaySentAt.IsZero():
		wait = downstreamCloseGrace
	}
	now := time.Now()
	if wait > 0 {
		c.conn.SetReadDeadline(now.Add(wait))
	} else {
		c.conn.SetReadDeadline(time.Time{})
	}
	if c.goAwaySentAt.IsZero() && !c.in.partial() {
		if err := c.conn.SetIdle(true); err != nil {
			return err
		}
		defer c.conn.SetIdle(false) //nolint:errcheck // never fails
	}
	err := c.in.fill(c.conn, c.onWait)
	c.batch.now = time.Now()
	return err
}

// silent handles a read timeout: the client sent nothing for the time that fill set.
func (c *downstreamConn) silent() error {
	c.flush()
	switch {
	case c.in.partial():
		return protocol.Faultf(protocol.RequestTimeout, "incomplete frame: no data for %v", c.s.o.RPC.FrameTimeout)
	case c.count() > 0:
		return nil
	case !c.goAwaySentAt.IsZero():
		return errFarewell
	}
	limit := time.Time{}
	if d := c.s.o.IdleTimeout; d > 0 {
		limit = time.Now().Add(d)
	}
	c.conn.SetReadDeadline(limit)
	return network.ErrPark
}

// read handles every complete frame until MaxInFlight is reached. flush starts the requests and
// sends the responses to other frames, once there is nothing more to read or mostUnstarted bytes
// were read. If the end of the connection comes next, only one-way requests start, unless
// AllowHalfClose is set.
func (c *downstreamConn) read() error {
	var err error
	for c.maxInFlightReached = false; c.in.whole(); {
		if c.maxInFlightReached = !c.rejecting && c.busy(); c.maxInFlightReached {
			break
		}
		head, frame, wrong := c.in.next(c.s.codec, c.s.o.RPC.MaxFrameSize)
		if wrong != nil {
			err = protocol.NewFault(protocol.MalformedRequest, wrong)
			break
		}
		if frame == nil {
			break
		}
		c.frame(head, frame)
		c.in.consume(head, len(frame))
	}
	c.in.rest()
	if err != nil {
		c.refuse(err)
	}
	return err
}

// frame handles one frame. Of a frame that is too large, it may get only the beginning.
func (c *downstreamConn) frame(head codec.Frame, frame []byte) {
	switch head.Kind {
	case codec.Request, codec.OneWay:
		c.begin(head, frame)
	case codec.Heartbeat:
		if head.Size == len(frame) {
			c.send(func(dst []byte) []byte { return c.s.codec.AppendHeartbeatAck(dst, frame) })
		}
	case codec.Response, codec.HeartbeatAck, codec.GoAway, codec.Ignored:
		// Weft sent no request on this connection, and a client that sends GOAWAY closes it.
	}
}

// begin adds a request for the frame; startAll starts it.
func (c *downstreamConn) begin(head codec.Frame, frame []byte) {
	r := c.enter()
	r.c, r.head = c, head
	if r.frame == nil {
		r.frame = buffer.Get(len(frame))
	}
	_, _ = r.frame.Write(frame) // never fails
	c.conn.Requests++
	if c.fresh == nil {
		c.fresh = r
	} else {
		c.newest.next = r
	}
	c.newest = r
}

// enter returns an idle request and counts it as in flight.
func (c *downstreamConn) enter() *request {
	if c.freeRequests == nil {
		c.reclaimRequests()
	}
	r := c.freeRequests
	if r == nil {
		r = c.s.engine.take()
		c.allRequests = append(c.allRequests, r)
	} else {
		c.freeRequests, r.next = r.next, nil
	}
	r.sent = waiting{}
	c.begun++
	return r
}

// reclaimRequests moves the returned requests to the free list and gives those beyond keepSpare
// back to the engine. The caller has found freeRequests empty.
func (c *downstreamConn) reclaimRequests() {
	if c.returnedRequests.Load() == nil {
		return // a burst calls this for each of its requests
	}
	c.freeRequests = c.returnedRequests.Swap(nil)
	if len(c.allRequests)-int(c.count()) <= keepSpare {
		return
	}
	last := c.freeRequests
	for n := 1; last != nil && n < keepSpare; n++ {
		last = last.next
	}
	if last == nil {
		return // some ended after count
	}
	extra := last.next
	last.next = nil
	for r := extra; r != nil; r = r.next {
		r.c = nil
	}
	c.allRequests = slices.DeleteFunc(c.allRequests, func(r *request) bool { return r.c == nil })
	for r := extra; r != nil; {
		next := r.next
		c.s.engine.give(r)
		r = next
	}
}

// end counts r as ended. The caller must not use r or c afterwards.
func (c *downstreamConn) end(r *request) {
	for {
		r.next = c.returnedRequests.Load()
		if c.returnedRequests.CompareAndSwap(r.next, r) {
			break
		}
	}
	c.over.Add(1)
	if c.waits.Load() {
		c.mu.Lock()
		c.fewer.Broadcast()
		c.mu.Unlock()
	}
}

// count returns the number of requests in flight. Only the reader calls it.
func (c *downstreamConn) count() int64 { return c.begun - c.over.Load() }

// busy reports whether MaxInFlight is reached.
func (c *downstreamConn) busy() bool {
	limit := int64(c.s.o.RPC.MaxInFlight)
	if limit <= 0 || c.begun-c.known < limit {
		return false
	}
	c.known = c.over.Load()
	return c.begun-c.known >= limit
}

// await waits until done returns true, and calls it each time a request ends. It returns false if
// the client disconnected before. Only the reader calls it, so nothing else watches the connection.
func (c *downstreamConn) await(done func() bool) bool {
	c.waits.Store(true) // either end sees waits, or done sees that the request ended
	defer c.waits.Store(false)
	if done() {
		return true
	}
	left, watched := false, make(chan struct{})
	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		left = true
		c.fewer.Broadcast()
	}
	// OnClose is for connections that cannot be watched. It is called without c.mu: if the
	// connection is already closed, it calls leave before it returns.
	defer c.conn.OnClose(leave)()
	c.conn.SetReadDeadline(time.Time{})
	c.s.engine.start(func() {
		defer close(watched)
		if err := c.conn.AwaitPeerClose(c.s.o.HTTP1.AllowHalfClose); !errors.Is(err, network.ErrInterrupted) {
			leave()
		}
	})
	c.mu.Lock()
	for !left && !done() {
		c.fewer.Wait()
	}
	c.mu.Unlock()
	c.conn.Interrupt()
	<-watched
	c.conn.Resume()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !left
}

// send enqueues a frame that Weft generates.
func (c *downstreamConn) send(frame func(dst []byte) []byte) {
	if put(c.outbox, frame) {
		c.batch.add(c.outbox)
	}
}

// sendGoAway asks the client to send no more requests on this connection.
func (c *downstreamConn) sendGoAway() {
	if !c.goAwaySentAt.IsZero() {
		return
	}
	c.goAwaySentAt = time.Now()
	if c.s.traits.OptInGoAway && !c.s.o.RPC.SendGoAway {
		return // silent connections close after the close grace, others when the drain ends
	}
	c.send(func(dst []byte) []byte { return c.s.codec.AppendGoAway(dst, 0) })
	c.batch.flush()
}

// rejectAndClose waits for the requests in flight although the client keeps sending, and closes the
// write direction. It rejects requests that have not started; no host has received them. It then
// reads and discards, so that the kernel does not reset the connection before the responses have
// arrived.
func (c *downstreamConn) rejectAndClose() error {
	c.rejecting = true
	err := c.read()
	c.flush()
	if c.await(func() bool { return c.count() == 0 }) {
		c.outbox.Close()
		if err == nil && c.conn.CloseWrite() == nil {
			c.conn.SetReadDeadline(time.Now().Add(downstreamCloseGrace))
			for c.in.release(); err == nil; c.in.release() {
				err = c.in.fill(c.conn, c.onWait)
			}
		}
	}
	return errFarewell
}

// refuse records malformed input. It sends no response, because the request id is not known.
func (c *downstreamConn) refuse(err error) {
	if c.s.o.Observe == nil {
		return
	}
	var x protocol.Exchange
	x.Reset()
	x.Meta.Conn = &c.meta
	x.Meta.Protocol, x.Meta.Version = c.s.traits.Name, c.s.traits.Version
	x.Meta.Start = c.batch.now
	x.LocalReplyError(err)
	x.Response.Status = 0
	x.Record.End = time.Now()
	defer c.s.engine.contain("recording a malformed frame")
	c.s.o.Observe(&x)
}
