package upstream

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// A cluster of type ORIGINAL_DST has no hosts of its own: an exchange goes to where its
// caller was going. Each destination becomes a host when the first exchange is for it,
// with pools and health as every host has, and goes when nobody wants it any more:
//
//	made ──▶ used ──▶ unused ──▶ gone
//	          ▲  cleanup │ cleanup
//	          └──────────┘ another exchange

// mostDestinations is how many hosts a cluster of type ORIGINAL_DST has at most. One
// more takes the place of one that has nothing to do; if there is none, its exchange is
// refused.
const mostDestinations = 4096

// originalDstHosts are the hosts of a cluster of type ORIGINAL_DST. They have no accounts of
// their own: addresses that callers choose are no labels of metrics.
type originalDstHosts struct {
	cluster *Cluster // immutable

	mu     sync.RWMutex
	hosts  map[netip.AddrPort]*lazyHost // guarded by mu
	timer  *time.Timer                  // guarded by mu; nil until there was a host
	armed  bool                         // guarded by mu; timer is set, or what it calls runs
	closed bool                         // guarded by mu: what is made now is nobody's
}

// lazyHost is a host, and whether somebody has asked for it since the last cleanup.
type lazyHost struct {
	*Host
	used atomic.Bool
}

func newDestinations(c *Cluster) *originalDstHosts {
	return &originalDstHosts{cluster: c, hosts: make(map[netip.AddrPort]*lazyHost)}
}

// of returns the host that is the destination to, which is made if need be; nil: there
// are too many.
func (d *originalDstHosts) of(to netip.AddrPort) *Host {
	d.mu.RLock()
	h := d.hosts[to]
	if h != nil {
		h.used.Store(true)
	}
	d.mu.RUnlock()
	if h != nil {
		return h.Host
	}
	made, gone := d.open(to)
	if gone != nil {
		gone.retire()
	}
	return made
}

// open is of for a destination that may be new; gone is the host that made room.
func (d *originalDstHosts) open(to netip.AddrPort) (h, gone *Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.hosts[to]; known != nil { // another exchange was here first
		known.used.Store(true)
		return known.Host, nil
	}
	if len(d.hosts) >= mostDestinations {
		if gone = d.evictIdlest(); gone == nil {
			return nil, nil
		}
	}
	h = newHost(d.cluster, &config.Host{Address: to.String(), Weight: 1})
	h.lazy = true
	if d.closed { // its exchange was admitted before; nobody else will come
		h.retire()
		return h, gone
	}
	made := &lazyHost{Host: h}
	made.used.Store(true)
	d.hosts[to] = made
	d.arm()
	return h, gone
}

// evictIdlest takes a host out that has nothing to do, one without connections if there is
// any; nil: all are busy. d.mu is held.
func (d *originalDstHosts) evictIdlest() *Host {
	var found *Host
	var at netip.AddrPort
	for to, h := range d.hosts {
		if h.busy() || found != nil && h.load.Connections() > 0 {
			continue
		}
		found, at = h.Host, to
		if h.load.Connections() == 0 {
			break
		}
	}
	if found != nil {
		delete(d.hosts, at)
	}
	return found
}

// busy reports whether the host has exchanges, or connections that belong to those of
// callers that are open.
func (h *lazyHost) busy() bool {
	return h.load.InFlight() > 0 ||
		h.cluster.settings().Pool.Mode == config.Bind && h.load.Connections() > 0
}

// arm sets the timer unless it is set. d.mu is held.
func (d *originalDstHosts) arm() {
	if d.armed {
		return
	}
	d.armed = true
	every := d.cluster.settings().OriginalDst.CleanupInterval
	d.cluster.env.tasks.Add(1)
	if d.timer == nil {
		d.timer = time.AfterFunc(every, d.cleanup)
	} else {
		d.timer.Reset(every)
	}
}

// cleanup ends the hosts that nobody has wanted since the cleanup before. It runs on
// the timer.
func (d *originalDstHosts) cleanup() {
	d.cluster.env.contain("ending hosts", func() { retire(d.unused()) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = false
	if !d.closed && len(d.hosts) > 0 {
		d.arm()
	}
	d.cluster.env.tasks.Done()
}

// unused takes the hosts that nobody has wanted since it was called before.
func (d *originalDstHosts) unused() (gone []*Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for to, h := range d.hosts {
		if h.used.Swap(false) || h.busy() {
			continue
		}
		delete(d.hosts, to)
		gone = append(gone, h.Host)
	}
	return gone
}

// close takes all hosts, to be retired by the caller, and stops the timer.
func (d *originalDstHosts) close() (gone []*Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	gone = d.list()
	clear(d.hosts)
	if d.armed && d.timer.Stop() {
		d.armed = false
		d.cluster.env.tasks.Done()
	}
	return gone
}

// list returns the hosts that there are. d.mu is held.
func (d *originalDstHosts) list() []*Host {
	all := make([]*Host, 0, len(d.hosts))
	for _, h := range d.hosts {
		all = append(all, h.Host)
	}
	return all
}

// anyIdle takes an idle connection to any of the hosts, as Host.giveWay does. Pools are
// locked while d.mu is held, and never the other way round.
func (d *originalDstHosts) anyIdle(p config.Priority) evictedConn {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, h := range d.hosts {
		if idle := h.giveWay(p); idle != nil {
			return idle
		}
	}
	return nil
}

// members returns the hosts that the cluster has now, those that exchanges have brought
// in the order of their addresses.
func (s *state) members() []*Host {
	if s.destinations == nil {
		return s.hosts
	}
	s.destinations.mu.RLock()
	all := s.destinations.list()
	s.destinations.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Host) int { return strings.Compare(a.address, b.address) })
	return all
}

// destinationsFor returns where the destinations of a new state are, nil if its cluster
// is of another type, and the hosts that are gone with those of the state before: they
// stay if connections to them are what the configuration says. c.mu is held.
func (c *Cluster) destinationsFor(old *state, cfg *config.Cluster) (d *originalDstHosts, gone []*Host) {
	if old != nil && old.destinations != nil {
		if cfg.Type == config.ClusterOriginalDst && cfg.RequestName == old.config.RequestName && cfg.TLS.Equal(old.config.TLS) && cfg.ProxyProtocol == old.config.ProxyProtocol {
			return old.destinations, nil
		}
		gone = old.destinations.close()
	}
	if cfg.Type == config.ClusterOriginalDst {
		d = newDestinations(c)
	}
	return d, gone
}
