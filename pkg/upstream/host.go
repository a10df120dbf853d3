package upstream

import (
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/outlier"
)

// Host is one address of a cluster. The address is its identity: health, connections and counts
// stay when its weight, hostname or metadata change, and end when no host of that address is left
// in the cluster. Safe for concurrent use.
type Host struct {
	cluster       *Cluster // immutable
	address       string   // immutable
	generation    int64    // immutable; of the cluster, when the host was added
	isOriginalDst bool     // immutable; an exchange brought it as its original destination

	entry        atomic.Pointer[config.Host] // its current configuration
	load         balance.Load                // exchanges in flight, from the pick to the end of the response
	health       hosthealth.State
	outlierStats atomic.Pointer[outlier.Stats] // written by the cluster's detector; nil: no outlier detection
	recorder     lazyRecorder[Recorder]

	memberships     atomic.Pointer[[]membership]   // in the host sets of the cluster; nil: none yet
	ruleMemberships atomic.Pointer[ruleMembership] // in the host sets that rules made of those; replaced with cluster.mu held
	index           int                            // guarded by cluster.mu: index in the cluster's hosts
	usableSince     atomic.Int64                   // when it was added, or became usable again: ns of the set's clock

	attempts        atomic.Uint64
	failures        atomic.Uint64 // attempts without a response
	cancelled       atomic.Uint64 // attempts whose response was not needed
	unsent          atomic.Uint64 // failures that a limit of the cluster caused
	badResponses    atomic.Uint64 // responses whose head or end shows a failure of the host
	dialing         atomic.Int64  // attempts that are not in load yet: forwarded connections
	relayDials      dialLimit     // limits these attempts
	connects        atomic.Uint64
	connectFailures atomic.Uint64

	pools atomic.Pointer[poolNode] // one for each protocol in use, linked by poolNode.next

	reported *counts // owned by the LoadReporter: counts that were reported; nil: none

	mu          sync.Mutex   // for changing lanes, opening and closing the ledger
	retired     bool         // guarded by mu: new pools start closed
	activeCheck *activeCheck // guarded by mu; nil: there are no active checks
}

func newHost(c *Cluster, entry *config.Host) *Host {
	h := &Host{cluster: c, address: entry.Address, generation: c.generation.Load()}
	h.entry.Store(entry)
	h.usableSince.Store(int64(c.env.now()))
	h.health.Set(discoveryFlag(entry.Health))
	return h
}

// Name returns the address.
func (h *Host) Name() string { return h.address }

// Cluster returns the cluster that the host belongs to.
func (h *Host) Cluster() *Cluster { return h.cluster }

// Config returns the configuration of the host, which the caller must not change. In a cluster with
// discovery the address is the discovered one.
func (h *Host) Config() *config.Host { return h.entry.Load() }

// InFlight returns the number of exchanges in flight at the host.
func (h *Host) InFlight() int64 { return h.load.InFlight() }

// Add accounts for exchanges whose responses, or failures, came from the host.
func (h *Host) Add(s metrics.Batch) {
	h.recorder.add(s)
	h.recordOutcome(outlier.Outcome{
		Protocol: config.Protocol(s.Protocol),
		Reason:   protocol.Reason(s.Reason),
		Status:   s.UpstreamStatus,
		Code:     s.Code,
	}, s.Len())
}

// poolNode is the pool of a host for one protocol and one priority. Immutable.
type poolNode struct {
	protocol config.Protocol
	priority config.Priority
	mode     config.PoolMode // as configured when it was made
	pool     pool
	next     *poolNode
}

// pool returns the pool for a protocol and priority, or nil if there is no connector. It replaces a
// pool of another mode.
func (h *Host) pool(name config.Protocol, mode config.PoolMode, priority config.Priority) pool {
	for l := h.pools.Load(); l != nil; l = l.next {
		if l.protocol == name && l.mode == mode && l.priority == priority {
			return l.pool
		}
	}
	return h.openPool(name, mode, priority)
}

// openPool makes a lane and closes the pool of another mode that it replaces.
func (h *Host) openPool(name config.Protocol, mode config.PoolMode, priority config.Priority) pool {
	connector := h.cluster.env.Connectors[name]
	if connector == nil {
		return nil
	}
	p, old := h.replacePool(connector, name, mode, priority)
	if old != nil {
		old.close()
	}
	return p
}

// replacePool makes a lane with connector; old is the pool that it replaced, or nil.
func (h *Host) replacePool(connector Connector, name config.Protocol, mode config.PoolMode, priority config.Priority) (p, old pool) {
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
	b := base{host: h, breaker: h.cluster.Breaker(priority), connector: connector, protocol: name, open: new(atomic.Int64), dials: new(dialLimit)}
	if cfg := h.cluster.lastConfig(); usesNamePool(cfg, name) {
		p = newNamePool(b, mode, cfg.AutoSNI, h.retired)
	} else {
		p = newPool(b, mode, h.retired)
	}
	h.pools.Store(&poolNode{name, priority, mode, p, others})
	return p, old
}

// openRecorder opens the recorder of the host. h.mu is held.
func (h *Host) openRecorder() {
	if meter := h.cluster.env.Meter; meter != nil && !h.retired && !h.isOriginalDst {
		h.recorder.open(func() Recorder { return meter.Host(h.cluster.name, h.address) })
	}
}

// retire closes idle connections of the host now, and those in use when their exchange ends.
// Exchanges that picked the host before are still served.
func (h *Host) retire() {
	h.mu.Lock()
	h.retired = true
	h.recorder.close()
	h.stopChecks()
	first := h.pools.Load()
	h.mu.Unlock()
	if l := h.cluster.env.loads.Load(); l != nil {
		l.hostRemoved(h)
	}
	for l := first; l != nil; l = l.next {
		l.pool.close()
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
