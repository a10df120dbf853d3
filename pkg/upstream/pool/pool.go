// Package pool manages the connections to one host that speak one protocol for one priority.
//
// New returns a pool of one of these types, by the protocol and the configuration of the cluster:
//
//	pingPongPool    a connection carries one exchange at a time       pingpong.go, pingpongconnect.go
//	multiplexPool   a connection carries many exchanges concurrently  multiplex.go, multiplexconn.go,
//	                                                                  multiplexconnect.go
//	bindPool        a connection carries the exchanges of one         bindpool.go
//	                downstream connection, one at a time or many,
//	                depending on the protocol
//	alpnPool        has a pool of one of these types for each         alpnpool.go
//	                version of HTTP, if the host chooses the version
//	namePool        the exchanges for each host name have a pool of   namepool.go
//	                one of these types
//
// A pool opens connections with its Connector (dials.go bounds the concurrent dials), acquires a
// slot of the Breaker for each, and closes connections that are idle for too long (sweep.go). It
// does not depend on clusters and hosts: Options holds all that it needs of them.
//
// Lock order: the slots of a Breaker, then the mu of a bindPool or namePool, then the mu of its
// subpools. No goroutine holds a lock during I/O.
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
	// Start sends x on a connection to the host. The caller first calls Record.BeginAttempt and
	// Options.Load.Begin. The pool calls Load.End when the connection releases x. If Start returns
	// a NotSentError, no connection has x, and the caller calls Load.End.
	protocol.Service

	// EvictIdle removes an idle connection from the pool and returns it, or returns nil if there is
	// none. The caller closes it and owns its slot.
	EvictIdle() breaker.Evicted

	// CloseIdle closes connections that have been idle for d, and returns their number. A bindPool
	// closes none: its connections end with their downstream connections.
	CloseIdle(d time.Duration) int

	// Stats returns the current numbers of the pool.
	Stats() Stats

	// Close closes idle connections immediately, and the others after their last exchange. The pool
	// still serves exchanges that arrive later.
	Close()
}

// Stats describes the connections of a pool. They change while Stats reads them, so the numbers may
// not add up.
type Stats struct {
	Open   int64         // connections that are open or being opened
	Idle   int           // open connections that carry no exchange
	MaxRTT time.Duration // longest of the last round-trip times of the connections; 0: unknown
}

// Options holds the dependencies of a pool. Immutable; all fields are required.
type Options struct {
	Address   string          // address of the host, for errors
	Protocol  config.Protocol // protocol of Connector
	Connector Connector
	// Config is the last configuration of the cluster; never nil. The cluster replaces it, and the
	// pool reads it for each decision.
	Config  *atomic.Pointer[config.Cluster]
	Breaker *breaker.Breaker  // of the cluster and priority
	Health  *hosthealth.State // of the host; the pool only reads it
	// Load is the load of the host. The pool counts connections and the end of exchanges in it.
	Load     *balance.Load
	Observer Observer
	Tasks    *tasks.Group // of the set; runs connects and timers
}

// Observer records the events of the connections of a pool. Safe for concurrent use. A pool may
// hold its lock while it calls Count, so Count must not call the pool.
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
	MaxRequestsReached       // a connection reached its maximum number of exchanges
	ExtraConnectFailed       // a connect failed while the pool has another connection
	Resent                   // a connection was stale: the request is resent
)

// Connector opens connections to the host of a pool.
type Connector interface {
	// Multiplexed reports whether a connection carries many exchanges concurrently.
	Multiplexed() bool
	// Connect opens a connection before the deadline; the zero time means that only ctx ends the
	// attempt. Errors that are not Faults count as ConnectFailure. The connection calls released
	// when it releases an exchange; reusable reports whether it can carry another exchange.
	Connect(ctx context.Context, deadline time.Time, released func(reusable bool)) (Connection, error)
	// ForDownstream returns a Connector whose connections serve only the downstream connection of
	// meta. meta is nil for exchanges without a downstream connection.
	ForDownstream(meta *protocol.ConnMeta) Connector
	// ForHostname returns a Connector whose connections serve only requests for the hostname name.
	// autoSNI says how to use the name.
	ForHostname(autoSNI config.AutoSNI, name string) Connector
}

// Connection is a connection to a host. It carries one exchange at a time, or many if its Connector
// is Multiplexed; then many goroutines call Start and Usable. stream.UpstreamConn implements it.
type Connection interface {
	// Start sends x.Request. The service is done once the head of the response is in x.Response.
	// Errors are Faults: of ConnectFailure if the connection had ended before x.Request was sent.
	// The connection, or the stream on it, belongs to the exchange until the connection calls the
	// released function that was passed to Connect, exactly once per Start.
	protocol.Service

	// Usable reports whether the connection can carry an exchange now, after it was idle for the
	// given time. It returns false if the host closed it or accepts no further exchanges.
	Usable(idle time.Duration) bool

	// Close closes the connection immediately. Safe for concurrent use; called once.
	Close() error
}

// RTTReporter is a Connection that sends keepalives to its host. stream.RTTReporter implements it.
type RTTReporter interface {
	Connection
	// RTT returns the round-trip time of the last acknowledged keepalive, or 0 if there was none.
	RTT() time.Duration
}

// StreamLimitReporter is a Connection whose host limits the number of concurrent exchanges.
// stream.LimitReporter implements it.
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

// CanTryAnotherHost reports whether err means that no connection could be opened, so that another
// host may succeed.
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

// New returns a pool of the type that the protocol, the configuration and the mode require. A pool
// that starts closed closes each connection after its exchanges. The caller calls Close.
func New(o Options, mode config.PoolMode, closed bool) Pool {
	b := base{Options: o, open: new(atomic.Int64), dials: new(DialLimit)}
	if cfg := o.Config.Load(); usesNamePool(cfg, o.Protocol) {
		return newNamePool(b, mode, cfg.AutoSNI, closed)
	}
	return newPool(b, mode, closed)
}

// newPool returns a pool of the type that the protocol and the mode require. A pool that starts
// closed closes each connection after its exchanges.
func newPool(b base, mode config.PoolMode, closed bool) Pool {
	switch {
	case b.Protocol == config.HTTPByALPN:
		return newALPNPool(b, mode, closed)
	case mode == config.Bind && (b.Connector.Multiplexed() || b.Config.Load().ProxyProtocol != 0 || b.Config.Load().Pool.BindAll):
		return &bindPool{base: b, subpools: subpools[any, *bindEntry]{isClosed: closed}}
	case !b.Connector.Multiplexed(), mode == config.PingPong:
		return &pingPongPool{base: b, isClosed: closed}
	default:
		return &multiplexPool{base: b, isClosed: closed}
	}
}

// base holds the common fields of all pools.
type base struct {
	Options // immutable

	open  *atomic.Int64 // connections that are open or being opened
	dials *DialLimit    // shared by the subpools of a pool
	sweep sweepTimer    // guarded by the pool's mu
}

// recordAlive records that the host responded. For a reachable host it costs one read.
func (b *base) recordAlive() {
	if b.Health.Has(hosthealth.Unreachable) {
		b.Observer.Alive()
	}
}

// countResent counts that a request is resent because its connection was stale. The connection has
// released the exchange, so countResent counts it as in flight at the host again.
func (b *base) countResent() {
	b.Observer.Count(Resent)
	b.Load.Begin()
}

// Connections implements breaker.Pool.
func (b *base) Connections() int64 { return b.open.Load() }

// connect opens a connection before the deadline. The caller has acquired the slot. connect records
// a success; the caller records a failure. Errors are Faults. If connect panics, it closes the
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

// expiryOfNew returns the time, by the set's clock, from which a connection that opens now takes no
// more exchanges; 0: never.
func (b *base) expiryOfNew() time.Duration {
	if d := b.Config.Load().HTTP.MaxConnectionDuration; d > 0 && (b.Protocol == config.HTTP1 || b.Protocol == config.HTTP2) {
		return b.Tasks.Now() + d
	}
	return 0
}

// isExpired reports whether a connection with that expiry takes no more exchanges.
func (b *base) isExpired(expiry time.Duration) bool { return expiry > 0 && b.Tasks.Now() >= expiry }

// closeConn closes a connection. It does not free the slot.
func (b *base) closeConn(conn Connection) {
	defer b.Observer.Count(ConnectionClosed)
	defer b.Load.Disconnect()
	defer b.open.Add(-1)
	_ = conn.Close()
}
