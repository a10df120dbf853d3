package http2

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

const (
	// parkAfter is how long an idle connection keeps its goroutine's stack.
	parkAfter = 200 * time.Millisecond
	// lookAgain is how often a connection with exchanges under way looks whether it
	// still has some.
	lookAgain = 5 * time.Second
	// farewell is how long a caller that was told to go may be silent before the
	// connection is closed under it.
	farewell = 500 * time.Millisecond
	// defaultFrameTimeout is frameTimeout where the content of requests has no timeout.
	defaultFrameTimeout = 30 * time.Second
	// lingerTime bounds how long a caller that broke a rule may take to read why.
	lingerTime = time.Second
	// lastStreams is from which stream on a caller is told to go on on another connection:
	// it has 32,768 left until it knows (RFC 9113 5.1.1).
	lastStreams = syntax.MaxStreamID - 1<<16
	// drainPing is the data of the PING whose answer shows that a caller has seen
	// the first GOAWAY.
	drainPing = 0x77656674_64726e00
)

// server is the downstream side for the connections of one listener.
type server struct {
	engine  *Engine
	o       stream.ServerOptions
	service protocol.Starter
	yields  bool // there is one processor: see pause
	clock   stream.Clock
	budget  *stream.CostBudget // of the listener
	limits  stream.CostLimits  // immutable
}

func newServer(e *Engine, o stream.ServerOptions) *server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &server{engine: e, o: o, service: protocol.Halves(o.Service), yields: runtime.GOMAXPROCS(0) == 1, budget: e.budget(o.Listener), limits: stream.CostLimitsOf(&o.HTTP2)}
}

// IdleTimeout is network.ClientFirstHandler's.
func (s *server) IdleTimeout() time.Duration { return s.o.IdleTimeout }

// frameTimeout is how long the rest of a frame may take to come.
func (s *server) frameTimeout() time.Duration {
	if d := s.o.HTTP1.BodyTimeout; d > 0 {
		return d
	}
	return defaultFrameTimeout
}

// ServeConn is network.Handler's.
func (s *server) ServeConn(ctx context.Context, conn *network.Conn) error {
	c := s.newSession(conn)
	c.start()
	return c.ServeConn(ctx, conn)
}

// newSession returns the session of a connection; it has sent nothing.
func (s *server) newSession(conn *network.Conn) *session {
	c := &session{s: s, meta: stream.ConnMeta(s.o.Listener, conn)}
	o := &s.o.HTTP2
	c.init(s.engine, conn, c)
	c.creditFrom, c.idle = creditFrom(o.StreamWindow, o.ConnectionWindow, o.MaxConcurrentStreams), o.StreamIdleTimeout
	c.state = syntax.NewSession(syntax.Config{
		Role:                 syntax.Server,
		MaxConcurrentStreams: uint32(o.MaxConcurrentStreams),
		StreamWindow:         uint32(o.StreamWindow),
		ConnectionWindow:     uint32(o.ConnectionWindow),
		MaxHeaderListSize:    uint32(s.o.HTTP1.MaxHeaderSize),
		MaxFields:            s.o.HTTP1.MaxHeaderCount,
		EnableConnect:        true,
		Budgets:              syntax.Budgets{Reset: syntax.Budget(o.ConnectionResets)},
	})
	c.fewer.L = &c.mu
	c.onWait = c.pause
	return c
}

// start sends what a server sends first.
func (c *session) start() {
	c.conn.SetWriteTimeout(c.s.o.HTTP1.WriteTimeout)
	c.conn.Handler = c // the session goes on when the connection is no longer parked
	c.mu.Lock()
	c.said(c.state.AppendStart(nil), &c.batch)
	c.mu.Unlock()
}

// creditFrom is how much of a stream's content is taken before the session is told,
// in bytes: little enough that what all streams have not told leaves most of both
// windows open.
func creditFrom(stream, connection, streams int) int {
	return max(1, min(stream/4, connection/4/max(streams, 1)))
}

// session is a caller's connection. Its reader's goroutine owns what no comment
// says otherwise of.
type session struct {
	wire
	s      *server
	ctx    context.Context //nolint:containedctx // of the exchanges: it is the connection's
	meta   protocol.ConnMeta
	batch  batch
	onWait func() // pause, made once
	begun  bool   // the preface has been read
	fresh  []begin

	left  time.Time // when the caller was told that the connection ends; zero: it was not
	final bool      // guarded by mu; and up to which stream

	count int       // guarded by mu; exchanges under way
	fewer sync.Cond // on mu: count fell
}

// begin is an exchange that is to be served once everything that came with its head
// has been read.
type begin struct {
	e       *exchange
	refused error
}

// ServeConn is network.Handler's, also when the connection was parked.
func (c *session) ServeConn(ctx context.Context, _ *network.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.ctx = ctx
	err := c.serve()
	if errors.Is(err, network.ErrPark) {
		c.shrink()
		return err
	}
	c.close(err, cancel)
	return c.ended(err)
}

// serve is run, whose panic ends the connection as a broken rule would: what is under
// way on it ends.
func (c *session) serve() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.engine.panicked("reading a client's connection: it is closed", p)
			err = errInternal
		}
	}()
	c.beginAll() // of a connection that came from HTTP/1.1
	return c.run()
}

// shrink drops what a connection that waits does not need.
func (c *session) shrink() {
	c.ctx, c.batch, c.fresh = nil, batch{}, nil
	c.outbox.Shrink()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scratch = nil
	c.state.Rest()
	if c.alarm.due.IsZero() {
		c.alarm.timer = nil
	}
}

// IdleTimeout is network.ClientFirstHandler's.
func (c *session) IdleTimeout() time.Duration { return c.s.o.IdleTimeout }

// run reads until the connection is to end, or to be parked.
func (c *session) run() error {
	for {
		if c.conn.Draining() || c.spent() {
			c.leave()
		}
		c.insist()
		if c.read >= mostHeld || c.outbox.Queued() >= network.HighWatermark {
			c.flush()
		}
		c.outbox.AwaitCapacityBelow(mostUntaken)
		err := c.fill()
		switch {
		case err == nil:
			err = c.take()
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = c.silent()
		case errors.Is(err, network.ErrDraining):
			c.leave()
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// pause begins the requests that have come and sends what was held back, for there is
// nothing to read. Services must not close the connection on this goroutine, which is in a
// read of it. On a busy processor
// the readers of other connections have their turn before, and what they send to
// the same hosts leaves in the same writes.
func (c *session) pause() {
	c.beginAll()
	if c.s.yields && len(c.batch.dirty) > 0 {
		runtime.Gosched()
	}
	c.flush()
}

func (c *session) flush() {
	c.batch.flush()
	c.read = 0
}

// fill reads what there is. A connection that waits holds no buffer.
func (c *session) fill() error {
	now := time.Now()
	wait := parkAfter
	busy := c.inFlight() > 0
	switch {
	case c.partial() || !c.begun:
		wait = c.s.frameTimeout()
	case !c.left.IsZero() && !busy:
		wait = farewell
	case !c.left.IsZero():
		wait = c.s.o.HTTP2.DrainGrace
	case busy:
		wait = lookAgain
	}
	if wait > 0 {
		c.conn.SetReadDeadline(now.Add(wait))
	} else {
		c.conn.SetReadDeadline(time.Time{})
	}
	if c.left.IsZero() && !c.partial() {
		if err := c.conn.SetIdle(true); err != nil {
			return err
		}
		defer c.conn.SetIdle(false) //nolint:errcheck // never fails
	}
	err := c.wire.fill(c.onWait, &c.batch)
	c.batch.now = time.Now()
	return err
}

var errFarewell = errors.New("the caller was told to go and is silent")

// silent decides what to do about a caller that has sent nothing for so long.
func (c *session) silent() error {
	c.flush()
	busy := c.inFlight() > 0
	switch {
	case c.partial() || !c.begun:
		return protocol.Faultf(protocol.RequestTimeout, "a part of a frame, and no more for %v", c.s.frameTimeout())
	case !c.left.IsZero():
		c.leaveAt()
		if busy {
			return nil
		}
		return errFarewell
	case busy:
		return nil
	}
	c.mu.Lock()
	c.still()
	c.mu.Unlock()
	limit := time.Time{}
	if d := c.s.o.IdleTimeout; d > 0 {
		limit = time.Now().Add(d)
	}
	c.conn.SetReadDeadline(limit)
	return network.ErrPark
}

// take deals with every whole frame that there is, and then with the requests that
// came with them.
func (c *session) take() error {
	if !c.begun {
		n, err := syntax.CutPreface(c.in.Bytes())
		if n == 0 || err != nil {
			return err
		}
		c.begun = true
		c.in.Discard(n)
	}
	err := c.frames(&c.batch)
	if err == nil && c.read >= mostUnbegun {
		c.beginAll() // else in pause, unless what comes next ends the connection
	}
	return err
}

// mostUnbegun is how much is read, in bytes, before the requests in it begin, although
// there may be more to read. A request whose RST_STREAM, or the end of the connection,
// lies behind it in what has come already never begins (CVE-2023-44487).
const mostUnbegun = 64 << 10

// beginAll begins the exchanges that are to be begun.
func (c *session) beginAll() {
	for _, f := range c.fresh {
		f.e.begin(&c.batch, f.refused)
	}
	clear(c.fresh)
	c.fresh = c.fresh[:0]
}

// happened is side's.
func (c *session) happened(e *syntax.Event, b *batch) func(*batch) {
	switch e.Kind {
	case syntax.HeadersArrived:
		c.conn.Requests++
		x := c.engine.newExchange()
		x.c, x.wire = c, &c.wire
		x.open(e.Stream, x, b.now)
		if c.idle > 0 {
			c.arm(b.now.Add(c.idle))
		}
		c.count++
		c.fresh = append(c.fresh, begin{x, x.read(c, e.End, b)})
		if e.Stream.ID >= lastStreams {
			return func(*batch) { c.leave() }
		}
	case syntax.PingAcked:
		if e.Ping == drainPing {
			return func(*batch) { c.leaveAt() }
		}
	default: // callers' settings are the session's business, their GOAWAY nobody's
	}
	return nil
}

// reset is side's.
func (c *session) reset(code syntax.Code) error {
	return protocol.Faultf(protocol.DownstreamGone, "the caller has reset the stream: %v", code)
}

// broken is side's.
func (c *session) broken(e *syntax.StreamError) error {
	return protocol.NewFault(protocol.DownstreamGone, e)
}

// chargeFrom is side's. A connection without an answer may be one of many that an address
// over its budget opens.
func (c *session) chargeFrom(now time.Time) int {
	if !c.state.Answered() && c.s.budget.SourceExceeded(&c.s.limits, c.meta.Remote.Addr(), now) {
		return 1
	}
	return leastCharge
}

// charge is side's.
func (c *session) charge(n int, now time.Time) error {
	switch c.s.budget.Charge(&c.s.limits, c.meta.Remote.Addr(), n, now) {
	case stream.SourceExceeded:
		return &syntax.ConnectionError{Code: syntax.EnhanceYourCalm, Reason: "too many streams reset by this address", Flood: syntax.FloodSource}
	case stream.ListenerExceeded:
		return &syntax.ConnectionError{Code: syntax.EnhanceYourCalm, Reason: "too many streams reset by callers of this listener", Flood: syntax.FloodListener}
	case stream.WithinBudget:
	}
	return nil
}

// chargeEnd charges what the connection leaves behind: what it owes, and the streams that
// it has opened just now and abandons. mu is held.
func (c *session) chargeEnd(now time.Time) {
	n := c.state.TakeCharges(1)
	for s := range c.state.Streams() {
		if s.Young(now) {
			n++
		}
	}
	if n > leastCharge {
		c.s.budget.Charge(&c.s.limits, c.meta.Remote.Addr(), n, now) // others of the address are ended, if any are
	}
}

// idleReason is side's.
func (c *session) idleReason() protocol.Reason { return protocol.RequestIdle }

// expired is side's.
func (c *session) expired(*batch) ([]func(*batch), time.Time) { return nil, time.Time{} }

// exit notes that an exchange is over.
func (c *session) exit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	c.fewer.Signal()
}

func (c *session) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// spent reports whether the connection has carried all the exchanges that it may.
func (c *session) spent() bool {
	most := c.s.o.HTTP1.MaxRequestsPerConnection
	return most > 0 && c.conn.Requests >= most
}

// leave tells the caller that the connection ends soon (RFC 9113 6.8): what it has
// sent until it knows is still served.
func (c *session) leave() {
	if !c.left.IsZero() {
		return
	}
	c.left = time.Now()
	c.mu.Lock()
	c.said(c.state.AppendPing(c.state.AppendShutdown(c.scratch[:0]), drainPing), &c.batch)
	c.mu.Unlock()
	c.flush()
}

// insist is leaveAt for a caller that had DrainGrace to answer the PING, whatever it has
// sent instead.
func (c *session) insist() {
	if !c.left.IsZero() && c.batch.now.Sub(c.left) >= c.s.o.HTTP2.DrainGrace {
		c.leaveAt()
	}
}

// leaveAt tells it which stream is the last.
func (c *session) leaveAt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.final {
		return
	}
	c.final = true
	c.said(c.state.AppendGoAway(c.scratch[:0], syntax.NoError, ""), &c.batch)
}

// SendGoAway is network.GoAwayHandler's: a parked connection has nothing under way, so one GOAWAY
// says everything. A request that crosses it may be sent again (RFC 9113 6.8).
func (c *session) SendGoAway() {
	c.mu.Lock()
	c.append(c.state.AppendGoAway(c.scratch[:0], syntax.NoError, ""))
	c.mu.Unlock()
	_ = c.outbox.Flush() // the connection ends anyway
}

// ended says why the connection ends, and returns what is worth a log line.
func (c *session) ended(err error) error {
	cause := &c.conn.CloseReason
	var wrong *syntax.ConnectionError
	switch {
	case errors.Is(err, errFarewell):
		*cause = c.whyLeft()
		return nil
	case err == io.EOF && !c.partial():
		*cause = network.ClosedByPeer
		if !c.left.IsZero() {
			*cause = c.whyLeft()
		}
		return nil
	case errors.As(err, &wrong) && wrong.Flood != syntax.NoFlood:
		*cause = network.CauseFlood
		if skipped, ok := c.s.budget.MayLog(time.Now()); ok {
			c.s.o.Log.Warn("a caller's connection was ended because it costs too much", "listener", c.s.o.Listener,
				"remote", c.meta.RemoteText, "flood", wrong.Flood.String(), "not_logged_before", skipped)
		}
		if flooded := c.engine.flooded; flooded != nil {
			flooded(wrong.Flood)
		}
	case wrong != nil && wrong.Code == syntax.InternalError:
		*cause = network.CauseInternal
	case wrong != nil:
		*cause = network.CauseProtocolError
	case protocol.ReasonOf(err) == protocol.RequestTimeout:
		*cause = network.CauseRequestTimeout
	default:
		*cause = network.ClosedByPeer
	}
	return err
}

// whyLeft is why the caller was told to go.
func (c *session) whyLeft() network.CloseReason {
	if c.spent() && !c.conn.Draining() {
		return network.ClosedMaxRequests
	}
	return network.CauseDrained
}

// close ends what is under way, for the connection ends, and waits for that. What
// was answered already still leaves.
func (c *session) close(err error, cancel context.CancelFunc) {
	c.mu.Lock()
	c.chargeEnd(time.Now())
	var wrong *syntax.ConnectionError
	switch {
	case errors.As(err, &wrong):
		c.said(c.state.AppendGoAway(c.scratch[:0], wrong.Code, wrong.Reason), &c.batch)
	case err != io.EOF:
		c.said(c.state.AppendGoAway(c.scratch[:0], syntax.NoError, ""), &c.batch)
	}
	c.mu.Unlock()
	c.batch.now = time.Now()
	c.batch.flush()
	if wrong != nil {
		c.linger()
	}
	c.wire.release()
	cancel()
	c.end(protocol.Faultf(protocol.DownstreamGone, "the connection has ended"), &c.batch)
	c.beginAll() // those that have not begun end at once
	c.mu.Lock()
	for c.count > 0 {
		c.fewer.Wait()
	}
	c.mu.Unlock()
	c.outbox.Close()
}

// linger reads what the caller still sends, so that its unread bytes do not make
// the kernel reset the connection before the GOAWAY was read.
func (c *session) linger() {
	if c.conn.CloseWrite() != nil {
		return
	}
	c.conn.SetReadDeadline(time.Now().Add(lingerTime))
	rest := make([]byte, firstRead)
	for dropped := 0; dropped < mostHeld; {
		n, err := c.conn.Read(rest)
		if err != nil {
			return
		}
		dropped += n
	}
}
