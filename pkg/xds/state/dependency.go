package state

import "time"

// dependency is a resource, other than a secret, that a cluster or a listener waits for. Secrets
// have no timeout: without them a resource never becomes active.
type dependency struct {
	kind    string        // one of the constants below
	name    string        // for logs and status output
	since   time.Time     // when the wait began
	timeout time.Duration // maximum wait; 0: no limit
}

// Kinds of dependencies.
const (
	kindClusters  = "clusters"
	kindEndpoints = "endpoints"
	kindRoutes    = "routes"
	kindFilter    = "filter"
	kindRuntime   = "runtime"
)

// clusterDependencies returns the missing dependencies of e.Received, the received version of a
// cluster.
func (s *State) clusterDependencies(name string, e *Cluster) []dependency {
	serviceName := e.Received.EDSServiceName
	if e.Active == e.Received || serviceName == "" || s.assignments[serviceName] != nil || s.readyWithoutHosts(name) {
		return nil
	}
	return []dependency{{kindEndpoints, serviceName, e.ReceivedAt, e.Received.InitialFetchTimeout}}
}

// listenerDependencies is clusterDependencies for a listener.
func (s *State) listenerDependencies(name string, e *Listener) (missing []dependency) {
	if e.Active == e.Received {
		return nil
	}
	missing = s.warmupDependencies(name, e)
	for _, table := range e.Received.RouteConfigNames {
		if s.tables[table] == nil && !s.readyWithoutTable(table) {
			missing = append(missing, dependency{kindRoutes, displayTableName(table), e.ReceivedAt, e.Received.RouteTimeouts[table]})
		}
	}
	for _, dynamic := range e.Received.DynamicFilters {
		if !dynamic.SkipWarming && s.extensions[dynamic.Name] == nil {
			missing = append(missing, dependency{kindFilter, dynamic.Name, e.ReceivedAt, dynamic.InitialFetchTimeout})
		}
	}
	for _, layer := range s.runtime.layers {
		if layer.Values == nil {
			missing = append(missing, dependency{kindRuntime, layer.Resource, s.runtime.startedAt, layer.Timeout})
		}
	}
	return missing
}

// waitExpired reports whether the waits for all missing dependencies have timed out; true if none
// is missing. If expired is false, until is when the last wait times out; zero: a wait has no
// limit.
func waitExpired(missing []dependency, now time.Time) (expired bool, until time.Time) {
	expired, bounded := true, true
	for _, d := range missing {
		end := d.since.Add(d.timeout)
		switch {
		case d.timeout == 0:
			expired, bounded = false, false
		case now.Before(end):
			expired = false
			if end.After(until) {
				until = end
			}
		}
	}
	if !bounded {
		return false, time.Time{}
	}
	return expired, until
}
