// Package pool owns the connections to one host that speak one protocol for one priority.
//
// New returns a pool of one of these kinds, by the protocol and the configuration of the cluster:
//
//	pingPongPool    a connection carries one exchange at a time       pingpong.go, pingpongconnect.go
//	multiplexPool   a connection carries many concurrently            multiplex.go, multiplexconn.go,
//	                                                                  multiplexconnect.go
//	bindPool        a connection carries those of one downstream      bindpool.go
//	                connection, one at a time or many, as the
//	                protocol does
//	namePool        the exchanges for each host name have a pool of   namepool.go
//	                one of these kinds
//
// A pool opens connections with its Connector (dials.go bounds how many at a time), takes a slot of
// the Breaker for each, and closes those that are idle for too long (sweep.go). It knows no cluster
// and no host: Options holds all that it needs of them.
//
// Lock order: the slots of a Breaker, then the mu of a bindPool or namePool, then the mu of the
// pools that it consists of. No lock is held during I/O.
package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/tasks"
)

// Pool holds connections to a host. Safe for concurrent use.
type Pool interface {
	// Start sends x on a connection to the host. The caller first counts x as in flight, with
	// Options.Load.Begin and Record.BeginAttempt; the connection decrements the counts when it
	// releases x. If Start returns a NotSentError, no connection took x, and the caller decrements
	// them.
	protocol.Service

	// EvictIdle removes a connection that carries nothing from the pool, or returns nil if there is
	// none. The caller closes it and owns its slot.
	EvictIdle() breaker.Evicted

	// Counts returns how many connections are open, and how many of them carry nothing.
	Counts() (open int64, idle int)

	// Close closes the connections that carry nothing, and makes the others end with their last
	// exchange. Exchanges that arrive later are still served.
	Close()
}

// Options are what a pool needs of its host, its cluster and the set. Immutable; all fields are
// required.
type Options struct {
	Address   string          // of the host, for errors
	Protocol  config.Protocol // spoken by Connector
	Connector Connector
	// Config is the last configuration of the cluster; never nil. Its owner replaces it, and the
	// pool reads it for each decision.
	Config  *atomic.Pointer[config.Cluster]
	Breaker *breaker.Breaker  // of the cluster and priority
	Health  *hosthealth.State // of the host; the pool only reads it
	// Load is the load of the host. The pool counts connections in it, and the end of exchanges.
	Load     *balance.Load
	Observer Observer
	Tasks    *tasks.Group // of the set; runs connects and timers
}

// Observer records what happens to the connections of a pool. Safe for concurrent use. The lock of
// a pool may be held while Count is called, so it must not call the pool.
type Observer interface {
	// Connected records that a connection was opened: the host is alive.
	Connected()
	// ConnectFailed records that the host refused a connection or did not accept it in time.
	ConnectFailed(err error)
	// Alive records that an unreachable host responded.
	Alive()
	// Count counts an event.
	Count(Event)
}

// Event is a countable event of a pool.
type Event uint8

// The events.
const (
	ConnectionClosed   Event = iota
	MaxRequestsReached       // a connection carried as many exchanges as it may
	ExtraConnectFailed       // connecting failed while the host has another connection
	Resent                   // a connection was stale: an exchange is sent again
)

// Connector opens connections to the host of a pool.
type Connector interface {
	// Multiplexed reports whether a connection carries many exchanges concurrently.
	Multiplexed() bool
	// Connect opens a connection before the deadline; the zero time means that only ctx ends the
	// attempt. Errors that are not Faults count as ConnectFailure. The connection calls released
	// when it releases an exchange; reusable says that it can take another.
	Connect(ctx context.Context, deadline time.Time, released func(reusable bool)) (Connection, error)
	// ForDownstream returns the Connector of connections that only one downstream connection uses;
	// nil means that they belong to none.
	ForDownstream(meta *protocol.ConnMeta) Connector
	// ForHostname returns the Connector of connections for requests to a host of that name; by says
	// how to use the name.
	ForHostname(by config.AutoSNI, name string) Connector
}

// Connection is a connection to a host. It carries one exchange at a time, or many if its Connector
// is Multiplexed; then many goroutines call Start and Usable. stream.UpstreamConn is one.
type Connection interface {
	// Start sends x.Request. The service is done once the head of the response is in x.Response.
	// Errors are Faults: of ConnectFailure if the connection had ended before x.Request was sent.
	// The connection, or the stream on it, belongs to the exchange until the connection calls the
	// released function that was passed to Connect, exactly once per Start.
	protocol.Service

	// Usable reports whether the connection can take an exchange now, after it was idle for that
	// time: false if the peer closed it or takes no more.
	Usable(idle time.Duration) bool

	// Close closes the connection immediately. Safe for concurrent use; called once.
	Close() error
}

// RTTReporter is a Connection that sends keepalives to its host. stream.RTTReporter is one.
type RTTReporter interface {
	Connection
	// RTT returns the round-trip time of the last keepalive, or 0 if there was none.
	RTT() time.Duration
}

// StreamLimitReporter is a Connection whose host limits the number of concurrent exchanges.
// stream.LimitReporter is one.
type StreamLimitReporter interface {
	Connection
	// MaxConcurrentStreams returns the limit. Exchanges beyond it wait on the connection until
	// others have ended.
	MaxConcurrentStreams() int64
}

// NotSentError is the error of a pool that found no connection for an exchange.
type NotSentError struct{ Err error }

// Error implements error.
func (e *NotSentError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of package errors.
func (e *NotSentError) Unwrap() error { return e.Err }

// CanTryAnotherHost reports whether another host may succeed where err occurred: no connection
// could be opened.
func CanTryAnotherHost(err error) bool {
	reason := protocol.ReasonOf(err)
	return reason == protocol.ConnectFailure || reason == protocol.ConnectTimeout || errors.Is(err, errMaxConnections)
}

// ConnectDeadline returns the deadline of a connect that starts now, or the zero time for none.
func ConnectDeadline(c *config.Cluster) time.Time {
	if c.ConnectTimeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(c.ConnectTimeout)
}

// New returns a pool of the kind that the protocol, the configuration and the mode require. A pool
// that starts closed closes each connection after its exchanges. The caller calls Close.
func New(o Options, mode config.PoolMode, closed bool) Pool {
	b := base{Options: o, open: new(atomic.Int64), dials: new(DialLimit)}
	if cfg := o.Config.Load(); usesNamePool(cfg, o.Protocol) {
		return newNamePool(b, mode, cfg.AutoSNI, closed)
	}
	return newPool(b, mode, closed)
}

// newPool returns a pool of the kind that the protocol and the mode require. A pool that starts
// closed closes each connection after its exchanges.
func newPool(b base, mode config.PoolMode, closed bool) Pool {
	switch {
	case mode == config.Bind && (b.Connector.Multiplexed() || b.Config.Load().ProxyProtocol != 0):
		return &bindPool{base: b, subpools: subpools[any, *bindEntry]{isClosed: closed}}
	case !b.Connector.Multiplexed(), mode == config.PingPong:
		return &pingPongPool{base: b, isClosed: closed}
	default:
		return &multiplexPool{base: b, isClosed: closed}
	}
}

// base holds what pools of every kind have.
type base struct {
	Options // immutable

	open  *atomic.Int64 // connections being opened or open
	dials *DialLimit    // shared by the pools that the pool consists of
	sweep sweepTimer    // guarded by the pool's mu
}

// recordAlive records that the host responded. While it is reachable, that costs one read.
func (b *base) recordAlive() {
	if b.Health.Has(hosthealth.Unreachable) {
		b.Observer.Alive()
	}
}

// countResent counts that an exchange is sent again, because its connection was stale and has
// released it. The host counts the exchange as in flight once more.
func (b *base) countResent() {
	b.Observer.Count(Resent)
	b.Load.Begin()
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
	conn, err = b.Connector.Connect(ctx, deadline, released)
	if err == nil {
		b.Load.Connect()
		b.Observer.Connected()
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
	if b.Tasks.Closed() {
		return protocol.Faultf(protocol.ConnectFailure, "connecting to %s: the clusters are closed", b.Address)
	}
	return err
}

// closeConn closes a connection. It does not free the slot.
func (b *base) closeConn(conn Connection) {
	defer b.Observer.Count(ConnectionClosed)
	defer b.Load.Disconnect()
	defer b.open.Add(-1)
	_ = conn.Close() // nothing handles the error
}
