package xds

import (
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// secretTimeout is the longest wait of the warm-up for the secrets of a cluster.
const secretTimeout = resource.DefaultFetchTimeout

// warmup is the period after the start in which listeners of the control plane stay inactive,
// because they would forward to clusters without endpoints. It ends when each cluster of
// static_resources and of the first CDS response is active or its wait has timed out. Envoy
// requests its listeners at that point (ClusterManagerInitHelper). Static listeners and listeners
// that are already active do not wait.
type warmup struct {
	cdsReceived     bool            // the first CDS response has arrived, or its timeout has expired
	startedAt       time.Time       // when the process started
	cdsTimeout      time.Duration   // longest wait for the first CDS response; 0: no limit
	pendingClusters map[string]bool // clusters that the warm-up waits for, by name
	answeredEDS     map[string]bool // EDS resources that the control plane sent, rejected ones too, or removed
	failedClusters  map[string]bool // clusters that could not be applied when their wait timed out
	paused          bool            // an update is applied in parts: the warm-up does not end meanwhile
}

// startWarmup starts the warm-up. limit is the longest wait for the first CDS response; 0: no
// limit. If cds is false, it does not wait for one.
func (w *state) startWarmup(cds bool, limit time.Duration, now time.Time) {
	w.warmup = &warmup{
		cdsReceived: !cds, startedAt: now, cdsTimeout: limit,
		pendingClusters: map[string]bool{}, answeredEDS: map[string]bool{}, failedClusters: map[string]bool{},
	}
}

// noteCDSResponse records that a CDS response has arrived.
func (w *state) noteCDSResponse() {
	if w.warmup != nil {
		w.warmup.cdsReceived = true
	}
}

// noteEDSResponse records that the control plane has sent or removed the endpoints of a name. The
// warm-up waits no longer for clusters that need them, even if they were rejected.
func (w *state) noteEDSResponse(name string) {
	u := w.warmup
	if u == nil || u.answeredEDS[name] {
		return
	}
	u.answeredEDS[name] = true
	for cluster := range w.dependents.assignments[name] {
		addDirty(w.dirtyClusters, cluster)
	}
}

// noteFailedCluster records that a cluster could not be applied when its wait had timed out. The
// warm-up does not wait for it again.
func (w *state) noteFailedCluster(name string) {
	if w.warmup != nil {
		w.warmup.failedClusters[name] = true
	}
}

// pauseWarmup keeps reconcile from ending the warm-up, or lets it do so again.
func (w *state) pauseWarmup(pause bool) {
	if w.warmup != nil {
		w.warmup.paused = pause
	}
}

// updateWarmup records whether the warm-up waits for a cluster that was just reconciled. again is
// when the cluster is due for another reconcile; the result is that time with the warm-up taken
// into account, zero for never.
func (w *state) updateWarmup(name string, again, now time.Time) time.Time {
	u := w.warmup
	if u == nil {
		return again
	}
	delete(u.pendingClusters, name)
	s := w.clusters[name]
	if s == nil || s.active != nil || u.failedClusters[name] {
		return again
	}
	switch enough, _ := waitExpired(w.clusterDependencies(name, s), now); {
	case enough: // only its secrets are missing
		if again = s.receivedAt.Add(secretTimeout); !now.Before(again) {
			return time.Time{}
		}
	case u.answeredEDS[s.received.EDSServiceName]:
		return again
	}
	u.pendingClusters[name] = true
	return again
}

// endWarmupIfDone ends the warm-up if it waits for nothing more; listeners are reconciled then. The
// result is when to call it again although nothing has arrived, zero for never.
func (w *state) endWarmupIfDone(now time.Time) (again time.Time) {
	u := w.warmup
	if u == nil {
		return time.Time{}
	}
	if !u.cdsReceived {
		_, until := waitExpired([]dependency{{since: u.startedAt, timeout: u.cdsTimeout}}, now)
		if u.cdsTimeout == 0 || !until.IsZero() {
			return until
		}
		u.cdsReceived = true // by timeout
	}
	if len(u.pendingClusters) == 0 && !u.paused {
		w.skipWarmup()
	}
	return time.Time{}
}

// skipWarmup ends the warm-up even if clusters are pending. A rollback starts it again.
func (w *state) skipWarmup() {
	u := w.warmup
	if u == nil {
		return
	}
	w.warmup = nil
	w.undoLog = append(w.undoLog, func() { w.warmup = u })
	for name, s := range w.listeners {
		if s.active == nil {
			addDirty(w.dirtyListeners, name)
		}
	}
}

// warmupDependencies returns the dependencies of a listener that the warm-up adds.
func (w *state) warmupDependencies(name string, s *listenerState) []dependency {
	u := w.warmup
	switch {
	case u == nil || s.active != nil || w.staticNames.listeners[name]:
		return nil
	case !u.cdsReceived:
		return []dependency{{"clusters", "of the first response", u.startedAt, u.cdsTimeout}}
	}
	return []dependency{{"clusters", "of the first response", u.startedAt, 0}}
}
