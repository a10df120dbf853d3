package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// waiting are the clusters and listeners that were said and are not in force, by name.
func (w *world) waiting() []Waiting {
	all := []Waiting{}
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		if s := w.clusters[name]; s.last != nil && s.last != s.live {
			one := Waiting{Type: resource.ClusterType, Name: name, Since: s.since, InForce: s.live != nil, For: []string{}}
			one.wait(w.lacks(name, s))
			one.For = append(one.For, w.lacking(s.last.Secrets())...)
			all = append(all, one)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.listeners)) {
		s := w.listeners[name]
		if s.last == nil || s.last == s.live {
			continue
		}
		one := Waiting{Type: resource.ListenerType, Name: name, Since: s.since, InForce: s.live != nil, For: []string{}}
		one.wait(w.lacksOf(name, s))
		one.For = append(one.For, w.lacking(s.last.Secrets())...)
		if s.held == s.last {
			one.For = append(one.For, "a version that can be applied")
		}
		all = append(all, one)
	}
	return all
}

// lacking names the secrets that are not there.
func (w *world) lacking(refs []resource.SecretRef) (names []string) {
	for _, r := range refs {
		if w.secrets[r] != nil {
			continue
		}
		name := "secret " + r.Name
		if r.From.Cluster != "" {
			name += " of " + r.From.Cluster
		}
		names = append(names, name)
	}
	return names
}

// wait has w tell that it waits for all that is lacking.
func (w *Waiting) wait(all []lack) {
	for _, l := range all {
		w.For = append(w.For, l.what+" "+l.name)
	}
	_, w.Until = waited(all, time.Time{})
}
