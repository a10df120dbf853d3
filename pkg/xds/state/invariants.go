package state

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// referencedNames holds the sorted names of the resources to which active or received clusters and
// listeners refer.
type referencedNames struct {
	assignments, tables, extensions []string
	secrets                         []resource.SecretRef
}

// CheckInvariants returns an error in these cases:
//   - The reference counts are wrong.
//   - The State keeps endpoints, routes or filters without a reference, or dependents of such a
//     resource or secret.
//   - An active configuration contradicts the on-demand state.
//
// It visits all resources and is for tests. The caller calls TakeSubscriptionChanges first.
func (s *State) CheckInvariants() error {
	want := s.referenced()
	if got := s.references.countedNames(); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("names with a reference count: %+v, want %+v", got, want)
	}
	unsubscribed := 0
	for name, e := range s.clusters.byName {
		if e.Received != nil && e.Received.EDSServiceName != "" && !s.requestsEndpoints(name) {
			unsubscribed++
		}
	}
	if s.references.unsubscribed != unsubscribed {
		return fmt.Errorf("%d clusters are counted as unsubscribed, want %d", s.references.unsubscribed, unsubscribed)
	}
	for _, check := range []struct {
		label          string
		names, allowed []string
	}{
		{"endpoints", slices.Collect(maps.Keys(s.assignments)), want.assignments},
		{"routes", slices.Collect(maps.Keys(s.tables)), want.tables},
		{"filters", slices.Collect(maps.Keys(s.extensions)), want.extensions},
		{"dependents of endpoints", slices.Collect(maps.Keys(s.dependents.assignments)), want.assignments},
		{"dependents of routes", slices.Collect(maps.Keys(s.dependents.tables)), want.tables},
		{"dependents of filters", slices.Collect(maps.Keys(s.dependents.extensions)), want.extensions},
	} {
		if err := checkSubset(check.label, check.names, check.allowed); err != nil {
			return err
		}
	}
	for _, dependents := range []map[resource.SecretRef]map[string]bool{s.dependents.clusterSecrets, s.dependents.listenerSecrets} {
		for ref := range dependents {
			if !slices.Contains(want.secrets, ref) {
				return fmt.Errorf("secret %v has dependents, but no resource refers to it", ref)
			}
		}
	}
	return s.checkOnDemand(want)
}

// checkOnDemand is CheckInvariants for the on-demand state.
func (s *State) checkOnDemand(referenced referencedNames) error {
	if s.onDemand == nil {
		return nil
	}
	for name, e := range s.clusters.byName {
		if e.ActiveConfig == nil || e.Active.EDSServiceName == "" {
			continue
		}
		if unsubscribed := e.ActiveConfig.OnDemand.Unsubscribed; unsubscribed == s.onDemand.clusters.isSubscribed(name) {
			return fmt.Errorf("active cluster %s: Unsubscribed is %t, but the on-demand state says the opposite", name, unsubscribed)
		}
	}
	if err := checkSubset("subscribed clusters", slices.Collect(maps.Keys(s.onDemand.clusters.entries)), slices.Collect(maps.Keys(s.clusters.byName))); err != nil {
		return err
	}
	return checkSubset("subscribed tables", slices.Collect(maps.Keys(s.onDemand.tables.entries)), referenced.tables)
}

// checkSubset returns an error if names contains a name that is not in allowed.
func checkSubset(label string, names, allowed []string) error {
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("%s: unexpected %q, want a subset of %q", label, name, allowed)
		}
	}
	return nil
}

// referenced computes, without the reference counts, the names to which clusters and listeners
// refer.
func (s *State) referenced() referencedNames {
	assignments, tables, secrets, extensions := map[string]bool{}, map[string]bool{}, map[resource.SecretRef]bool{}, map[string]bool{}
	for name, e := range s.clusters.byName {
		for _, c := range []*resource.Cluster{e.Received, e.Active} {
			if c == nil {
				continue
			}
			if c.EDSServiceName != "" && s.requestsEndpoints(name) {
				assignments[c.EDSServiceName] = true
			}
			addKeys(secrets, c.Secrets())
		}
	}
	for _, e := range s.listeners.byName {
		for _, l := range []*resource.Listener{e.Received, e.Active} {
			if l == nil {
				continue
			}
			addKeys(tables, s.requestedTables(l.RouteConfigNames))
			addKeys(secrets, l.Secrets())
			for _, dynamic := range l.DynamicFilters {
				extensions[dynamic.Name] = true
			}
		}
	}
	return referencedNames{
		assignments: slices.Sorted(maps.Keys(assignments)),
		tables:      slices.Sorted(maps.Keys(tables)),
		extensions:  slices.Sorted(maps.Keys(extensions)),
		secrets:     slices.SortedFunc(maps.Keys(secrets), resource.SecretRef.Compare),
	}
}

// countedNames returns the names that have a reference count.
func (r *references) countedNames() referencedNames {
	return referencedNames{
		assignments: slices.Sorted(maps.Keys(r.assignments.counts)),
		tables:      slices.Sorted(maps.Keys(r.tables.counts)),
		extensions:  slices.Sorted(maps.Keys(r.extensions.counts)),
		secrets:     slices.SortedFunc(maps.Keys(r.secrets.counts), resource.SecretRef.Compare),
	}
}
