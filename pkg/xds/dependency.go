package xds

import "time"

// dependency is a resource, other than a secret, that a cluster or a listener waits for. Secrets
// have no timeout: without them a resource never becomes active.
type dependency struct {
	kind    string        // "endpoints", "routes", ...
	name    string        // for logs and status output
	since   time.Time     // when the wait began
	timeout time.Duration // longest wait; 0: no limit
}

// clusterDependencies returns the missing dependencies of s.received, the received version of a
// cluster.
func (w *state) clusterDependencies(name string, s *clusterState) []dependency {
	e := s.received.EDSServiceName
	if s.active == s.received || e == "" || w.assignments[e] != nil || w.readyWithoutHosts(name) {
		return nil
	}
	return []dependency{{"endpoints", e, s.receivedAt, s.received.InitialFetchTimeout}}
}

// listenerDependencies is clusterDependencies for a listener.
func (w *state) listenerDependencies(name string, s *listenerState) (all []dependency) {
	if s.active == s.received {
		return nil
	}
	all = w.warmupDependencies(name, s)
	for _, t := range s.received.RouteConfigNames {
		if w.tables[t] == nil && !w.readyWithoutTable(t) {
			all = append(all, dependency{"routes", displayTableName(t), s.receivedAt, s.received.InitialFetchTimeout})
		}
	}
	for _, slot := range s.received.DynamicFilters {
		if !slot.SkipWarming && w.extensions[slot.Name] == nil {
			all = append(all, dependency{"filter", slot.Name, s.receivedAt, slot.InitialFetchTimeout})
		}
	}
	for _, one := range w.runtime.layers {
		if one.values == nil {
			all = append(all, dependency{"runtime", one.resource, w.runtime.startedAt, one.timeout})
		}
	}
	return all
}

// waitExpired reports whether the wait for all dependencies has timed out. until is when it will
// have, zero for never.
func waitExpired(all []dependency, now time.Time) (enough bool, until time.Time) {
	enough, ever := true, true
	for _, l := range all {
		end := l.since.Add(l.timeout)
		switch {
		case l.timeout == 0:
			enough, ever = false, false
		case now.Before(end):
			enough = false
			if end.After(until) {
				until = end
			}
		}
	}
	if !ever {
		return false, time.Time{}
	}
	return enough, until
}
