package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// warming returns the accepted clusters and listeners that are not active, clusters first, each
// sorted by name.
func (w *state) warming() []WarmingResource {
	all := []WarmingResource{}
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		if s := w.clusters[name]; s.received != nil && s.received != s.active {
			one := WarmingResource{Type: resource.ClusterType, Name: name, Since: s.receivedAt, PreviousActive: s.active != nil, Missing: []string{}}
			one.addMissing(w.clusterDependencies(name, s))
			one.Missing = append(one.Missing, w.missingSecrets(s.received.Secrets())...)
			all = append(all, one)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.listeners)) {
		s := w.listeners[name]
		if s.received == nil || s.received == s.active {
			continue
		}
		one := WarmingResource{Type: resource.ListenerType, Name: name, Since: s.receivedAt, PreviousActive: s.active != nil, Missing: []string{}}
		one.addMissing(w.listenerDependencies(name, s))
		one.Missing = append(one.Missing, w.missingSecrets(s.received.Secrets())...)
		if s.heldBack == s.received {
			one.Missing = append(one.Missing, "a version that can be applied")
		}
		all = append(all, one)
	}
	return all
}

// missingSecrets returns the names of the secrets that have not arrived.
func (w *state) missingSecrets(refs []resource.SecretRef) (names []string) {
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

// addMissing adds dependencies to w.Missing and sets w.Until.
func (w *WarmingResource) addMissing(all []dependency) {
	for _, l := range all {
		w.Missing = append(w.Missing, l.kind+" "+l.name)
	}
	_, w.Until = waitExpired(all, time.Time{})
}
