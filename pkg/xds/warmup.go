package xds

import "time"

// secretTimeout is how long the warm-up waits for the secrets of a cluster.
const secretTimeout = defaultFetchTimeout

// warmup is the time after the start in which the listeners of the control plane are not
// activated, because they would forward to clusters that have no endpoints yet. It ends when
// each cluster of static_resources and of the first CDS response is active or was waited for
// long enough. Envoy requests its listeners then (ClusterManagerInitHelper). Static listeners
// and those that are active already do not wait.
type warmup struct {
	cdsReceived     bool            // the first CDS response, or it is no longer waited for
	startedAt       time.Time       // when the process started
	cdsTimeout      time.Duration   // how long that response is waited for; 0: until it comes
	pendingClusters map[string]bool // those that are still waited for, by name
}

// startWarmup starts the warm-up. limit is how long the first CDS response is waited for: 0 means
// until it comes.
func (w *state) startWarmup(cds bool, limit time.Duration, now time.Time) {
	w.warmup = &warmup{cdsReceived: !cds, startedAt: now, cdsTimeout: limit, pendingClusters: map[string]bool{}}
}

// noteCDSResponse notes that a CDS response has come.
func (w *state) noteCDSResponse() {
	if w.warmup != nil {
		w.warmup.cdsReceived = true
	}
}

// updateWarmup notes whether the warm-up waits for a cluster that was settled just now. again
// is when the cluster is to be settled again in any case; the result is when it is with the
// warm-up, zero for never.
func (w *state) updateWarmup(name string, again, now time.Time) time.Time {
	u := w.warmup
	if u == nil {
		return again
	}
	delete(u.pendingClusters, name)
	s := w.clusters[name]
	if s == nil || s.active != nil {
		return again
	}
	if enough, _ := waitExpired(w.clusterDependencies(name, s), now); enough { // it has no secrets yet
		if again = s.receivedAt.Add(secretTimeout); !now.Before(again) {
			return time.Time{}
		}
	}
	u.pendingClusters[name] = true
	return again
}

// endWarmupIfDone ends the warm-up if it has nothing to wait for any more: listeners are settled
// then. The result is when it is to be called again though nothing came, zero for never.
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
		u.cdsReceived = true // it was waited for long enough
	}
	if len(u.pendingClusters) == 0 {
		w.skipWarmup()
	}
	return time.Time{}
}

// skipWarmup ends the warm-up, whatever it waits for.
func (w *state) skipWarmup() {
	if w.warmup == nil {
		return
	}
	w.warmup = nil
	for name, s := range w.listeners {
		if s.active == nil {
			addDirty(w.dirtyListeners, name)
		}
	}
}

// warmupDependencies is the part of listenerDependencies that is due to the warm-up.
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
