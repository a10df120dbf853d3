package upstream

import (
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// HostLease is a host that carries something which is no exchange and has no
// connection: a session of datagrams. It counts as one request in flight and as one
// connection of the cluster. Safe for concurrent use.
type HostLease struct {
	host *Host
	end  sync.Once
}

// Lease chooses a host as for an exchange with this hash, 0 for none. The caller ends
// the assignment. instead is the one that it will take the place of, which the caller
// ends then: what is of the same cluster needs no room for a second; nil: none. Errors are
// Faults: NoCluster, Overflow (max_requests or max_connections), NoHealthyHost, and
// NotSupplied if the hosts are on demand and not there: later they may be.
func (c *Cluster) Lease(hash uint64, instead *HostLease) (*HostLease, error) {
	b := c.Breaker(config.DefaultPriority)
	s, err := b.admitSession(instead != nil && instead.host.cluster == c)
	if err != nil {
		return nil, err
	}
	assigned := false
	defer func() {
		if !assigned {
			b.freeSlot()
			b.active.Add(-1)
		}
	}()
	absent := c.mustWait(s)
	h := s.forConnections().pick(hash, nil, 0)
	if h == nil {
		if absent { // nobody can wait
			c.env.desk.Ask(c.name)
			return nil, protocol.Faultf(protocol.ReasonOnDemandTimeout, "cluster %s: its hosts were not needed before, and have just been asked for", c.name)
		}
		return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no host to try", c.name)
	}
	h.countConnection(ConnectionOpened)
	h.load.Begin()
	h.attempts.Add(1)
	h.load.Connect()
	assigned = true
	return &HostLease{host: h}, nil
}

// admitSession is admit for what counts as an exchange and as a connection; moves: it does
// already, and is to count twice for a moment.
func (b *Breaker) admitSession(moves bool) (*state, error) {
	c := b.cluster
	if s := c.state.Load(); moves && s != nil && !s.removed {
		b.active.Add(1)
		b.slots.open.Add(1)
		return s, nil
	}
	s, err := b.admit()
	if err != nil {
		return nil, err
	}
	if err := b.activate(); err != nil {
		return nil, err
	}
	if limit := s.config.Breakers.MaxConnections; !b.slots.take(limit) {
		b.active.Add(-1)
		b.refused(ConnectionOverflow)
		return nil, protocol.Faultf(protocol.Overflow, "cluster %s: max_connections (%d) reached", c.name, limit)
	}
	return s, nil
}

// Host returns the host.
func (a *HostLease) Host() *Host { return a.host }

// Usable reports whether the host is healthy, and still one of its cluster's.
func (a *HostLease) Usable() bool {
	a.host.mu.Lock()
	retired := a.host.retired
	a.host.mu.Unlock()
	return !retired && a.host.health.up()
}

// Report takes note of what came from the host: nil, something; an error, that nobody
// listens at its address, as of a connection that could not be opened.
func (a *HostLease) Report(err error) {
	if err == nil {
		a.host.answered()
		return
	}
	a.host.failures.Add(1)
	a.host.connectFailed(err)
}

// Release gives the host back. Calling it again does nothing.
func (a *HostLease) Release() {
	a.end.Do(func() {
		b := a.host.cluster.Breaker(config.DefaultPriority)
		a.host.load.End()
		a.host.load.Disconnect()
		a.host.countConnection(ConnectionClosed)
		b.freeSlot()
		b.active.Add(-1)
	})
}
