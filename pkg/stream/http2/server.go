package http2

import (
	"context"
	"errors"
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
	// idleCheckInterval is how often the reader of a silent connection checks whether exchanges are
	// still in flight.
	idleCheckInterval = 5 * time.Second
	// defaultFrameTimeout is the frame timeout if request bodies have no timeout.
	defaultFrameTimeout = 30 * time.Second
	// lingerTime bounds how long the server waits for a client that violated the protocol to read
	// the GOAWAY, and how long a stream lingers.
	lingerTime = time.Second
	// shutdownNoticeStreamID is the first stream identifier at which the server sends the shutdown
	// notice. The client can still open 32,768 streams until it has seen the notice (RFC 9113
	// 5.1.1).
	shutdownNoticeStreamID = syntax.MaxStreamID - 1<<16
	// drainPing is the data of the PING whose acknowledgement shows that a client has seen the
	// shutdown notice.
	drainPing = 0x77656674_64726e00
)

// server is the downstream side of the engine for the connections of one listener.
type server struct {
	engine            *Engine
	opts              stream.ServerOptions
	service           protocol.Service
	yieldsBeforeFlush bool // GOMAXPROCS is 1; see startAndFlush
	dateCache         stream.DateCache
	floodLimiter      *stream.FloodLimiter   // shared by the servers of the listener
	floodLimits       stream.FloodRateLimits // immutable
}

func newServer(e *Engine, opts stream.ServerOptions) *server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &server{engine: e, opts: opts, service: opts.Service, yieldsBeforeFlush: runtime.GOMAXPROCS(0) == 1, floodLimiter: e.floodLimiter(opts.Listener), floodLimits: stream.FloodRateLimitsOf(&opts.HTTP2)}
}

// IdleTimeout implements network.ClientFirstHandler.
func (s *server) IdleTimeout() time.Duration { return s.opts.IdleTimeout }

// frameTimeout returns how long the client may be silent within a frame or the preface.
func (s *server) frameTimeout() time.Duration {
	if d := s.opts.HTTP1.BodyTimeout; d > 0 {
		return d
	}
	return defaultFrameTimeout
}

// ServeConn implements network.Handler.
func (s *server) ServeConn(ctx context.Context, conn *network.Conn) error {
	c := s.newDownstreamConn(conn)
	c.start()
	return c.ServeConn(ctx, conn)
}

// newDownstreamConn returns the downstreamConn of a connection. It has not queued any frame yet.
func (s *server) newDownstreamConn(conn *network.Conn) *downstreamConn {
	c := &downstreamConn{server: s, meta: stream.NewConnMeta(s.opts.Listener, conn)}
	h2 := &s.opts.HTTP2
	c.init(s.engine, conn, c)
	c.creditThreshold, c.streamIdleTimeout = creditThreshold(h2.StreamWindow, h2.ConnectionWindow, h2.MaxConcurrentStreams), h2.StreamIdleTimeout
	c.state = syntax.NewSession(syntax.Config{
		Role:                 syntax.Server,
		MaxConcurrentStreams: uint32(h2.MaxConcurrentStreams),
		StreamWindow:         uint32(h2.StreamWindow),
		ConnectionWindow:     uint32(h2.ConnectionWindow),
		MaxHeaderListSize:    uint32(s.opts.HTTP1.MaxHeaderSize),
		MaxFields:            s.opts.HTTP1.MaxHeaderCount,
		EnableConnect:        true,
		FloodLimits:          syntax.FloodLimits{Reset: syntax.RateLimit(h2.ConnectionResets)},
	})
	c.inflightCond.L = &c.mu
	c.onWait = c.startAndFlush
	return c
}

// start queues the server's connection preface.
func (c *downstreamConn) start() {
	c.conn.SetWriteTimeout(c.server.opts.HTTP1.WriteTimeout)
	c.conn.Handler = c // serves the connection again after it was parked
	c.mu.Lock()
	c.enqueueBatched(c.state.AppendPreface(nil), &c.batch)
	c.mu.Unlock()
}

// creditThreshold returns how many bytes of a stream's body are consumed before they are reported
// to the session: so few that the unreported bytes of all streams leave most of both windows open.
func creditThreshold(streamWindow, connWindow, maxStreams int) int {
	return max(1, min(streamWindow/4, connWindow/4/max(maxStreams, 1)))
}

// downstreamConn is a downstream connection. The reader goroutine owns the fields whose comment
// does not name a lock.
type downstreamConn struct {
	muxConn
	server      *server
	ctx         context.Context //nolint:containedctx // the context of the connection and its exchanges
	meta        protocol.ConnMeta
	batch       batch
	onWait      func() // startAndFlush as a func value, created once
	prefaceRead bool   // the client's preface has been read
	unstarted   []unstartedExchange

	shutdownNoticeAt time.Time // when the shutdown notice was queued; zero: not yet
	goAwaySent       bool      // guarded by mu; the final GOAWAY was queued

	inflight     int       // guarded by mu; exchanges in flight
	inflightCond sync.Cond // on mu: inflight decreased
}

// unstartedExchange is an exchange that starts once everything that arrived with its head has been
// processed. rejectErr is the error if the request was rejected.
type unstartedExchange struct {
	e         *exchange
	rejectErr error
}

// ServeConn implements network.Handler, for the first call and after the connection was parked.
func (c *downstreamConn) ServeConn(ctx context.Context, _ *network.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.ctx = ctx
	err := c.serve()
	if errors.Is(err, network.ErrPark) {
		c.park()
		return err
	}
	partialFrame := c.hasPartialFrame() // close releases the buffer
	c.close(err, cancel)
	return c.setCloseReason(err, partialFrame)
}

// serve calls run, and ends the connection with errInternal if that panics.
func (c *downstreamConn) serve() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.engine.goroutines.LogPanic("reading a downstream connection, which is closed", p)
			err = errInternal
		}
	}()
	c.startExchanges() // the request of a connection that was upgraded from HTTP/1.1
	return c.run()
}

// park releases what a parked connection does not need, and sets its idle timeout.
func (c *downstreamConn) park() {
	stream.SetReadTimeout(c.conn, c.server.opts.IdleTimeout)
	c.ctx, c.batch, c.unstarted, c.effects = nil, batch{}, nil, nil
	c.writeQueue.Shrink()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scratch = nil
	c.state.Shrink()
	c.stopTimer()
	c.timer.Shrink()
}

// IdleTimeout implements network.ClientFirstHandler.
func (c *downstreamConn) IdleTimeout() time.Duration { return c.server.opts.IdleTimeout }

// run reads and processes frames until the connection has to end or be parked.
func (c *downstreamConn) run() error {
	for {
		if c.conn.Draining() || c.maxRequestsReached() {
			c.sendShutdownNotice()
		}
		c.sendGoAwayAfterGrace()
		if c.read.Unflushed >= stream.MaxReadPerFlush || c.writeQueue.Queued() >= network.HighWatermark {
			c.flush()
		}
		c.writeQueue.AwaitCapacityBelow(maxPendingWrites)
		err := c.fill()
		switch {
		case err == nil:
			err = c.processRead()
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = c.handleReadTimeout()
		case errors.Is(err, network.ErrDraining):
			c.sendShutdownNotice()
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// startAndFlush starts the requests that have arrived and flushes the batch, because there is
// nothing to read. Services must not close the connection on this goroutine, which is inside a read
// of the connection. If GOMAXPROCS is 1, startAndFlush lets other readers run before the flush, so
// that their frames to the same hosts are sent in the same writes.
func (c *downstreamConn) startAndFlush() {
	c.startExchanges()
	if c.server.yieldsBeforeFlush && len(c.batch.dirty.Queues()) > 0 {
		runtime.Gosched()
	}
	c.flush()
}

func (c *downstreamConn) flush() {
	c.batch.flush()
	c.read.Unflushed = 0
}

// fill sets the read deadline and reads once. A connection holds no buffer while it waits for a new
// frame.
func (c *downstreamConn) fill() error {
	timeout := stream.ParkAfter
	hasInflight := c.inflightCount() > 0
	switch {
	case c.hasPartialFrame() || !c.prefaceRead:
		timeout = c.server.frameTimeout()
	case !c.shutdownNoticeAt.IsZero() && !hasInflight:
		timeout = stream.CloseGrace
	case !c.shutdownNoticeAt.IsZero():
		timeout = c.server.opts.HTTP2.DrainGrace
	case hasInflight:
		timeout = idleCheckInterval
	}
	c.reserveNextRead(&c.batch)
	idle := c.shutdownNoticeAt.IsZero() && !c.hasPartialFrame()
	err := c.read.FillTimeout(c.conn, timeout, idle, c.onWait)
	c.batch.now = time.Now()
	return err
}

// handleReadTimeout handles a client that has sent nothing until the read deadline. The error ends
// or parks the connection.
func (c *downstreamConn) handleReadTimeout() error {
	c.flush()
	s := stream.SilentConn{
		PartialFrame: c.hasPartialFrame() || !c.prefaceRead, Inflight: c.inflightCount() > 0, Draining: !c.shutdownNoticeAt.IsZero(), FrameTimeout: c.server.frameTimeout(),
	}
	if s.Draining && !s.PartialFrame {
		c.sendGoAway()
	}
	return s.Err()
}

// processRead processes every complete frame in the buffer. It starts the requests if at least
// maxUnstartedRead bytes were read since the last flush.
func (c *downstreamConn) processRead() error {
	if !c.prefaceRead {
		n, err := syntax.ParsePreface(c.read.Buf.Bytes())
		if n == 0 || err != nil {
			return err
		}
		c.prefaceRead = true
		c.read.Buf.Discard(n)
	}
	err := c.processFrames(&c.batch)
	if err == nil && c.read.Unflushed >= maxUnstartedRead {
		c.startExchanges() // otherwise startAndFlush starts them
	}
	return err
}

// maxUnstartedRead is the number of bytes after which the reader starts the requests in them, even
// if there is more to read. A request is not served if its RST_STREAM or a disconnect arrives
// before the request starts (CVE-2023-44487).
const maxUnstartedRead = 64 << 10

func (c *downstreamConn) startExchanges() {
	for _, u := range c.unstarted {
		u.e.start(&c.batch, u.rejectErr)
	}
	clear(c.unstarted)
	c.unstarted = c.unstarted[:0]
}

// handleSideEvent implements connSide.
func (c *downstreamConn) handleSideEvent(event *syntax.Event, b *batch, fx *effects) {
	switch event.Kind {
	case syntax.HeadersArrived:
		c.conn.Requests++
		ex := c.engine.newExchange()
		ex.downstream, ex.conn = c, &c.muxConn
		ex.attach(event.Stream, ex, b.now)
		if c.streamIdleTimeout > 0 {
			c.arm(b.now.Add(c.streamIdleTimeout))
		}
		c.inflight++
		c.unstarted = append(c.unstarted, unstartedExchange{ex, ex.takeHead(c, event.End, b)})
		if event.Stream.ID >= shutdownNoticeStreamID {
			fx.shutdownNotice = c
		}
	case syntax.PingAcked:
		if event.Ping == drainPing {
			fx.goAway = c
		}
	default: // the session handles the client's settings; a client's GOAWAY has no effect
	}
}

// resetFault implements connSide.
func (c *downstreamConn) resetFault(_ *muxStream, code syntax.Code, _ time.Time) error {
	return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client reset the stream: %v", code).WithEnvoyReply(clientReset)
}

// clientReset is how Envoy expresses that the client has reset the stream.
//
//nolint:gochecknoglobals // a constant
var clientReset = protocol.EnvoyReply{Details: "http2.remote_reset", Flag: "DR"}

// protocolFault implements connSide.
func (c *downstreamConn) protocolFault(e *syntax.StreamError) error {
	return protocol.NewFault(protocol.ReasonDownstreamDisconnect, e)
}

// idleReason implements connSide.
func (c *downstreamConn) idleReason() protocol.Reason { return protocol.RequestIdle }

// expireSide implements connSide: a downstream connection has only the deadlines of its streams.
func (c *downstreamConn) expireSide(*batch, *effects) {}

// releaseExchange records that an exchange has ended.
func (c *downstreamConn) releaseExchange() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inflight--
	c.inflightCond.Signal()
}

func (c *downstreamConn) inflightCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inflight
}
