package upstream

import (
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
)

// HostLease assigns a host to a UDP session, which has no exchange and no connection. The lease
// counts as one request in flight and as one connection of the cluster. Safe for concurrent use.
type HostLease struct {
	host        *Host
	releaseOnce sync.Once
}

// Lease picks a host as for an exchange with this hash (0: none). The caller releases the lease.
// replaced is the lease that the new one replaces, or nil; the caller releases it afterwards. Lease
// does not check the limits if replaced belongs to the same cluster. Errors are Faults: NoCluster,
// Overflow (max_requests or max_connections), NoHealthyHost, and ReasonOnDemandTimeout if the hosts
// are on demand and not subscribed; a later call may succeed.
func (c *Cluster) Lease(hash uint64, replaced *HostLease) (*HostLease, error) {
	b := c.Breaker(config.DefaultPriority)
	s, err := c.admitSession(b, replaced != nil && replaced.host.cluster == c)
	if err != nil {
		return nil, err
	}
	leased := false
	defer func() {
		if !leased {
			b.ReleaseSlot()
			b.RemoveActive()
		}
	}()
	unsubscribed := c.mustAwaitHosts(s)
	h := s.connectionHosts(nil).pick(hash, nil, 0)
	if h == nil {
		if unsubscribed { // the session does not wait
			c.env.hostRequests.Request(c.name)
			return nil, protocol.Faultf(protocol.ReasonOnDemandTimeout, "cluster %s: its hosts were requested just now, and have not arrived yet", c.name)
		}
		return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no healthy host", c.name)
	}
	h.countConnection(ConnectionOpened)
	h.load.Begin()
	h.attempts.Add(1)
	h.load.Connect()
	leased = true
	return &HostLease{host: h}, nil
}

// admitSession does what admit does and counts the session as an exchange and as a connection. If
// replacing is true, a lease already counts the session, and admitSession counts it a second time
// without checking the limits.
func (c *Cluster) admitSession(b *breaker.Breaker, replacing bool) (*state, error) {
	if s := c.state.Load(); replacing && s != nil && !s.removed {
		b.MoveSession()
		return s, nil
	}
	s, err := c.admit(b.Priority())
	if err != nil {
		return nil, err
	}
	if err := b.AddActive(); err != nil {
		return nil, err
	}
	if err := b.AddConnection(); err != nil {
		b.RemoveActive()
		return nil, err
	}
	return s, nil
}

// Host returns the host.
func (l *HostLease) Host() *Host { return l.host }

// Usable reports whether the host is healthy and still belongs to its cluster.
func (l *HostLease) Usable() bool {
	l.host.mu.Lock()
	removed := l.host.removed
	l.host.mu.Unlock()
	return !removed && l.host.health.Up()
}

// Report records the result of traffic with the host: nil means that a datagram arrived from it; an
// error means that nothing listens at its address and counts as a failed connect.
func (l *HostLease) Report(err error) {
	if err == nil {
		l.host.recordAlive()
		return
	}
	l.host.failures.Add(1)
	l.host.recordConnectFailure(err)
}

// Release ends the lease. Further calls have no effect.
func (l *HostLease) Release() {
	l.releaseOnce.Do(func() {
		b := l.host.cluster.Breaker(config.DefaultPriority)
		l.host.load.End()
		l.host.load.Disconnect()
		l.host.countConnection(ConnectionClosed)
		b.ReleaseSlot()
		b.RemoveActive()
	})
}
