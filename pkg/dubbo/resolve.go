package dubbo

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Instances that a registry reports (Dubbo 3) become providers when the metadata of their revisions
// has been fetched:
//
//	onSnapshot ── Snapshot.Instances ──▶ resolveInstances ──▶ metadata fetched ──▶ queueSnapshot
//	                                       │  ▲
//	                                   get ▼  │ metadataChanged: fetched, or failed
//	                                 metadataCache ─▶ registry.Metadata, or the instance
//
// A snapshot waits until each of its revisions has been fetched or has failed once, so that
// providers do not disappear while their application changes its revision.

// resolveInstances converts the instances of the last snapshot to providers, if each revision has
// been fetched or has failed. If a revision has failed, it keeps the current providers of the
// instance. The caller holds mu.
func (s *subscriber) resolveInstances(sub *subscription) {
	snapshot := *sub.instanceSnapshot
	sub.resolveErr = nil
	revisions := s.metadata.get(sub.session, snapshot.Instances, s.neededRevisions)
	if revisions == nil {
		return
	}
	var found []registry.URL
	for n, i := range snapshot.Instances {
		switch r := revisions[n]; {
		case r.metadata != nil:
			found = append(found, r.metadata.URLs(i, sub.spec.id.service)...)
		case r.err != nil:
			sub.resolveErr = r.err
			found = append(found, sub.providersAt(i)...)
		}
	}
	snapshot.Providers = mergeProviders(found, snapshot.Providers)
	snapshot.Instances = nil
	s.queueSnapshot(sub, sub.instanceSession, snapshot)
}

// metadataChanged handles a new result for a revision: it resolves the instances of all
// subscriptions in whose last snapshot an instance has the revision.
func (s *subscriber) metadataChanged(key revisionKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscriptions {
		if slices.ContainsFunc(sub.reported(key.session), key.matches) {
			s.resolveInstances(sub)
		}
	}
}

// instancesOf returns the reported instances that have a revision.
func (s *subscriber) instancesOf(key revisionKey) (instances []registry.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscriptions {
		for _, i := range sub.reported(key.session) {
			if key.matches(i) {
				instances = append(instances, i)
			}
		}
	}
	return instances
}

// neededRevisions returns the revisions of all reported instances. The caller holds mu.
func (s *subscriber) neededRevisions() map[revisionKey]bool {
	needed := map[revisionKey]bool{}
	for _, sub := range s.subscriptions {
		for _, i := range sub.reported(sub.session) {
			needed[revisionKeyOf(sub.session, i)] = true
		}
	}
	return needed
}

// reported returns the instances of the last snapshot if the subscription uses session ses, or nil.
// The caller holds subscriber.mu.
func (s *subscription) reported(ses *session) []registry.Instance {
	if s.session != ses || s.instanceSnapshot == nil {
		return nil
	}
	return s.instanceSnapshot.Instances
}

// providersAt returns the current providers at the host of an instance, of the same application.
func (s *subscription) providersAt(i registry.Instance) (providers []registry.URL) {
	for _, u := range s.currentSnapshot.Providers {
		if u.Host == i.Host && u.Get(parameterApplication) == i.Application {
			providers = append(providers, u)
		}
	}
	return providers
}

// mergeProviders returns found, the providers from instances, and the providers in others that have
// another key. As in Dubbo, a provider from an instance takes precedence over a provider with the
// same key.
func mergeProviders(found, others []registry.URL) []registry.URL {
	if len(found) == 0 {
		return others
	}
	seen := make(map[providerKey]bool, len(found))
	for _, u := range found {
		seen[providerKeyOf(u)] = true
	}
	for _, u := range others {
		if !seen[providerKeyOf(u)] {
			found = append(found, u)
		}
	}
	return found
}
