package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// pool is the connections to a host that speak one protocol. Which kind it is
// depends on the protocol and on the cluster's configuration:
//
//	exclusive   a connection carries one exchange at a time
//	shared      each carries many
//	bound       each carries those of one downstream connection; the protocol may be
//	            one that carries one at a time if connections say for whom they are
//	namePool      those for each name have a pool of one of these kinds
type pool interface {
	// Serve and Start send x on a connection to the host. The counts of exchanges in
	// flight are taken back when the Connection that was given x releases it. With
	// a notSent error none was: that is left to the caller.
	protocol.AsyncService

	// giveWay takes a connection that carries nothing out of the pool, nil if there
	// is none. The caller ends it, and has its slot.
	giveWay() evictedConn

	// counts returns how many connections are open, and how many of them carry
	// nothing.
	counts() (open int64, idle int)

	// close ends the connections that carry nothing, and makes the others end with
	// their last exchange.
	close()
}

// notSent is the error of a pool which has found no connection for an exchange.
type notSent struct{ err error }

// Error is error's.
func (e *notSent) Error() string { return e.err.Error() }

// Unwrap is for the errors package.
func (e *notSent) Unwrap() error { return e.err }

// evictedConn is a connection that is to end, and whose slot goes to somebody else.
type evictedConn interface{ end() }

// newPool returns a pool of the kind that a protocol and a mode ask for. One that
// is born closed keeps no connection longer than its exchanges last.
func newPool(b base, mode config.PoolMode, closed bool) pool {
	switch {
	case mode == config.Bind && (b.connector.Multiplexed() || b.host.ProxyProtocol() != 0):
		return &bindPool{base: b, subpools: subpools[any, *bindEntry]{isClosed: closed}}
	case !b.connector.Multiplexed(), mode == config.PingPong:
		return &pingPongPool{base: b, isClosed: closed}
	default:
		return &multiplexPool{base: b, isClosed: closed}
	}
}

// base is what pools of every kind have.
type base struct {
	host      *Host           // immutable
	breaker   *Breaker        // immutable; of its cluster
	connector Connector       // immutable
	protocol  config.Protocol // immutable; what connector speaks

	open  *atomic.Int64 // connections being opened, or opened and not ended
	dials *dialLimit    // of the lane
	sweep sweeper       // guarded by the pool's mu
}

// connect opens a connection, with a slot taken, before the deadline. It takes
// note of a success; what a failure says about the host is for the caller to
// judge. Errors are Faults. If it panics there is no connection.
func (b *base) connect(ctx context.Context, deadline time.Time, released func(reusable bool)) (conn Connection, err error) {
	b.open.Add(1)
	connected := false
	defer func() {
		switch {
		case connected:
		case conn != nil:
			b.ended(conn)
		default:
			b.open.Add(-1)
		}
	}()
	conn, err = b.connector.Connect(ctx, b.host, deadline, released)
	if err == nil {
		b.host.load.Connect()
		b.host.connected()
		connected = true
		return conn, nil
	}
	var fault *protocol.Fault
	if !errors.As(err, &fault) {
		err = protocol.NewFault(protocol.ConnectFailure, err)
	}
	conn = nil
	return nil, err
}

// closing returns err, or why there are no connections any more.
func (b *base) closing(err error) error {
	if b.host.cluster.env.ctx.Err() != nil {
		return protocol.Faultf(protocol.ConnectFailure, "connecting to %s: the clusters are closed", b.host.address)
	}
	return err
}

// ended closes a connection whose slot is somebody else's concern.
func (b *base) ended(conn Connection) {
	defer b.host.countConnection(ConnectionClosed)
	defer b.host.load.Disconnect()
	defer b.open.Add(-1)
	_ = conn.Close() // there is nobody left to tell
}

// await waits for ready until the deadline passes (UpstreamTimeout), or the
// caller or ctx is gone (DownstreamGone). With None it has received v.
func await[T any](ctx context.Context, deadline time.Time, caller protocol.Downstream, ready <-chan T) (v T, why protocol.Reason) {
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	gone := make(chan struct{})
	if caller != nil {
		stop := caller.OnDisconnect(func() { close(gone) })
		defer stop()
	}
	select {
	case v = <-ready:
		return v, protocol.ReasonNone
	case <-timeout:
		return v, protocol.UpstreamTimeout
	case <-gone:
		return v, protocol.ReasonDownstreamDisconnect
	case <-ctx.Done():
		return v, protocol.ReasonDownstreamDisconnect
	}
}
