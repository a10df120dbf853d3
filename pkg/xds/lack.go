package xds

import "time"

// lack is something that a cluster or a listener waits for, beside secrets: without those
// it is never put in force.
type lack struct {
	what  string        // of which kind it is
	name  string        // as people are told of it
	since time.Time     // when the wait began
	limit time.Duration // how long it is at most; 0: it has no end
}

// lacks are what a cluster of a name, said to be as s.last, waits for.
func (w *world) lacks(name string, s *clusterState) []lack {
	e := s.last.Endpoints
	if s.live == s.last || e == "" || w.assignments[e] != nil || w.sparesHosts(name) {
		return nil
	}
	return []lack{{"endpoints", e, s.since, s.last.EndpointTimeout}}
}

// lacksOf is lacks of a listener.
func (w *world) lacksOf(name string, s *listenerState) (all []lack) {
	if s.live == s.last {
		return nil
	}
	all = w.lacksClusters(name, s)
	for _, t := range s.last.Routes {
		if w.tables[t] == nil && !w.sparesTable(t) {
			all = append(all, lack{"routes", tableName(t), s.since, s.last.RoutesTimeout})
		}
	}
	for _, slot := range s.last.Slots {
		if !slot.Eager && w.extensions[slot.Name] == nil {
			all = append(all, lack{"filter", slot.Name, s.since, slot.Timeout})
		}
	}
	for _, one := range w.runtime.layers {
		if one.said == nil {
			all = append(all, lack{"runtime", one.resource, w.runtime.begun, one.limit})
		}
	}
	return all
}

// waited reports whether all that is lacking was waited for long enough. until is when it
// will have been, zero for never.
func waited(all []lack, now time.Time) (enough bool, until time.Time) {
	enough, ever := true, true
	for _, l := range all {
		end := l.since.Add(l.limit)
		switch {
		case l.limit == 0:
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
