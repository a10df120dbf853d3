package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
)

// pool holds the connections to a host that speak one protocol. Its kind depends on the protocol
// and on the cluster's configuration:
//
//	pingPongPool    a connection carries one exchange at a time
//	multiplexPool   a connection carries many concurrently
//	bindPool        a connection carries those of one downstream connection, one at a time or
//	                many, as the protocol does
//	namePool        the exchanges for each host name have a pool of one of these kinds
type pool interface {
	// Start sends x on a connection to the host. The connection decrements the counts of
	// exchanges in flight when it releases x. With a notSent error no connection took x, and the
	// caller decrements them.
	protocol.Service

	// evictIdleConn removes a connection that carries nothing from the pool, or returns nil if there is
	// none. The
	// caller closes it and owns its slot.
	evictIdleConn() breaker.Evicted

	// counts returns how many connections are open, and how many of them carry nothing.
	counts() (open int64, idle int)

	// close closes the connections that carry nothing, and makes the others end with their last
	// exchange.
	close()
}

// notSent is the error of a pool that found no connection for an exchange.
type notSent struct{ err error }

// Error implements error.
func (e *notSent) Error() string { return e.err.Error() }

// Unwrap implements the interface of package errors.
func (e *notSent) Unwrap() error { return e.err }

// newPool returns a pool of the kind that the protocol and the mode require. A pool that starts
// closed closes each connection after its exchanges.
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

// base holds what pools of every kind have.
type base struct {
	host      *Host            // immutable
	breaker   *breaker.Breaker // immutable; of its cluster
	connector Connector        // immutable
	protocol  config.Protocol  // immutable; spoken by connector

	open  *atomic.Int64 // connections being opened or open
	dials *dialLimit    // of the lane
	sweep sweepTimer    // guarded by the pool's mu
}

// Connections implements breaker.Pool.
func (b *base) Connections() int64 { return b.open.Load() }

// connect opens a connection before the deadline; its slot is taken. It records a success; the
// caller judges what a failure says about the host. Errors are Faults. If it panics, there is no
// connection.
func (b *base) connect(ctx context.Context, deadline time.Time, released func(reusable bool)) (conn Connection, err error) {
	b.open.Add(1)
	connected := false
	defer func() {
		switch {
		case connected:
		case conn != nil:
			b.closeConn(conn)
		default:
			b.open.Add(-1)
		}
	}()
	conn, err = b.connector.Connect(ctx, b.host, deadline, released)
	if err == nil {
		b.host.load.Connect()
		b.host.recordConnect()
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

// errOrClosed returns err, or a Fault if the set is closed.
func (b *base) errOrClosed(err error) error {
	if b.host.cluster.env.tasks.Closed() {
		return protocol.Faultf(protocol.ConnectFailure, "connecting to %s: the clusters are closed", b.host.address)
	}
	return err
}

// closeConn closes a connection. It does not free the slot.
func (b *base) closeConn(conn Connection) {
	defer b.host.countConnection(ConnectionClosed)
	defer b.host.load.Disconnect()
	defer b.open.Add(-1)
	_ = conn.Close() // nothing handles the error
}
