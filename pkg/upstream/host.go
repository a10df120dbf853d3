package upstream

import (
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// Host is one address of a cluster. The address is its identity: health,
// connections and counts stay when its weight, hostname or metadata change, and
// go when no host of that address is left in the cluster. Safe for concurrent
// use.
type Host struct {
	cluster *Cluster // immutable
	address string   // immutable
	era     int64    // immutable; of the cluster, when the host came
	lazy    bool     // immutable; it is a destination that an exchange brought

	entry  atomic.Pointer[config.Host] // how it is configured now
	load   balance.Load                // exchanges in flight, from pick to the end of the answer
	health condition
	record atomic.Pointer[outlierStats] // how it answers, for outlier detection; nil: nobody asks
	ledger lazyRecorder[Recorder]

	seats      atomic.Pointer[[]membership] // in the groups of the cluster; nil: none yet
	extraSeats atomic.Pointer[extraSeat]    // in the groups that rules made of those; replaced with cluster.mu held
	place      int                          // guarded by cluster.mu: among the cluster's hosts
	since      atomic.Int64                 // when it came, or was usable again: ns of the set's clock

	attempts        atomic.Uint64
	failures        atomic.Uint64 // attempts that brought no answer
	cancelled       atomic.Uint64 // attempts whose answer nobody waited for
	unsent          atomic.Uint64 // of failures, those that a limit of the cluster has kept from it
	bad             atomic.Uint64 // answers that say, or show, that the host has failed
	dialing         atomic.Int64  // attempts that are not in load yet: connections that carry bytes
	carriers        dialLimit     // of these attempts
	connects        atomic.Uint64
	connectFailures atomic.Uint64

	lanes atomic.Pointer[lane] // one for each protocol in use, linked by lane.next

	told *counts // the Loads's: what was reported; nil: nothing

	mu      sync.Mutex   // for changing lanes, opening and closing the ledger
	retired bool         // guarded by mu: new pools are born closed
	checkup *activeCheck // guarded by mu; nil: there are no active checks
}

func newHost(c *Cluster, entry *config.Host) *Host {
	h := &Host{cluster: c, address: entry.Address, era: c.era.Load()}
	h.entry.Store(entry)
	h.since.Store(int64(c.env.now()))
	h.health.flags.Store(uint32(told(entry.Health)))
	return h
}

// Name returns the address.
func (h *Host) Name() string { return h.address }

// Cluster returns the cluster that the host belongs to.
func (h *Host) Cluster() *Cluster { return h.cluster }

// Config returns how the host is configured; not to be changed. In a cluster
// with discovery the address is the one that was found.
func (h *Host) Config() *config.Host { return h.entry.Load() }

// InFlight returns the number of exchanges that the host has now.
func (h *Host) InFlight() int64 { return h.load.InFlight() }

// Add accounts for exchanges whose answers, or failures, came from the host.
func (h *Host) Add(s metrics.Sum) {
	h.ledger.add(s)
	e := attemptOutcome{s.Protocol, protocol.Reason(s.Reason), s.Answer, s.Code}
	if e.isBad() {
		h.bad.Add(uint64(s.Len())) //nolint:gosec // a length
	}
	if r := h.record.Load(); r != nil {
		r.observe(e, s.Len())
	}
}

// lane is a protocol spoken to a host for exchanges of a priority. Immutable.
type lane struct {
	protocol config.Protocol
	priority config.Priority
	mode     config.PoolMode // as configured when it was made
	pool     pool
	next     *lane
}

// pool returns the pool of connections that speak a protocol, nil if nothing
// connects with it. It is replaced when the cluster asks for another mode.
func (h *Host) pool(name config.Protocol, mode config.PoolMode, priority config.Priority) pool {
	for l := h.lanes.Load(); l != nil; l = l.next {
		if l.protocol == name && l.mode == mode && l.priority == priority {
			return l.pool
		}
	}
	return h.open(name, mode, priority)
}

// open makes a lane, in the place of one of another mode.
func (h *Host) open(name config.Protocol, mode config.PoolMode, priority config.Priority) pool {
	connector := h.cluster.env.Connectors[name]
	if connector == nil {
		return nil
	}
	p, old := h.openLane(connector, name, mode, priority)
	if old != nil {
		old.close()
	}
	return p
}

// openLane is open with what connects; old is the pool that was replaced, if there was one.
func (h *Host) openLane(connector Connector, name config.Protocol, mode config.PoolMode, priority config.Priority) (p, old pool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.openAccount()
	var others *lane
	for l := h.lanes.Load(); l != nil; l = l.next {
		switch {
		case l.protocol != name || l.priority != priority:
			others = &lane{l.protocol, l.priority, l.mode, l.pool, others}
		case l.mode == mode: // another exchange was here first
			return l.pool, nil
		default:
			old = l.pool
		}
	}
	b := base{host: h, breaker: h.cluster.Breaker(priority), connector: connector, protocol: name, open: new(atomic.Int64), dials: new(dialLimit)}
	if cfg := h.cluster.settings(); names(cfg, name) {
		p = newByName(b, mode, cfg.RequestName, h.retired)
	} else {
		p = newPool(b, mode, h.retired)
	}
	h.lanes.Store(&lane{name, priority, mode, p, others})
	return p, old
}

// openAccount is called with h.mu held.
func (h *Host) openAccount() {
	if meter := h.cluster.env.Meter; meter != nil && !h.retired && !h.lazy {
		h.ledger.open(func() Recorder { return meter.Host(h.cluster.name, h.address) })
	}
}

// retire ends the host: idle connections close now, those in use when their
// exchange ends. Exchanges that picked the host before are still served.
func (h *Host) retire() {
	h.mu.Lock()
	h.retired = true
	h.ledger.close()
	h.stopChecks()
	first := h.lanes.Load()
	h.mu.Unlock()
	if l := h.cluster.env.loads.Load(); l != nil {
		l.leaves(h)
	}
	for l := first; l != nil; l = l.next {
		l.pool.close()
	}
}

// countConnection counts a connection that was opened, or closed. Connections outlive
// the configuration: an account that did not see one open must not see it close.
func (h *Host) countConnection(e Event) {
	if h.era == h.cluster.era.Load() {
		h.cluster.count(e)
	}
}

// countFailed counts a connection that could not be opened.
func (h *Host) countFailed() {
	h.connectFailures.Add(1)
	h.cluster.count(ConnectFailed)
}
