package state

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// WarmingResource is an accepted resource that is not active yet.
type WarmingResource struct {
	Type           string    `json:"type"` // type URL
	Name           string    `json:"name"`
	Since          time.Time `json:"since"`           // when the version arrived or its wait was restarted
	Missing        []string  `json:"missing"`         // missing dependencies, such as "routes r"
	PreviousActive bool      `json:"previous_active"` // a previous version is active
	// Until is when the waits for missing dependencies other than secrets have timed out; zero: there
	// are no such dependencies, or a wait has no limit.
	Until time.Time `json:"until,omitzero"`
}

// OnDemandStatus is the status of the resources that are fetched on demand.
type OnDemandStatus struct {
	// RequestedClusters and RequestedRoutes count the pending and subscribed clusters and tables.
	RequestedClusters int `json:"subscribed_clusters"`
	RequestedRoutes   int `json:"subscribed_routes"`
	// UnsubscribedClusters are the clusters whose endpoints are unsubscribed. UnsubscribedRoutes
	// are the unsubscribed route tables that listeners refer to. Neither is an error.
	UnsubscribedClusters []string `json:"unsubscribed_clusters,omitempty"`
	UnsubscribedRoutes   []string `json:"unsubscribed_routes,omitempty"`
}

// Warming returns the accepted clusters and listeners that are not active, clusters first, each
// sorted by name.
func (s *State) Warming() []WarmingResource {
	return append(warmingEntries(s, &s.clusters), warmingEntries(s, &s.listeners)...)
}

func warmingEntries[R, C any](s *State, es *entries[R, C]) []WarmingResource {
	warming := []WarmingResource{}
	for _, name := range slices.Sorted(maps.Keys(es.byName)) {
		e := es.byName[name]
		if e.Received == nil || e.Received == e.Active {
			continue
		}
		w := WarmingResource{Type: es.funcs.typeURL, Name: name, Since: e.ReceivedAt, PreviousActive: e.Active != nil, Missing: []string{}}
		w.addMissing(es.funcs.dependencies(name, e))
		w.Missing = append(w.Missing, s.missingSecrets(es.funcs.secrets(e.Received))...)
		if e.HeldBack == e.Received {
			w.Missing = append(w.Missing, "a version that can be applied")
		}
		warming = append(warming, w)
	}
	return warming
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
func (w *WarmingResource) addMissing(missing []dependency) {
	for _, d := range missing {
		w.Missing = append(w.Missing, d.kind+" "+d.name)
	}
	_, w.Until = waitExpired(missing, time.Time{})
}

// OnDemandStatus returns the status; nil if on-demand loading is off.
func (s *State) OnDemandStatus() *OnDemandStatus {
	if s.onDemand == nil {
		return nil
	}
	status := &OnDemandStatus{RequestedClusters: len(s.onDemand.clusters.entries), RequestedRoutes: len(s.onDemand.tables.entries)}
	for name, e := range s.clusters.byName {
		if e.Received != nil && e.Received.EDSServiceName != "" && !s.requestsEndpoints(name) {
			status.UnsubscribedClusters = append(status.UnsubscribedClusters, name)
		}
	}
	slices.Sort(status.UnsubscribedClusters)
	for _, name := range slices.Sorted(maps.Keys(s.unsubscribedTables())) {
		status.UnsubscribedRoutes = append(status.UnsubscribedRoutes, displayTableName(name))
	}
	return status
}

// displayTableName returns the name of a table for logs and status output.
func displayTableName(table string) string {
	if name, ok := resource.DubboResourceName(table); ok {
		return name + " (Dubbo)"
	}
	return table
}

// ResourceKey identifies a resource.
type ResourceKey struct {
	Type   string // type URL
	Name   string
	Source resource.SecretSource // source of a secret; zero for other types
}

// Ignored returns the fields without effect of each received resource other than runtime layers.
// Resources without such fields are included.
func (s *State) Ignored() map[ResourceKey][]string {
	ignored := map[ResourceKey][]string{}
	for name, e := range s.clusters.byName {
		if e.Received != nil {
			ignored[ResourceKey{Type: resource.ClusterType, Name: name}] = e.Received.Ignored
		}
	}
	for name, e := range s.listeners.byName {
		if e.Received != nil {
			ignored[ResourceKey{Type: resource.ListenerType, Name: name}] = e.Received.Ignored
		}
	}
	for name, a := range s.assignments {
		ignored[ResourceKey{Type: resource.EndpointType, Name: name}] = a.Ignored
	}
	for name, t := range s.tables {
		if dubboName, dubbo := resource.DubboResourceName(name); dubbo {
			ignored[ResourceKey{Type: resource.DubboRouteType, Name: dubboName}] = t.Ignored
		} else {
			ignored[ResourceKey{Type: resource.RouteType, Name: name}] = t.Ignored
		}
	}
	for name, e := range s.extensions {
		ignored[ResourceKey{Type: resource.ExtensionType, Name: name}] = e.Ignored
	}
	for ref, secret := range s.secrets {
		ignored[ResourceKey{Type: resource.SecretType, Name: ref.Name, Source: ref.From}] = secret.Ignored
	}
	return ignored
}
