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

// Ignored returns the fields that have no effect, by type and name.
func (s *State) Ignored() map[string]map[string][]string {
	all := map[string]map[string][]string{
		resource.ClusterType: {}, resource.ListenerType: {}, resource.EndpointType: {}, resource.RouteType: {}, resource.SecretType: {},
		resource.ExtensionType: {}, resource.DubboRouteType: {},
	}
	for name, e := range s.clusters.byName {
		if e.Received != nil {
			all[resource.ClusterType][name] = e.Received.Ignored
		}
	}
	for name, e := range s.listeners.byName {
		if e.Received != nil {
			all[resource.ListenerType][name] = e.Received.Ignored
		}
	}
	for name, a := range s.assignments {
		all[resource.EndpointType][name] = a.Ignored
	}
	for name, t := range s.tables {
		if of, dubbo := resource.DubboResourceName(name); dubbo {
			all[resource.DubboRouteType][of] = t.Ignored
		} else {
			all[resource.RouteType][name] = t.Ignored
		}
	}
	for name, e := range s.extensions {
		all[resource.ExtensionType][name] = e.Ignored
	}
	for ref, secret := range s.secrets {
		all[resource.SecretType][ref.Name] = secret.Ignored
	}
	return all
}
