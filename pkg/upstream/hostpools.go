package upstream

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// poolNode is the pool of a host for one protocol and one priority. Immutable.
type poolNode struct {
	protocol config.Protocol
	priority config.Priority
	mode     config.PoolMode // as configured when the pool was created
	pool     pool.Pool
	next     *poolNode
}

// pool returns the pool for a protocol and priority, or nil if there is no connector. It replaces a
// pool of another mode.
func (h *Host) pool(proto config.Protocol, mode config.PoolMode, priority config.Priority) pool.Pool {
	for n := h.pools.Load(); n != nil; n = n.next {
		if n.protocol == proto && n.mode == mode && n.priority == priority {
			return n.pool
		}
	}
	return h.openPool(proto, mode, priority)
}

// openPool creates a pool and closes the pool of another mode that it replaces.
func (h *Host) openPool(proto config.Protocol, mode config.PoolMode, priority config.Priority) pool.Pool {
	connector := h.cluster.env.Connectors[proto]
	if connector == nil {
		return nil
	}
	p, old := h.replacePool(connector, proto, mode, priority)
	if old != nil {
		old.Close()
	}
	return p
}

// replacePool creates a pool with connector; old is the pool that it replaced, or nil.
func (h *Host) replacePool(connector Connector, proto config.Protocol, mode config.PoolMode, priority config.Priority) (p, old pool.Pool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.openRecorder()
	var others *poolNode
	for n := h.pools.Load(); n != nil; n = n.next {
		switch {
		case n.protocol != proto || n.priority != priority:
			others = &poolNode{n.protocol, n.priority, n.mode, n.pool, others}
		case n.mode == mode: // another exchange created it first
			return n.pool, nil
		default:
			old = n.pool
		}
	}
	p = pool.New(pool.Options{
		Address:   h.address,
		Protocol:  proto,
		Connector: hostConnector{connector, h},
		Config:    &h.cluster.config,
		Breaker:   h.cluster.Breaker(priority),
		Health:    &h.health,
		Load:      &h.load,
		Observer:  poolObserver{h},
		Tasks:     h.cluster.env.tasks,
	}, mode, h.removed)
	h.pools.Store(&poolNode{proto, priority, mode, p, others})
	return p, old
}

// hostConnector adapts a Connector to the pools of one host.
type hostConnector struct {
	Connector
	host *Host
}

// Connect implements pool.Connector.
func (c hostConnector) Connect(ctx context.Context, deadline time.Time, released func(reusable bool)) (pool.Connection, error) {
	return c.Connector.Connect(ctx, c.host, deadline, released)
}

// ForDownstream implements pool.Connector.
func (c hostConnector) ForDownstream(meta *protocol.ConnMeta) pool.Connector {
	return hostConnector{withDownstreamAddrs(c.Connector, meta), c.host}
}

// ForHostname implements pool.Connector.
func (c hostConnector) ForHostname(autoSNI config.AutoSNI, name string) pool.Connector {
	if sni, ok := c.Connector.(SNIConnector); ok {
		return hostConnector{sni.WithHostname(autoSNI, name), c.host}
	}
	return c
}

// Negotiate implements pool.Negotiator.
func (c hostConnector) Negotiate(ctx context.Context, deadline time.Time, released func(reusable bool)) (pool.Connection, config.Protocol, error) {
	if n, ok := c.Connector.(NegotiatingConnector); ok {
		return n.Negotiate(ctx, c.host, deadline, released)
	}
	return nil, "", protocol.Faultf(protocol.Internal, "the connector cannot negotiate the version of HTTP")
}

// NegotiatingConnector is a Connector to hosts that choose HTTP/1.1 or HTTP/2 for each connection.
type NegotiatingConnector interface {
	Connector
	// Negotiate does what Connect does, and also returns the protocol of the connection: HTTP1 or
	// HTTP2.
	Negotiate(ctx context.Context, h *Host, deadline time.Time, released func(reusable bool)) (pool.Connection, config.Protocol, error)
}

// SNIConnector is a Connector that can request a host name at the start of a connection, by SNI.
type SNIConnector interface {
	Connector
	// WithHostname returns a Connector whose connections serve requests for the hostname name.
	// autoSNI says how to use the name.
	WithHostname(autoSNI config.AutoSNI, name string) Connector
}

// poolObserver records what the pools of a host report.
type poolObserver struct{ host *Host }

// Connected implements pool.Observer.
func (o poolObserver) Connected() { o.host.recordConnect() }

// ConnectFailed implements pool.Observer.
func (o poolObserver) ConnectFailed(err error) { o.host.recordConnectFailure(err) }

// Alive implements pool.Observer.
func (o poolObserver) Alive() { o.host.recordAlive() }

// Count implements pool.Observer.
func (o poolObserver) Count(e pool.Event) {
	h := o.host
	switch e {
	case pool.ConnectionClosed:
		h.countConnection(ConnectionClosed)
	case pool.MaxRequestsReached:
		h.countConnection(ConnectionMaxRequests)
	case pool.ExtraConnectFailed:
		h.countConnectFailure()
	case pool.Resent:
		h.cluster.resent.Add(1)
		h.cluster.count(Resent)
	}
}

// countConnection counts an event of a connection: opened, closed or maximum requests reached.
// Connections outlive the configuration: a recorder that did not count the open must not count the
// close.
func (h *Host) countConnection(e Event) {
	if h.generation == h.cluster.generation.Load() {
		h.cluster.count(e)
	}
}

// countConnectFailure counts a connection that could not be opened.
func (h *Host) countConnectFailure() {
	h.connectFailures.Add(1)
	h.cluster.count(ConnectFailed)
}
