package state

import (
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// secretTimeout is the maximum wait of the warm-up for the secrets of a cluster.
const secretTimeout = resource.DefaultFetchTimeout

// warmup is the period after the start in which listeners of the control plane stay inactive,
// because they would forward to clusters without endpoints. It ends when the first CDS response has
// arrived or timed out, and each received cluster is active or its wait has ended. Envoy requests
// its listeners at that point (ClusterManagerInitHelper). Static listeners and listeners that are
// already active do not wait.
type warmup struct {
	cdsReceived     bool            // the first CDS response has arrived or timed out, or none is subscribed
	startedAt       time.Time       // time of StartWarmup
	cdsTimeout      time.Duration   // maximum wait for the first CDS response; 0: no limit
	pendingClusters map[string]bool // clusters that the warm-up waits for, by name
	receivedEDS     map[string]bool // EDS resources that the control plane sent (even if rejected) or removed
	failedClusters  map[string]bool // clusters that could not be applied when their wait timed out
	paused          bool            // an update is applied in parts; the warm-up does not end meanwhile
}

// StartWarmup starts the warm-up: until WarmingUp returns false, listeners of the control plane
// stay inactive. It waits for the first CDS response if the bootstrap subscribes to clusters.
func (s *State) StartWarmup(now time.Time) {
	subscriptions := s.boot.Subscriptions
	s.warmup = &warmup{
		cdsReceived: !subscriptions.CDS, startedAt: now, cdsTimeout: subscriptions.CDSTimeout,
		pendingClusters: map[string]bool{}, receivedEDS: map[string]bool{}, failedClusters: map[string]bool{},
	}
}

// WarmingUp reports whether the warm-up has started and not ended.
func (s *State) WarmingUp() bool { return s.warmup != nil }

// recordCDSResponse records that a CDS response has arrived.
func (s *State) recordCDSResponse() {
	if s.warmup != nil {
		s.warmup.cdsReceived = true
	}
}

// recordEDSResponse records that the control plane has sent or removed the endpoints of a name. The
// warm-up no longer waits for these endpoints, even if they were rejected.
func (s *State) recordEDSResponse(name string) {
	w := s.warmup
	if w == nil || w.receivedEDS[name] {
		return
	}
	w.receivedEDS[name] = true
	for cluster := range s.dependents.assignments[name] {
		addDirty(s.clusters.dirty, cluster)
	}
}

// recordFailedCluster records that a cluster could not be applied when its wait had timed out. The
// warm-up does not wait for it again.
func (s *State) recordFailedCluster(name string) {
	if s.warmup != nil {
		s.warmup.failedClusters[name] = true
	}
}

// PauseWarmup with pause true keeps Reconcile from ending the warm-up, until a call with false.
func (s *State) PauseWarmup(pause bool) {
	if s.warmup != nil {
		s.warmup.paused = pause
	}
}

// updateWarmup records whether the warm-up waits for a cluster that was just reconciled. It returns
// next, the time of the next evaluation of the cluster. If the warm-up waits only for secrets of
// the cluster, updateWarmup returns the end of this wait instead; zero: the wait has ended.
func (s *State) updateWarmup(name string, next, now time.Time) time.Time {
	w := s.warmup
	if w == nil {
		return next
	}
	delete(w.pendingClusters, name)
	e := s.clusters.byName[name]
	if e == nil || e.Active != nil || w.failedClusters[name] {
		return next
	}
	switch expired, _ := waitExpired(s.clusterDependencies(name, e), now); {
	case expired: // the cluster waits only for secrets
		if next = e.ReceivedAt.Add(secretTimeout); !now.Before(next) {
			return time.Time{}
		}
	case w.receivedEDS[e.Received.EDSServiceName]:
		return next
	}
	w.pendingClusters[name] = true
	return next
}

// endWarmupIfDone ends the warm-up if the warm-up waits for nothing. The caller then reconciles the
// listeners. next is when the wait for the first CDS response times out; zero: this wait has ended
// or has no limit.
func (s *State) endWarmupIfDone(now time.Time) (next time.Time) {
	w := s.warmup
	if w == nil {
		return time.Time{}
	}
	if !w.cdsReceived {
		_, until := waitExpired([]dependency{{since: w.startedAt, timeout: w.cdsTimeout}}, now)
		if w.cdsTimeout == 0 || !until.IsZero() {
			return until
		}
		w.cdsReceived = true // by timeout
	}
	if len(w.pendingClusters) == 0 && !w.paused {
		s.SkipWarmup()
	}
	return time.Time{}
}

// SkipWarmup ends the warm-up even if clusters are pending. A rollback resumes it.
func (s *State) SkipWarmup() {
	w := s.warmup
	if w == nil {
		return
	}
	s.warmup = nil
	s.undo.add(func() { s.warmup = w })
	for name, e := range s.listeners.byName {
		if e.Active == nil {
			addDirty(s.listeners.dirty, name)
		}
	}
}

// warmupDependencies returns the dependencies of a listener that the warm-up adds.
func (s *State) warmupDependencies(name string, e *Listener) []dependency {
	w := s.warmup
	switch {
	case w == nil || e.Active != nil || s.staticNames.listeners[name]:
		return nil
	case !w.cdsReceived:
		return []dependency{{kindClusters, "of the first response", w.startedAt, w.cdsTimeout}}
	}
	return []dependency{{kindClusters, "of the first response", w.startedAt, 0}}
}
