package state

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

// StartWarmup starts the warm-up: until WarmingUp returns false, listeners of the control plane
// stay inactive. It waits for the first CDS response if the bootstrap subscribes to clusters.
func (s *State) StartWarmup(now time.Time) {
	from := s.boot.Subscriptions
	s.warmup = &warmup{
		cdsReceived: !from.CDS, startedAt: now, cdsTimeout: from.CDSTimeout,
		pendingClusters: map[string]bool{}, answeredEDS: map[string]bool{}, failedClusters: map[string]bool{},
	}
}

// WarmingUp reports whether the warm-up has started and not ended.
func (s *State) WarmingUp() bool { return s.warmup != nil }

// noteCDSResponse records that a CDS response has arrived.
func (s *State) noteCDSResponse() {
	if s.warmup != nil {
		s.warmup.cdsReceived = true
	}
}

// noteEDSResponse records that the control plane has sent or removed the endpoints of a name. The
// warm-up waits no longer for clusters that need them, even if they were rejected.
func (s *State) noteEDSResponse(name string) {
	u := s.warmup
	if u == nil || u.answeredEDS[name] {
		return
	}
	u.answeredEDS[name] = true
	for cluster := range s.dependents.assignments[name] {
		addDirty(s.clusters.dirty, cluster)
	}
}

// noteFailedCluster records that a cluster could not be applied when its wait had timed out. The
// warm-up does not wait for it again.
func (s *State) noteFailedCluster(name string) {
	if s.warmup != nil {
		s.warmup.failedClusters[name] = true
	}
}

// PauseWarmup keeps Reconcile from ending the warm-up, or lets it do so again.
func (s *State) PauseWarmup(pause bool) {
	if s.warmup != nil {
		s.warmup.paused = pause
	}
}

// updateWarmup records whether the warm-up waits for a cluster that was just reconciled. again is
// when the cluster is due for another reconcile; the result is that time with the warm-up taken
// into account, zero for never.
func (s *State) updateWarmup(name string, again, now time.Time) time.Time {
	u := s.warmup
	if u == nil {
		return again
	}
	delete(u.pendingClusters, name)
	e := s.clusters.byName[name]
	if e == nil || e.Active != nil || u.failedClusters[name] {
		return again
	}
	switch enough, _ := waitExpired(s.clusterDependencies(name, e), now); {
	case enough: // only its secrets are missing
		if again = e.ReceivedAt.Add(secretTimeout); !now.Before(again) {
			return time.Time{}
		}
	case u.answeredEDS[e.Received.EDSServiceName]:
		return again
	}
	u.pendingClusters[name] = true
	return again
}

// endWarmupIfDone ends the warm-up if it waits for nothing more; listeners are reconciled then. The
// result is when to call it again although nothing has arrived, zero for never.
func (s *State) endWarmupIfDone(now time.Time) (again time.Time) {
	u := s.warmup
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
		s.SkipWarmup()
	}
	return time.Time{}
}

// SkipWarmup ends the warm-up even if clusters are pending. A rollback starts it again.
func (s *State) SkipWarmup() {
	u := s.warmup
	if u == nil {
		return
	}
	s.warmup = nil
	s.undo.add(func() { s.warmup = u })
	for name, e := range s.listeners.byName {
		if e.Active == nil {
			addDirty(s.listeners.dirty, name)
		}
	}
}

// warmupDependencies returns the dependencies of a listener that the warm-up adds.
func (s *State) warmupDependencies(name string, e *Listener) []dependency {
	u := s.warmup
	switch {
	case u == nil || e.Active != nil || s.staticNames.listeners[name]:
		return nil
	case !u.cdsReceived:
		return []dependency{{"clusters", "of the first response", u.startedAt, u.cdsTimeout}}
	}
	return []dependency{{"clusters", "of the first response", u.startedAt, 0}}
}
