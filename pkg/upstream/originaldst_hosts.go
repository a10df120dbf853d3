package upstream

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
)

// A cluster of type ORIGINAL_DST has no configured hosts: an exchange goes to its original
// destination. Each destination becomes a host at its first exchange, with pools and health like
// any host. A timer removes the hosts that are not busy and that no exchange has picked since the
// last run of the timer:
//
//	new ──▶ used ──▶ unused ──▶ removed
//	         ▲  cleanup │ cleanup
//	         └──────────┘ another exchange

// maxDestinations bounds the hosts of a cluster of type ORIGINAL_DST. A further host replaces a
// host that is not busy. If all hosts are busy, Weft rejects the exchange.
const maxDestinations = 4096

// originalDstHosts are the hosts of a cluster of type ORIGINAL_DST. They have no recorders of their
// own, because addresses that clients choose must not become labels of metrics.
type originalDstHosts struct {
	cluster *Cluster // immutable

	mu     sync.RWMutex
	hosts  map[netip.AddrPort]*trackedHost // guarded by mu
	timer  *time.Timer                     // guarded by mu; nil until the first host
	armed  bool                            // guarded by mu; timer is set, or its function is running
	closed bool                            // guarded by mu: new hosts are not kept
}

// trackedHost is a host, and whether it was used since the last cleanup.
type trackedHost struct {
	*Host
	used atomic.Bool
}

func newOriginalDstHosts(c *Cluster) *originalDstHosts {
	return &originalDstHosts{cluster: c, hosts: make(map[netip.AddrPort]*trackedHost)}
}

// hostFor returns the host for a destination and creates it if needed. It returns nil if
// maxDestinations other hosts are busy.
func (d *originalDstHosts) hostFor(dst netip.AddrPort) *Host {
	d.mu.RLock()
	h := d.hosts[dst]
	if h != nil {
		h.used.Store(true)
	}
	d.mu.RUnlock()
	if h != nil {
		return h.Host
	}
	created, evicted := d.getOrCreate(dst)
	if evicted != nil {
		evicted.drain()
	}
	return created
}

// getOrCreate returns the host for a destination that may be new, or nil if maxDestinations other
// hosts are busy. evicted is the host that the new host replaced, or nil; the caller drains it.
func (d *originalDstHosts) getOrCreate(dst netip.AddrPort) (h, evicted *Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if existing := d.hosts[dst]; existing != nil { // another exchange created it first
		existing.used.Store(true)
		return existing.Host, nil
	}
	if len(d.hosts) >= maxDestinations {
		if evicted = d.evictIdleHost(); evicted == nil {
			return nil, nil
		}
	}
	h = newHost(d.cluster, &config.Host{Address: dst.String(), Weight: 1})
	h.isOriginalDst = true
	if d.closed { // the exchange was admitted before the close; later exchanges use another state
		h.drain()
		return h, evicted
	}
	tracked := &trackedHost{Host: h}
	tracked.used.Store(true)
	d.hosts[dst] = tracked
	d.arm()
	return h, evicted
}

// evictIdleHost removes and returns a host that is not busy, preferably one without connections;
// nil: all are busy. The caller holds d.mu.
func (d *originalDstHosts) evictIdleHost() *Host {
	var victim *Host
	var victimDst netip.AddrPort
	for dst, h := range d.hosts {
		if h.busy() || victim != nil && h.load.Connections() > 0 {
			continue
		}
		victim, victimDst = h.Host, dst
		if h.load.Connections() == 0 {
			break
		}
	}
	if victim != nil {
		delete(d.hosts, victimDst)
	}
	return victim
}

// busy reports whether the host has exchanges in flight, or connections bound to open downstream
// connections.
func (h *trackedHost) busy() bool {
	return h.load.InFlight() > 0 ||
		h.cluster.lastConfig().Pool.Mode == config.Bind && h.load.Connections() > 0
}

// arm sets the timer unless it is set. The caller holds d.mu.
func (d *originalDstHosts) arm() {
	if d.armed {
		return
	}
	d.armed = true
	interval := d.cluster.lastConfig().OriginalDst.CleanupInterval
	d.cluster.env.tasks.AddTimer()
	if d.timer == nil {
		d.timer = time.AfterFunc(interval, d.cleanup)
	} else {
		d.timer.Reset(interval)
	}
}

// cleanup drains the unused hosts. The timer calls cleanup.
func (d *originalDstHosts) cleanup() {
	d.cluster.env.tasks.RunRecovered("closing unused hosts", func() { drainHosts(d.removeUnused()) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = false
	if !d.closed && len(d.hosts) > 0 {
		d.arm()
	}
	d.cluster.env.tasks.TimerDone()
}

// removeUnused removes and returns the hosts that are not busy and were not used since its last
// call.
func (d *originalDstHosts) removeUnused() (removed []*Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for dst, h := range d.hosts {
		if h.used.Swap(false) || h.busy() {
			continue
		}
		delete(d.hosts, dst)
		removed = append(removed, h.Host)
	}
	return removed
}

// close removes and returns all hosts, which the caller drains, and stops the timer.
func (d *originalDstHosts) close() (removed []*Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	removed = d.list()
	clear(d.hosts)
	if d.armed && d.timer.Stop() {
		d.armed = false
		d.cluster.env.tasks.TimerDone()
	}
	return removed
}

// list returns all hosts. The caller holds d.mu.
func (d *originalDstHosts) list() []*Host {
	hosts := make([]*Host, 0, len(d.hosts))
	for _, h := range d.hosts {
		hosts = append(hosts, h.Host)
	}
	return hosts
}

// evictIdleConn removes an idle connection of any host, as Host.evictIdleConn does. Lock order:
// d.mu before the mu of a pool.
func (d *originalDstHosts) evictIdleConn(p config.Priority) breaker.Evicted {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, h := range d.hosts {
		if idle := h.evictIdleConn(p); idle != nil {
			return idle
		}
	}
	return nil
}

// currentHosts returns the current hosts of the cluster; original destinations are sorted by
// address.
func (s *state) currentHosts() []*Host {
	if s.originalDst == nil {
		return s.hosts
	}
	s.originalDst.mu.RLock()
	hosts := s.originalDst.list()
	s.originalDst.mu.RUnlock()
	slices.SortFunc(hosts, func(a, b *Host) int { return strings.Compare(a.address, b.address) })
	return hosts
}

// originalDstHostsFor returns the destinations of a new state, nil if its cluster is of another
// type, and the removed hosts of the old state. Destinations stay if their connections match the
// new configuration. The caller holds c.mu.
func (c *Cluster) originalDstHostsFor(old *state, cfg *config.Cluster) (d *originalDstHosts, removed []*Host) {
	if old != nil && old.originalDst != nil {
		if cfg.Type == config.ClusterOriginalDst && cfg.AutoSNI == old.config.AutoSNI && cfg.TLS.Equal(old.config.TLS) && cfg.ProxyProtocol == old.config.ProxyProtocol {
			return old.originalDst, nil
		}
		removed = old.originalDst.close()
	}
	if cfg.Type == config.ClusterOriginalDst {
		d = newOriginalDstHosts(c)
	}
	return d, removed
}
