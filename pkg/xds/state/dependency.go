package state

import "time"

// dependency is a resource, other than a secret, that a cluster or a listener waits for. Secrets
// have no timeout: without them a resource never becomes active.
type dependency struct {
	kind    string        // "endpoints", "routes", ...
	name    string        // for logs and status output
	since   time.Time     // when the wait began
	timeout time.Duration // longest wait; 0: no limit
}

// clusterDependencies returns the missing dependencies of e.Received, the received version of a
// cluster.
func (s *State) clusterDependencies(name string, e *Cluster) []dependency {
	hosts := e.Received.EDSServiceName
	if e.Active == e.Received || hosts == "" || s.assignments[hosts] != nil || s.readyWithoutHosts(name) {
		return nil
	}
	return []dependency{{"endpoints", hosts, e.ReceivedAt, e.Received.InitialFetchTimeout}}
}

// listenerDependencies is clusterDependencies for a listener.
func (s *State) listenerDependencies(name string, e *Listener) (all []dependency) {
	if e.Active == e.Received {
		return nil
	}
	all = s.warmupDependencies(name, e)
	for _, t := range e.Received.RouteConfigNames {
		if s.tables[t] == nil && !s.readyWithoutTable(t) {
			all = append(all, dependency{"routes", displayTableName(t), e.ReceivedAt, e.Received.RouteTimeouts[t]})
		}
	}
	for _, slot := range e.Received.DynamicFilters {
		if !slot.SkipWarming && s.extensions[slot.Name] == nil {
			all = append(all, dependency{"filter", slot.Name, e.ReceivedAt, slot.InitialFetchTimeout})
		}
	}
	for _, one := range s.runtime.layers {
		if one.Values == nil {
			all = append(all, dependency{"runtime", one.Resource, s.runtime.startedAt, one.Timeout})
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
