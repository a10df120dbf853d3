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
	mode     config.PoolMode // as configured when it was made
	pool     pool.Pool
	next     *poolNode
}

// pool returns the pool for a protocol and priority, or nil if there is no connector. It replaces a
// pool of another mode.
func (h *Host) pool(name config.Protocol, mode config.PoolMode, priority config.Priority) pool.Pool {
	for l := h.pools.Load(); l != nil; l = l.next {
		if l.protocol == name && l.mode == mode && l.priority == priority {
			return l.pool
		}
	}
	return h.openPool(name, mode, priority)
}

// openPool makes a pool and closes the pool of another mode that it replaces.
func (h *Host) openPool(name config.Protocol, mode config.PoolMode, priority config.Priority) pool.Pool {
	connector := h.cluster.env.Connectors[name]
	if connector == nil {
		return nil
	}
	p, old := h.replacePool(connector, name, mode, priority)
	if old != nil {
		old.Close()
	}
	return p
}

// replacePool makes a pool with connector; old is the pool that it replaced, or nil.
func (h *Host) replacePool(connector Connector, name config.Protocol, mode config.PoolMode, priority config.Priority) (p, old pool.Pool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.openRecorder()
	var others *poolNode
	for l := h.pools.Load(); l != nil; l = l.next {
		switch {
		case l.protocol != name || l.priority != priority:
			others = &poolNode{l.protocol, l.priority, l.mode, l.pool, others}
		case l.mode == mode: // another exchange made it first
			return l.pool, nil
		default:
			old = l.pool
		}
	}
	p = pool.New(pool.Options{
		Address:   h.address,
		Protocol:  name,
		Connector: hostConnector{connector, h},
		Config:    &h.cluster.config,
		Breaker:   h.cluster.Breaker(priority),
		Health:    &h.health,
		Load:      &h.load,
		Observer:  poolObserver{h},
		Tasks:     h.cluster.env.tasks,
	}, mode, h.retired)
	h.pools.Store(&poolNode{name, priority, mode, p, others})
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
func (c hostConnector) ForHostname(by config.AutoSNI, name string) pool.Connector {
	if a, ok := c.Connector.(SNIConnector); ok {
		return hostConnector{a.WithHostname(by, name), c.host}
	}
	return c
}

// SNIConnector is a Connector that can request a host name at the start of a connection, by SNI.
type SNIConnector interface {
	Connector
	// WithHostname returns the Connector of connections for requests to a host of that name; by
	// says how to use the name.
	WithHostname(by config.AutoSNI, name string) Connector
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

// countConnection counts a connection that was opened or closed. Connections outlive the
// configuration: a recorder that did not count the open must not count the close.
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
