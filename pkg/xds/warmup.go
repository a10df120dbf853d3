package xds

import "time"

// secretWait is how long the warm-up waits for the secrets of a cluster.
const secretWait = defaultFetch

// warmup is the time after the start in which the listeners of the control plane are not
// activated, because they would forward to clusters that have no endpoints yet. It ends when
// each cluster of static_resources and of the first CDS response is active or was waited for
// long enough. Envoy requests its listeners then (ClusterManagerInitHelper). Static listeners
// and those that are active already do not wait.
type warmup struct {
	received bool            // the first CDS response, or it is no longer waited for
	begun    time.Time       // when the process started
	limit    time.Duration   // how long that response is waited for; 0: until it comes
	clusters map[string]bool // those that are still waited for, by name
}

// warmUp starts the warm-up. limit is how long the first CDS response is waited for: 0 means
// until it comes.
func (w *world) warmUp(cds bool, limit time.Duration, now time.Time) {
	w.warmup = &warmup{received: !cds, begun: now, limit: limit, clusters: map[string]bool{}}
}

// receivedClusters notes that a CDS response has come.
func (w *world) receivedClusters() {
	if w.warmup != nil {
		w.warmup.received = true
	}
}

// warmCluster notes whether the warm-up waits for a cluster that was settled just now. again
// is when the cluster is to be settled again in any case; the result is when it is with the
// warm-up, zero for never.
func (w *world) warmCluster(name string, again, now time.Time) time.Time {
	u := w.warmup
	if u == nil {
		return again
	}
	delete(u.clusters, name)
	s := w.clusters[name]
	if s == nil || s.live != nil {
		return again
	}
	if enough, _ := waited(w.lacks(name, s), now); enough { // it has no secrets yet
		if again = s.since.Add(secretWait); !now.Before(again) {
			return time.Time{}
		}
	}
	u.clusters[name] = true
	return again
}

// endWarmup ends the warm-up if it has nothing to wait for any more: listeners are settled
// then. The result is when it is to be called again though nothing came, zero for never.
func (w *world) endWarmup(now time.Time) (again time.Time) {
	u := w.warmup
	if u == nil {
		return time.Time{}
	}
	if !u.received {
		_, until := waited([]lack{{since: u.begun, limit: u.limit}}, now)
		if u.limit == 0 || !until.IsZero() {
			return until
		}
		u.received = true // it was waited for long enough
	}
	if len(u.clusters) == 0 {
		w.skipWarmup()
	}
	return time.Time{}
}

// skipWarmup ends the warm-up, whatever it waits for.
func (w *world) skipWarmup() {
	if w.warmup == nil {
		return
	}
	w.warmup = nil
	for name, s := range w.listeners {
		if s.live == nil {
			enter(w.dirtyListeners, name)
		}
	}
}

// lacksClusters is the part of lacksOf that is due to the warm-up.
func (w *world) lacksClusters(name string, s *listenerState) []lack {
	u := w.warmup
	switch {
	case u == nil || s.live != nil || w.fixed.listeners[name]:
		return nil
	case !u.received:
		return []lack{{"clusters", "of the first response", u.begun, u.limit}}
	}
	return []lack{{"clusters", "of the first response", u.begun, 0}}
}
