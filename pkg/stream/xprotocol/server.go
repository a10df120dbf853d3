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
	// parkAfter is how long an idle connection keeps its goroutine's stack, and how
	// often one that is not idle looks whether it is.
	parkAfter = 200 * time.Millisecond
	// downstreamCloseGrace is how long a caller that was told to go may be silent before the
	// connection is closed under it: what it sent meanwhile has arrived by then.
	downstreamCloseGrace = 500 * time.Millisecond
)

// server is the downstream side for the connections of one listener.
type server struct {
	engine  *Engine
	codec   codec.Codec
	traits  *codec.Traits // codec's
	o       stream.ServerOptions
	service protocol.AsyncService // o.Service
	yields  bool                  // there is one processor: see pause
}

func newServer(e *Engine, c codec.Codec, o stream.ServerOptions) *server {
	return &server{engine: e, codec: c, traits: c.Traits(), o: o, service: protocol.Async(o.Service), yields: runtime.GOMAXPROCS(0) == 1}
}

// IdleTimeout is network.ClientFirstHandler's.
func (s *server) IdleTimeout() time.Duration { return s.o.IdleTimeout }

// ServeConn is network.Handler's.
func (s *server) ServeConn(ctx context.Context, conn *network.Conn) error {
	lasting := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &downstreamConn{s: s, conn: conn, ctx: ctx, lasting: lasting, meta: stream.NewConnMeta(s.o.Listener, conn)}
	c.fewer.L = &c.mu
	c.onWait = c.pause
	c.outbox = network.NewOutbox(conn, s.engine.start)
	c.outbox.Limit(s.o.RPC.MaxQueued)
	conn.SetWriteTimeout(s.o.RPC.WriteTimeout)
	err := c.contained()
	c.close(cancel)
	return err
}

// contained is run, whose panic ends the connection as any error does: its requests are
// told, and what waits in its batch leaves.
func (c *downstreamConn) contained() (err error) {
	defer func() {
		if protocol.ReasonOf(err) == protocol.Internal {
			c.s.engine.report("reading requests", err)
			c.conn.CloseReason = network.CauseInternal
		}
	}()
	defer protocol.RecoverPanic(&err)
	return c.run()
}

// downstreamConn is a caller's connection. Its reader's goroutine owns what no comment
// says otherwise of.
type downstreamConn struct {
	s    *server
	conn *network.Conn
	ctx  context.Context //nolint:containedctx // of the requests: it is the connection's
	// lasting is the context of one-way requests, which outlive the connection.
	lasting            context.Context //nolint:containedctx // see ctx
	meta               protocol.ConnMeta
	outbox             *network.WriteQueue
	in                 input
	batch              batch
	onWait             func()                // pause, made once
	fullQueues         []*network.WriteQueue // of hosts that take too little
	maxInFlightReached bool                  // frames were left in the input: as much is under way as may be
	allRequests        []*request            // that came from the engine, and did not go back
	freeRequests       *request              // those of them that serve nothing, but for back, linked by next
	begun              int64                 // how many requests were ever under way
	fresh              *request              // the oldest request that was read and has not started; linked by next
	newest             *request              // the last of those; undefined if there is none
	cut                error                 // why the reader must end the connection; nil: it must not
	known              int64                 // over, as it was seen last
	// goAwaySentAt is when the caller was told to send no more; zero: it was not.
	goAwaySentAt time.Time
	rejecting    bool // requests are refused: the time to drain is nearly over

	returnedRequests atomic.Pointer[request] // requests that were under way since spare was filled, linked by next
	over             atomic.Int64            // how many requests were ever over
	waits            atomic.Bool             // the reader waits for fewer

	mu    sync.Mutex
	fewer sync.Cond // on mu: over grew, or the caller has left
}

// keepSpare is how many requests a connection that is busy keeps for its next ones.
const keepSpare = 64

// keepFrame is how large a frame's memory may be that is kept with them, in bytes.
const keepFrame = 4 << 10

// run reads until the connection is to end. nil means that it ends, or is to be
// parked, as it should.
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

// answerAll serves what has been read, and waits for the answers: the caller has ended its
// direction, or the connection.
func (c *downstreamConn) answerAll() {
	c.flush()
	c.await(func() bool { return c.count() == 0 })
}

// flushAndAwaitCapacity starts the requests and sends what was held back for long enough, or has to leave before there
// is anything to wait for, and waits: while the caller or a host takes too little,
// and while as much is under way as may be. It reports false if the caller has left
// meanwhile.
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

// pause starts the requests that were read and sends what was held back, for there is
// nothing to read. It runs inside a read of the connection, which must not be closed on
// this goroutine: see session.abort. On a busy processor the readers of other connections have their turn before, and what
// they send to the same hosts leaves in the same writes.
func (c *downstreamConn) pause() {
	c.startAll()
	if c.s.yields && len(c.batch.dirty) > 0 {
		runtime.Gosched()
	}
	c.flush()
}

// startAll serves the requests that were read, or refuses them. The end of the connection
// has not been read behind them.
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
	// mostUnstarted is how much is read, in bytes, before the requests in it start although
	// there may be more to read: more than the bursts of callers that connect, ask and leave.
	mostUnstarted = 1 << 20
	// mostAtOnce is how many requests of one connection start before the readers of other
	// connections have their turn, where there is one processor.
	mostAtOnce = 32
)

// takeFresh returns the oldest request that has not started; nil: there is none.
func (c *downstreamConn) takeFresh() *request {
	r := c.fresh
	if r != nil {
		c.fresh, r.next = r.next, nil
	}
	return r
}

// errUnanswered is why a connection ends on which an answer could not be sent.
var errUnanswered = errors.New("an answer could not be sent")

// abort ends the connection, whose caller would wait for an answer forever. b is the batch
// of the goroutine. The reader's may be inside a read of the connection, and Close waits
// for that: there, the read ends first.
func (c *downstreamConn) abort(b *batch) {
	if b != &c.batch {
		_ = c.conn.Close() // the listener does it once more
		return
	}
	c.cut = errUnanswered
	c.conn.Interrupt()
}

// flush starts the requests that were read, and sends what was held back.
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

var errFarewell = errors.New("the caller was told to go and is silent")

// ended says why the connection ends, and returns what is worth a log line.
func (c *downstreamConn) ended(err error) error {
	cause := &c.conn.CloseReason
	switch {
	case errors.Is(err, network.ErrPark):
		return err
	case errors.Is(err, errFarewell):
		*cause = network.CauseDrained
		return nil
	case err == io.EOF && !c.in.partial():
		*cause = network.ClosedByPeer
		return nil
	}
	switch protocol.ReasonOf(err) {
	case protocol.MalformedRequest:
		*cause = network.CauseProtocolError
	case protocol.RequestTimeout:
		*cause = network.CauseRequestTimeout
	default:
		*cause = network.ClosedByPeer
	}
	return err
}

// fill reads what there is. A connection that waits holds no buffer.
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

// silent decides what to do about a caller that has sent nothing for so long.
func (c *downstreamConn) silent() error {
	c.flush()
	switch {
	case c.in.partial():
		return protocol.Faultf(protocol.RequestTimeout, "a part of a frame, and no more for %v", c.s.o.RPC.FrameTimeout)
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

// read deals with every whole frame that there is, as far as its requests may be
// under way. The requests start, and what comes of other frames leaves, in flush: once
// there is nothing more to read, or mostUnstarted bytes were read. If what comes next is the
// end of the connection, they never start.
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

// frame deals with one frame. It may be only the beginning of one that is too
// large.
func (c *downstreamConn) frame(head codec.Frame, frame []byte) {
	switch head.Kind {
	case codec.Request, codec.OneWay:
		c.begin(head, frame)
	case codec.Heartbeat:
		if head.Size == len(frame) {
			c.send(func(dst []byte) []byte { return c.s.codec.AppendHeartbeatAck(dst, frame) })
		}
	case codec.Response, codec.HeartbeatAck, codec.GoAway, codec.Ignored:
		// Nothing was asked, and whoever goes away will close the connection.
	}
}

// begin makes a frame a request under way, which starts in startAll.
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

// enter puts a request among those under way.
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

// reclaimRequests takes what came back, and gives away what a busy connection need not keep.
// There is nothing in spare.
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
		return // some came back since it was counted
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

// end takes r out of what is under way. Neither it nor c is the caller's
// afterwards.
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

// count is how many requests are under way. The reader calls it.
func (c *downstreamConn) count() int64 { return c.begun - c.over.Load() }

// busy reports whether as many requests are under way as may be.
func (c *downstreamConn) busy() bool {
	limit := int64(c.s.o.RPC.MaxInFlight)
	if limit <= 0 || c.begun-c.known < limit {
		return false
	}
	c.known = c.over.Load()
	return c.begun-c.known >= limit
}

// await waits until done reports true, which is asked each time that a request is
// over, and reports false if the caller has left before. The reader calls it, so
// that nobody else would notice.
func (c *downstreamConn) await(done func() bool) bool {
	c.waits.Store(true) // who ends a request now sees it, or we see that it is over
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
	// For connections that cannot be watched. Without c.mu: on a connection that is
	// closed already AfterEnd calls leave before it returns.
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

// send sends a frame of Weft's own.
func (c *downstreamConn) send(frame func(dst []byte) []byte) {
	if put(c.outbox, frame) {
		c.batch.add(c.outbox)
	}
}

// sendGoAway tells the caller to send no more requests here.
func (c *downstreamConn) sendGoAway() {
	if !c.goAwaySentAt.IsZero() {
		return
	}
	c.goAwaySentAt = time.Now()
	if c.s.traits.OptInGoAway && !c.s.o.RPC.GoAway {
		return // who is silent is closed, and the others when the drain is over
	}
	c.send(func(dst []byte) []byte { return c.s.codec.AppendGoAway(dst, 0) })
	c.batch.flush()
}

// rejectAndClose answers what is under way, though the caller goes on asking, and says
// goodbye. What it has asked since, or was not begun, is refused: it was not sent
// anywhere. All of it is read, so that the kernel does not reset the connection before
// the answers have arrived.
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

// refuse records what is no frame. There is nobody to tell: where an answer would
// begin is as unknown as where the next frame does.
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
	defer c.s.engine.contain("accounting for a malformed frame")
	c.s.o.Observe(&x)
}
