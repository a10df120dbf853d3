package upstream

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// recordConnectFailure records that a connection could not be opened. recordConnectFailure and
// recordAlive do not log original destinations: clients choose them, and access logs show them.
func (h *Host) recordConnectFailure(err error) {
	c := h.cluster
	h.countConnectFailure()
	backoff, firstFailure, changed := h.health.RecordFailure(c.env.now(), c.env.random())
	if firstFailure && !h.isOriginalDst {
		c.env.Log.Warn("upstream host down", logCluster, c.name, logHost, h.address, logPause, backoff, logError, err)
	}
	if changed {
		h.healthChanged(HostDown)
	}
}

// recordConnect records that a connection was opened.
func (h *Host) recordConnect() {
	h.connects.Add(1)
	h.countConnection(ConnectionOpened)
	h.recordAlive()
}

// recordAlive records that the host is alive: it accepted a connection or responded.
func (h *Host) recordAlive() {
	if !h.health.Has(hosthealth.Unreachable) {
		return
	}
	wasUnreachable, changed := h.health.RecordSuccess()
	if wasUnreachable && !h.isOriginalDst {
		h.cluster.env.Log.Info("upstream host up", logCluster, h.cluster.name, logHost, h.address)
	}
	if changed {
		h.healthChanged(HostUp)
	}
}

// discoveryFlag returns the health flag for a health state of discovery; 0: none.
func discoveryFlag(health config.HostHealth) hosthealth.Flags {
	switch health {
	case config.HostUnhealthy:
		return hosthealth.ReportedUnhealthy
	case config.HostDraining:
		return hosthealth.ReportedDraining
	case config.HostHealthy:
	}
	return 0
}

// setDiscoveryHealth records the health state that discovery reports. The caller updates the health
// counts after the host has its memberships.
func (h *Host) setDiscoveryHealth(health config.HostHealth) {
	flag := discoveryFlag(health)
	changed := flag != 0 && h.health.Set(flag)
	if changed {
		h.cluster.count(HostDown)
	}
	for _, f := range [...]hosthealth.Flags{hosthealth.ReportedUnhealthy, hosthealth.ReportedDraining} {
		if f != flag && h.health.Has(f) && h.health.Clear(f) {
			h.cluster.count(HostUp)
			h.usableSince.Store(int64(h.cluster.env.now()))
		}
	}
}

// healthChanged counts that the host became usable (HostUp) or unusable (HostDown), and updates its
// host sets. Calls for concurrent changes may come in any order, so updateHealthCounts reads the
// current health.
func (h *Host) healthChanged(e Event) {
	h.cluster.count(e)
	if e == HostUp {
		h.usableSince.Store(int64(h.cluster.env.now()))
	}
	h.updateHealthCounts()
}

// Keys of log attributes.
const (
	logCluster = "cluster"
	logHost    = "host"
	logPause   = "pause"
	logError   = "error"

	logProtocol = "protocol" // of a check
	logDetector = "detector" // of an outlier
)
