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
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// Host is one address of a cluster. Its health, connections and counts stay when its weight,
// hostname or metadata change. They end when the address leaves the cluster, or when the TLS or
// PROXY header configuration of its connections changes. Safe for concurrent use.
type Host struct {
	cluster       *Cluster // immutable
	address       string   // immutable
	generation    int64    // immutable; the cluster's generation when the host was added
	isOriginalDst bool     // immutable; the host is the original destination of an exchange

	entry        atomic.Pointer[config.Host] // its current configuration
	load         balance.Load                // in-flight exchanges count from the pick to the end
	health       hosthealth.State
	outlierStats atomic.Pointer[outlier.Stats] // written by the cluster's detector; nil: no outlier detection
	recorder     lazyRecorder[Recorder]

	memberships     atomic.Pointer[[]membership]   // in the host sets of the cluster; nil: none yet
	ruleMemberships atomic.Pointer[ruleMembership] // in the host sets of rules; replaced with cluster.mu held
	index           int                            // guarded by cluster.mu: index in the cluster's hosts
	usableSince     atomic.Int64                   // when the host was added or became usable again, as nanoseconds of env.now

	attempts        atomic.Uint64
	failures        atomic.Uint64  // attempts without a response, without those in canceled
	canceled        atomic.Uint64  // attempts whose response was not needed
	limitFailures   atomic.Uint64  // failures that a limit of the cluster caused
	badResponses    atomic.Uint64  // responses whose head or end shows a failure of the host
	dialing         atomic.Int64   // forwarded connections that are being opened; load does not count them yet
	relayDials      pool.DialLimit // limits how many of them are dialed at the same time
	connects        atomic.Uint64
	connectFailures atomic.Uint64

	pools atomic.Pointer[poolNode] // one for each protocol and priority in use, linked by poolNode.next

	reportedCounts *counts // owned by the LoadReporter: counts that were reported; nil: none

	mu          sync.Mutex   // held to change pools, and to open or close the recorder
	removed     bool         // guarded by mu; the host has left the cluster: new pools start closed
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
// discovery, the discovery reports this configuration.
func (h *Host) Config() *config.Host { return h.entry.Load() }

// InFlight returns the number of exchanges in flight at the host.
func (h *Host) InFlight() int64 { return h.load.InFlight() }

// Add records exchanges in the metrics and the outlier statistics of the host. The responses or
// failures of these exchanges came from the host.
func (h *Host) Add(b metrics.Batch) {
	h.recorder.add(b)
	h.recordOutcome(outlier.Outcome{
		Protocol: config.Protocol(b.Protocol),
		Reason:   protocol.Reason(b.Reason),
		Status:   b.UpstreamStatus,
		Code:     b.Code,
	}, b.Len())
}

// openRecorder opens the recorder of the host. The caller holds h.mu.
func (h *Host) openRecorder() {
	if meter := h.cluster.env.Meter; meter != nil && !h.removed && !h.isOriginalDst {
		h.recorder.open(func() Recorder { return meter.Host(h.cluster.name, h.address) })
	}
}

// drain closes idle connections of the host now, and connections in use when their exchange ends.
// Exchanges that have already picked the host are still served.
func (h *Host) drain() {
	h.mu.Lock()
	h.removed = true
	h.recorder.close()
	h.stopChecks()
	first := h.pools.Load()
	h.mu.Unlock()
	if l := h.cluster.env.loadReporter.Load(); l != nil {
		l.hostRemoved(h)
	}
	for n := first; n != nil; n = n.next {
		n.pool.Close()
	}
}
