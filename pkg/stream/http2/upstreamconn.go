package http2

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// defaultMaxStreams is the maximum number of concurrent streams until the host has sent its limit
// (RFC 9113 6.5.2 recommends at least 100).
const defaultMaxStreams = 100

// upstreamConnWindow is the receive window of an upstream connection, in bytes. It is so large that
// only the window of each stream matters: a client that does not read must not block the responses
// to others (RFC 9113 5.2.2).
const upstreamConnWindow = 1 << 30

// UpstreamConn is one upstream connection, which carries the exchanges of many clients
// concurrently. It implements stream.UpstreamConn.
type UpstreamConn struct {
	muxConn
	opts      stream.UpstreamConnOptions // immutable
	localAddr string                     // immutable; the connection's local address
	tls       *protocol.TLS              // immutable; nil: plaintext

	// closing: the connection accepts no new exchange.
	closing atomic.Bool
	// maxStreams is the number of concurrent streams that the host and the options allow. Until the
	// settings of the host arrive, defaultMaxStreams stands for its limit. Only a goroutine that holds mu changes it.
	maxStreams atomic.Int64
	// rtt is the round-trip time of the last acknowledged PING, in ns; 0: there is none.
	rtt atomic.Int64

	settingsReceived bool       // guarded by mu; the host's settings have arrived
	pending          fifo[call] // guarded by mu; calls that wait until a stream may be opened
	readyCalls       []*call    // owned by the reader goroutine; calls whose response has arrived
	lastReadAt       time.Time  // guarded by mu; when something was last read
	rttPingSentAt    time.Time  // guarded by mu; when the unacknowledged PING was sent; zero: none

	keepalive stream.Keepalive // guarded by mu; its probes are PINGs
}

func newUpstreamConn(e *Engine, conn *network.Conn, opts stream.UpstreamConnOptions) *UpstreamConn {
	u := &UpstreamConn{opts: opts, localAddr: conn.LocalAddr().String(), tls: stream.NewTLSMeta(conn)}
	u.setMaxStreams(defaultMaxStreams)
	h2 := &opts.HTTP2
	u.init(e, conn, u)
	u.creditThreshold, u.streamIdleTimeout = creditThreshold(h2.StreamWindow, upstreamConnWindow, 1), h2.StreamIdleTimeout
	u.pending.linksOf = func(c *call) *links[call] { return &c.pendingLinks }
	u.state = syntax.NewSession(syntax.Config{
		Role:              syntax.Client,
		FirstStream:       e.FirstStream,
		MaxLocalStreams:   uint32(h2.MaxConcurrentStreams),
		StreamWindow:      uint32(h2.StreamWindow),
		ConnectionWindow:  upstreamConnWindow,
		MaxHeaderListSize: uint32(h2.MaxHeaderSize),
		MaxFields:         h2.MaxHeaderCount,
		// No flood limits, because hosts are configured and trusted. Some send small WINDOW_UPDATE
		// frames, or reset a closed stream for each frame that they get on it
		// (TestHostMayResetClosedStreams).
		FloodLimits: syntax.FloodLimits{WindowUpdate: syntax.RateLimit{Burst: -1}, Reset: syntax.RateLimit{Burst: -1}},
	})
	conn.SetWriteTimeout(opts.HTTP1.WriteTimeout)
	u.enqueue(u.state.AppendPreface(nil)) // sent with the first request
	u.lastReadAt = time.Now()
	u.keepalive = stream.Keepalive{Interval: h2.PingInterval, Timeout: h2.PingTimeout}
	e.goroutines.Start(u.run)
	return u
}

// Usable implements stream.UpstreamConn.
func (u *UpstreamConn) Usable(time.Duration) bool { return !u.closing.Load() }

// RTT implements stream.RTTReporter. It returns the round-trip time of the last acknowledged PING,
// or 0.
func (u *UpstreamConn) RTT() time.Duration { return time.Duration(u.rtt.Load()) }

// MaxConcurrentStreams implements stream.LimitReporter.
func (u *UpstreamConn) MaxConcurrentStreams() int64 { return u.maxStreams.Load() }

// setMaxStreams applies the limit of the host. The caller holds mu, or u is not shared yet.
func (u *UpstreamConn) setMaxStreams(limit int64) {
	if own := int64(u.opts.HTTP2.MaxConcurrentStreams); own > 0 {
		limit = min(limit, own)
	}
	u.maxStreams.Store(limit)
}

// Close implements stream.UpstreamConn. The connection's goroutine ends soon after; Engine.Close
// waits for it.
func (u *UpstreamConn) Close() error {
	u.closing.Store(true)
	return u.conn.Close()
}

// run reads until the connection ends, and then fails the remaining calls.
func (u *UpstreamConn) run() {
	b := &batch{now: time.Now()}
	flush := func() {
		b.flush()
		u.read.Unflushed = 0
	}
	u.failAll(u.readAll(flush, b), b)
}

// readAll reads and processes frames until the connection ends, and returns the reason.
func (u *UpstreamConn) readAll(flush func(), b *batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			u.engine.goroutines.LogPanic("reading an upstream connection, which is closed", p)
			err = errInternal
		}
	}()
	for {
		u.reserveNextRead(b)
		if err := u.read.Fill(u.conn, flush); err != nil {
			return err
		}
		b.now = time.Now()
		if err := u.processRead(b); err != nil {
			return err
		}
		if u.read.Unflushed >= stream.MaxReadPerFlush || u.writeQueue.Queued() >= network.HighWatermark {
			flush()
		}
		u.writeQueue.AwaitCapacityBelow(maxPendingWrites)
	}
}

// processRead processes every complete frame in the buffer, and then the responses that arrived in
// them.
func (u *UpstreamConn) processRead(b *batch) error {
	err := u.processFrames(b)
	u.recordRead(b.now, u.effects)
	u.effects.apply(b)
	u.resumeReady(b)
	return err
}

// resumeReady resumes the exchanges whose response has arrived, each one once.
func (u *UpstreamConn) resumeReady(b *batch) {
	for i, c := range u.readyCalls {
		if c != nil { // nil: it was resumed before a panic
			u.readyCalls[i] = nil
			c.resumeExchange(b)
		}
	}
	u.readyCalls = u.readyCalls[:0]
}

// recordRead records that something was read, and opens streams for queued calls.
func (u *UpstreamConn) recordRead(now time.Time, fx *effects) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lastReadAt = now
	u.openPending(now, fx)
}

// handleSideEvent implements connSide.
func (u *UpstreamConn) handleSideEvent(event *syntax.Event, b *batch, fx *effects) {
	switch event.Kind {
	case syntax.HeadersArrived:
		if ms := muxStreamOf(event.Stream); ms != nil {
			if c, ok := ms.owner.(*call); ok {
				ms.touch(b.now)
				c.handleHead(event, b, fx)
			}
		}
	case syntax.SettingsArrived:
		u.settingsReceived = true
		u.setMaxStreams(int64(u.state.PeerSettings().MaxConcurrentStreams))
	case syntax.GoAwayArrived:
		u.handleGoAway(event, fx)
	case syntax.PingAcked:
		if !u.rttPingSentAt.IsZero() {
			u.rtt.Store(int64(max(b.now.Sub(u.rttPingSentAt), 1)))
			u.rttPingSentAt = time.Time{}
		}
	default: // the other events need no action
	}
}

// handleGoAway fails the calls that the host will not process (RFC 9113 6.8), and the calls that
// wait for a stream. Other calls continue. The caller holds mu.
func (u *UpstreamConn) handleGoAway(event *syntax.Event, fx *effects) {
	u.closing.Store(true)
	fault := protocol.Faultf(protocol.ConnectFailure, "the host sent GOAWAY: %v", event.Code)
	u.failPending(fault, fx)
	for s := range u.state.Streams() {
		if ms := muxStreamOf(s); ms != nil && u.state.Unprocessed(s) {
			ms.owner.fail(fault, fx)
		}
	}
}

// failPending fails the calls that wait for a stream. The caller holds mu.
func (u *UpstreamConn) failPending(fault error, fx *effects) {
	for c := u.pending.pop(); c != nil; c = u.pending.pop() {
		c.fail(fault, fx)
	}
}

// resetFault implements connSide. The host did not process a stream that it refused (RFC 9113 8.7).
// A gRPC server resets streams at the deadline, possibly before expireStreams runs.
func (u *UpstreamConn) resetFault(ms *muxStream, code syntax.Code, now time.Time) error {
	switch {
	case code == syntax.RefusedStream:
		return newResetFault(protocol.ConnectFailure, code).WithEnvoyReply(remoteRefusal)
	case !ms.deadline.IsZero() && !ms.deadline.After(now):
		return newResetFault(protocol.UpstreamTimeout, code)
	}
	return newResetFault(protocol.UpstreamReset, code).WithEnvoyReply(remoteReset)
}

func newResetFault(reason protocol.Reason, code syntax.Code) *protocol.Fault {
	return protocol.Faultf(reason, "the host reset the stream: %v", code)
}

// Replies for streams that the host has reset, and for connections that end before a response is
// complete.
//
//nolint:gochecknoglobals // constants
var (
	remoteReset    = protocol.EnvoyReply{ResetReason: "remote reset", Flag: "UR"}
	remoteRefusal  = protocol.EnvoyReply{ResetReason: "remote refused stream reset", Flag: "UR"}
	connectionLost = protocol.EnvoyReply{ResetReason: "connection termination", Flag: "UC"}
)

// protocolFault implements connSide.
func (u *UpstreamConn) protocolFault(e *syntax.StreamError) error {
	return protocol.NewFault(protocol.UpstreamMalformed, e)
}

// chargeThreshold implements connSide.
func (u *UpstreamConn) chargeThreshold(time.Time) int { return minCharges }

// charge implements connSide. Hosts are configured and trusted, so nothing is charged.
func (u *UpstreamConn) charge(int, time.Time) error { return nil }

// idleReason implements connSide.
func (u *UpstreamConn) idleReason() protocol.Reason { return protocol.StreamIdle }

// expireSide implements connSide: it fails the queued calls whose deadline has passed, and sends a
// PING to a silent host, or closes the connection if the host has not answered the last one.
func (u *UpstreamConn) expireSide(b *batch, fx *effects) {
	for c := range u.pending.all() {
		switch deadline := c.x.EffectiveDeadline(); {
		case deadline.IsZero():
		case !deadline.After(b.now):
			c.fail(protocol.Faultf(protocol.UpstreamTimeout, "timeout before a stream was available"), fx)
		default:
			u.arm(deadline)
		}
	}
	if u.state.Len() == 0 {
		return
	}
	action, next := u.keepalive.Check(b.now, u.lastReadAt)
	u.arm(next)
	switch action {
	case stream.KeepaliveProbe:
		u.rttPingSentAt = b.now
		u.enqueueBatched(u.state.AppendPing(u.scratch[:0], 0), b)
	case stream.KeepaliveFail:
		fx.unresponsive = u.conn
	case stream.KeepaliveWait:
	}
}

// failAll fails all calls because the connection is lost.
func (u *UpstreamConn) failAll(err error, b *batch) {
	u.closing.Store(true)
	var connErr *syntax.ConnectionError
	if errors.As(err, &connErr) {
		u.mu.Lock()
		u.enqueueBatched(u.state.AppendGoAway(u.scratch[:0], connErr.Code, connErr.Reason), b)
		u.mu.Unlock()
	}
	u.resumeReady(b) // a panic of the reader may have left some calls
	// Flush now: write queues may borrow bytes of the buffer that is released below.
	b.flush()
	_ = u.conn.Close() // it may already be closed
	u.writeQueue.Fail(err)
	u.read.Release()
	fault := connLostFault(err)
	b.now = time.Now()
	u.failStreams(fault, b)
	var fx effects
	u.mu.Lock()
	u.failPending(fault, &fx)
	u.mu.Unlock()
	fx.apply(b)
	b.flush()
}

// connLostFault returns the Fault of the calls in flight on a connection that ended with err.
func connLostFault(err error) error {
	var connErr *syntax.ConnectionError
	switch {
	case errors.As(err, &connErr) && connErr.Code == syntax.InternalError:
		return protocol.NewFault(protocol.Internal, err)
	case connErr != nil:
		return protocol.NewFault(protocol.UpstreamMalformed, err)
	case errors.Is(err, io.EOF):
		return protocol.Faultf(protocol.UpstreamClosed, "waiting for the response: %w", err).WithEnvoyReply(connectionLost)
	}
	return protocol.Faultf(protocol.UpstreamReset, "waiting for the response: %w", err).WithEnvoyReply(connectionLost)
}
