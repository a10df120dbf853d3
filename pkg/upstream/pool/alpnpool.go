package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
)

// Negotiator is a Connector to a host that chooses HTTP/1.1 or HTTP/2 for each connection. The
// Connectors that its ForDownstream and ForHostname return are Negotiators, too.
type Negotiator interface {
	Connector
	// Negotiate does what Connect does, and also returns the protocol of the connection: HTTP1 or
	// HTTP2.
	Negotiate(ctx context.Context, deadline time.Time, released func(reusable bool)) (Connection, config.Protocol, error)
}

// alpnPool is a pool for a host that chooses the protocol of each connection. It has a pool for each
// protocol, and uses the one of the last connection, at first HTTP/2. If the host then chooses the
// other protocol for a new connection, the exchanges that wait for it move to the other pool, which
// takes over the connection.
type alpnPool struct {
	http1, http2 Pool        // immutable
	usesHTTP1    atomic.Bool // the last connection uses HTTP/1.1

	mu       sync.Mutex
	spare    *spareConn // guarded by mu; connection that waits for the other pool; nil: none
	isClosed bool       // guarded by mu
}

// spareConn is a connection that was opened for the pool of the other protocol.
type spareConn struct {
	conn     Connection
	protocol config.Protocol
	release  *releaseHook
}

// releaseHook is the released function of a connection. It is set before an exchange uses the
// connection.
type releaseHook struct{ released func(reusable bool) }

func (r *releaseHook) call(reusable bool) { r.released(reusable) }

// errOtherProtocol means that the host chose the protocol of the other pool. It is no failure of the
// host.
var errOtherProtocol = errors.New("the host chose another version of HTTP")

// newALPNPool returns an alpnPool with subpools of the types that mode requires. b.Connector is a
// Negotiator.
func newALPNPool(b base, mode config.PoolMode, closed bool) Pool {
	p := &alpnPool{isClosed: closed}
	sub := func(proto config.Protocol) Pool {
		s := b
		s.open = new(atomic.Int64) // both share the DialLimit
		s.Protocol, s.Connector = proto, negotiatedConnector{b.Connector, p, proto, true}
		return newPool(s, mode, closed)
	}
	p.http1, p.http2 = sub(config.HTTP1), sub(config.HTTP2)
	return p
}

// current returns the pool of the protocol of the last connection.
func (p *alpnPool) current() Pool {
	if p.usesHTTP1.Load() {
		return p.http1
	}
	return p.http2
}

// Start implements Pool.
func (p *alpnPool) Start(ctx context.Context, x *protocol.Exchange) error {
	x.PushFinisher(p)
	return p.current().Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (p *alpnPool) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	if isOtherProtocol(err) {
		return x.RunBlocking(ctx, protocol.BlockingFunc(p.serveOnOther))
	}
	return err
}

// serveOnOther serves an exchange whose connection uses the protocol of the other pool.
func (p *alpnPool) serveOnOther(ctx context.Context, x *protocol.Exchange) (err error) {
	for range maxConnAttempts {
		if err = x.Serve(ctx, p.current()); !isOtherProtocol(err) {
			return err
		}
	}
	return err
}

// isOtherProtocol reports whether err is the error of a pool whose host chose the other protocol.
func isOtherProtocol(err error) bool {
	notSent, ok := errors.AsType[*NotSentError](err)
	return ok && errors.Is(notSent.Err, errOtherProtocol)
}

// takeSpare returns the spare connection if it uses the protocol, or nil.
func (p *alpnPool) takeSpare(proto config.Protocol, released func(reusable bool)) Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spare
	if s == nil || s.protocol != proto {
		return nil
	}
	p.spare, s.release.released = nil, released
	return s.conn
}

// keepSpare makes s the spare connection, or closes it if there is one already.
func (p *alpnPool) keepSpare(s *spareConn) {
	p.mu.Lock()
	keep := p.spare == nil && !p.isClosed
	if keep {
		p.spare = s
	}
	p.mu.Unlock()
	if !keep {
		_ = s.conn.Close() // no exchange used it
	}
}

// EvictIdle implements Pool.
func (p *alpnPool) EvictIdle() breaker.Evicted {
	if idle := p.http1.EvictIdle(); idle != nil {
		return idle
	}
	return p.http2.EvictIdle()
}

// CloseIdle implements Pool.
func (p *alpnPool) CloseIdle(d time.Duration) int {
	p.closeSpare(false)
	return p.http1.CloseIdle(d) + p.http2.CloseIdle(d)
}

// Stats implements Pool.
func (p *alpnPool) Stats() Stats {
	a, b := p.http1.Stats(), p.http2.Stats()
	return Stats{Open: a.Open + b.Open, Idle: a.Idle + b.Idle, MaxRTT: max(a.MaxRTT, b.MaxRTT)}
}

// Close implements Pool.
func (p *alpnPool) Close() {
	p.closeSpare(true)
	p.http1.Close()
	p.http2.Close()
}

// closeSpare closes the spare connection. If final is true, there will be none later.
func (p *alpnPool) closeSpare(final bool) {
	p.mu.Lock()
	s := p.spare
	p.spare, p.isClosed = nil, p.isClosed || final
	p.mu.Unlock()
	if s != nil {
		_ = s.conn.Close() // no exchange used it
	}
}

// negotiatedConnector is the Connector of the pool of one protocol in an alpnPool.
type negotiatedConnector struct {
	Connector            // a Negotiator
	pool       *alpnPool // immutable
	protocol   config.Protocol
	keepsSpare bool // connections serve any downstream connection and host name
}

// Multiplexed implements Connector.
func (c negotiatedConnector) Multiplexed() bool { return c.protocol == config.HTTP2 }

// ForDownstream implements Connector.
func (c negotiatedConnector) ForDownstream(meta *protocol.ConnMeta) Connector {
	return negotiatedConnector{c.Connector.ForDownstream(meta), c.pool, c.protocol, false}
}

// ForHostname implements Connector.
func (c negotiatedConnector) ForHostname(autoSNI config.AutoSNI, name string) Connector {
	return negotiatedConnector{c.Connector.ForHostname(autoSNI, name), c.pool, c.protocol, false}
}

// Connect implements Connector. If the host chooses the other protocol, the error is a Fault with
// errOtherProtocol.
func (c negotiatedConnector) Connect(ctx context.Context, deadline time.Time, released func(reusable bool)) (Connection, error) {
	if c.keepsSpare {
		if conn := c.pool.takeSpare(c.protocol, released); conn != nil {
			return conn, nil
		}
	}
	negotiator, ok := c.Connector.(Negotiator)
	if !ok {
		return nil, protocol.Faultf(protocol.Internal, "the connector cannot negotiate the version of HTTP")
	}
	release := &releaseHook{released}
	conn, chosen, err := negotiator.Negotiate(ctx, deadline, release.call)
	if err != nil {
		return nil, err
	}
	c.pool.usesHTTP1.Store(chosen == config.HTTP1)
	if chosen == c.protocol {
		return conn, nil
	}
	if c.keepsSpare {
		c.pool.keepSpare(&spareConn{conn, chosen, release})
	} else {
		_ = conn.Close() // no exchange used it
	}
	return nil, protocol.NewFault(protocol.ConnectFailure, errOtherProtocol)
}
