package state

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// WarmingResource is an accepted resource that is not active yet.
type WarmingResource struct {
	Type           string    `json:"type"` // its URL
	Name           string    `json:"name"`
	Since          time.Time `json:"since"`
	Missing        []string  `json:"for"`
	PreviousActive bool      `json:"in_force"` // the previous version is active
	// Until is when the resource becomes active without the dependencies it waits for; zero: never.
	Until time.Time `json:"until,omitzero"`
}

// OnDemandStatus is the status of the resources that are fetched on demand.
type OnDemandStatus struct {
	// SubscribedClusters and SubscribedRoutes count the resources in use, or used within the idle
	// timeout.
	SubscribedClusters int `json:"awake_clusters"`
	SubscribedRoutes   int `json:"awake_routes"`
	// UnsubscribedClusters are clusters without their endpoints; UnsubscribedRoutes are tables that
	// were not fetched. Neither is an error.
	UnsubscribedClusters []string `json:"asleep_clusters,omitempty"`
	UnsubscribedRoutes   []string `json:"asleep_routes,omitempty"`
}

// Warming returns the accepted clusters and listeners that are not active, clusters first, each
// sorted by name.
func (s *State) Warming() []WarmingResource {
	return append(warmingEntries(s, &s.clusters), warmingEntries(s, &s.listeners)...)
}

func warmingEntries[R, C any](s *State, t *entries[R, C]) []WarmingResource {
	all := []WarmingResource{}
	for _, name := range slices.Sorted(maps.Keys(t.byName)) {
		e := t.byName[name]
		if e.Received == nil || e.Received == e.Active {
			continue
		}
		one := WarmingResource{Type: t.kind.typeURL, Name: name, Since: e.ReceivedAt, PreviousActive: e.Active != nil, Missing: []string{}}
		one.addMissing(t.kind.dependencies(name, e))
		one.Missing = append(one.Missing, s.missingSecrets(t.kind.secrets(e.Received))...)
		if e.HeldBack == e.Received {
			one.Missing = append(one.Missing, "a version that can be applied")
		}
		all = append(all, one)
	}
	return all
}

// missingSecrets returns the names of the secrets that have not arrived.
func (s *State) missingSecrets(refs []resource.SecretRef) (names []string) {
	for _, r := range refs {
		if s.secrets[r] != nil {
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

// OnDemandStatus returns the status; nil if on-demand loading is off.
func (s *State) OnDemandStatus() *OnDemandStatus {
	if s.onDemand == nil {
		return nil
	}
	l := &OnDemandStatus{SubscribedClusters: len(s.onDemand.clusters.entries), SubscribedRoutes: len(s.onDemand.tables.entries)}
	for name, e := range s.clusters.byName {
		if e.Received != nil && e.Received.EDSServiceName != "" && !s.requestsEndpoints(name) {
			l.UnsubscribedClusters = append(l.UnsubscribedClusters, name)
		}
	}
	slices.Sort(l.UnsubscribedClusters)
	for _, name := range slices.Sorted(maps.Keys(s.unsubscribedTables())) {
		l.UnsubscribedRoutes = append(l.UnsubscribedRoutes, displayTableName(name))
	}
	return l
}

// displayTableName returns the name of a table for logs and status output.
func displayTableName(table string) string {
	if name, ok := resource.DubboResourceName(table); ok {
		return name + " of Dubbo"
	}
	return table
}

// ResourceKey identifies a resource.
type ResourceKey struct {
	Type   string // its URL
	Name   string
	Source resource.SecretSource // of a secret; else zero
}

// Ignored returns the fields without effect of each received resource, even if there are none.
func (s *State) Ignored() map[ResourceKey][]string {
	all := map[ResourceKey][]string{}
	for name, e := range s.clusters.byName {
		if e.Received != nil {
			all[ResourceKey{Type: resource.ClusterType, Name: name}] = e.Received.Ignored
		}
	}
	for name, e := range s.listeners.byName {
		if e.Received != nil {
			all[ResourceKey{Type: resource.ListenerType, Name: name}] = e.Received.Ignored
		}
	}
	for name, a := range s.assignments {
		all[ResourceKey{Type: resource.EndpointType, Name: name}] = a.Ignored
	}
	for name, t := range s.tables {
		if of, dubbo := resource.DubboResourceName(name); dubbo {
			all[ResourceKey{Type: resource.DubboRouteType, Name: of}] = t.Ignored
		} else {
			all[ResourceKey{Type: resource.RouteType, Name: name}] = t.Ignored
		}
	}
	for name, e := range s.extensions {
		all[ResourceKey{Type: resource.ExtensionType, Name: name}] = e.Ignored
	}
	for ref, secret := range s.secrets {
		all[ResourceKey{Type: resource.SecretType, Name: ref.Name, Source: ref.From}] = secret.Ignored
	}
	return all
}
