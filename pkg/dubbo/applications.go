package dubbo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Instances that a registry reports (Dubbo 3) become providers once the metadata of their revisions
// are known. Weft fetches the metadata of a revision once for all services and instances, and
// retries after a failure:
//
//	onSnapshot ── Snapshot.Instances ──▶ resolve ──▶ metadata known ──▶ queueSnapshot
//	                                       │  ▲
//	                                       ▼  │ fetched, or failed
//	                                      fetch ─▶ registry.Metadata, or the instance
//
// A snapshot waits until each of its revisions was fetched or has failed once, so that providers do
// not disappear while their application changes its revision.

// revisionKey identifies a revision.
type revisionKey struct {
	session               *session
	application, revision string
}

// revision is what is known about one revision. Guarded by subscriber.mu.
type revision struct {
	metadata *application.MetadataInfo // nil: not known yet
	err      error                     // of the last attempt; nil: no attempt, or success
}

const (
	fetchTimeout         = 5 * time.Second
	maxConcurrentFetches = 32 // fetches that hold a turn concurrently
	fetchSlotTime        = 500 * time.Millisecond
	// firstFetchBackoff is the backoff before the second attempt. It doubles with each attempt. Dubbo
	// registers an instance shortly before the instance serves its metadata.
	firstFetchBackoff = 50 * time.Millisecond
	maxRevisions      = 1024 // above this number Weft drops unneeded revisions
)

var errRegistryClosed = errors.New("the registry is no longer in use")

// resolveInstances converts the last instances to providers, if the metadata of all is available or has
// failed. The caller holds mu.
func (s *subscriber) resolveInstances(sub *subscription) {
	v := *sub.instanceSnapshot
	sub.unresolved = nil
	revisions := make([]*revision, len(v.Instances)) // nil: the instance provides nothing
	pending := false
	for n, i := range v.Instances {
		if application.Revision(i) == "" {
			continue
		}
		r := s.revisionOf(sub.session, i)
		revisions[n], pending = r, pending || r.metadata == nil && r.err == nil
	}
	if pending {
		return
	}
	var found []registry.URL
	for n, i := range v.Instances {
		switch r := revisions[n]; {
		case r == nil:
		case r.metadata != nil:
			found = append(found, r.metadata.URLs(i, sub.spec.id.service)...)
		default:
			sub.unresolved = r.err
			found = append(found, sub.providersAt(i)...)
		}
	}
	v.Providers = mergeProviders(found, v.Providers)
	v.Instances = nil
	s.queueSnapshot(sub, v)
}

// providersAt returns the current providers at the host of an instance, of the same application.
func (s *subscription) providersAt(i registry.Instance) (all []registry.URL) {
	for _, u := range s.current.Providers {
		if u.Host == i.Host && u.Get(parameterApplication) == i.Application {
			all = append(all, u)
		}
	}
	return all
}

// mergeProviders returns found, the providers from instances, and those of others with another
// address, group or version. As in Dubbo, a provider from an instance takes precedence.
func mergeProviders(found, others []registry.URL) []registry.URL {
	if len(found) == 0 {
		return others
	}
	there := make(map[providerKey]bool, len(found))
	for _, u := range found {
		there[providerKeyOf(u)] = true
	}
	for _, u := range others {
		if !there[providerKeyOf(u)] {
			found = append(found, u)
		}
	}
	return found
}

// revisionOf returns the state of an instance's revision, and starts to fetch it on first use. The
// caller holds mu.
func (s *subscriber) revisionOf(ses *session, i registry.Instance) *revision {
	key := revisionKey{ses, i.Application, application.Revision(i)}
	r := s.revisions[key]
	if r != nil {
		return r
	}
	if len(s.revisions) >= max(maxRevisions, s.sweepAt) {
		s.dropUnusedRevisions()
		s.sweepAt = 2 * len(s.revisions) // sweeps stay rare if most revisions are needed
	}
	r = &revision{}
	s.revisions[key] = r
	s.tasks.run(func(ctx context.Context) { s.fetch(ctx, key, r) })
	return r
}

// dropUnusedRevisions drops fetched revisions that no subscription needs. The caller holds mu.
func (s *subscriber) dropUnusedRevisions() {
	needed := map[revisionKey]bool{}
	for _, sub := range s.subscriptions {
		if sub.instanceSnapshot == nil {
			continue
		}
		for _, i := range sub.instanceSnapshot.Instances {
			needed[revisionKey{sub.session, i.Application, application.Revision(i)}] = true
		}
	}
	for key, r := range s.revisions {
		if r.metadata != nil && !needed[key] {
			delete(s.revisions, key)
		}
	}
}

// instancesOf returns the instances of a revision that subscriptions report. The caller holds mu.
func (s *subscriber) instancesOf(key revisionKey) (all []registry.Instance) {
	for _, sub := range s.subscriptions {
		all = append(all, sub.instancesOf(key)...)
	}
	return all
}

// instancesOf returns the instances of a revision in the last snapshot. The caller holds
// subscriber.mu.
func (s *subscription) instancesOf(key revisionKey) (all []registry.Instance) {
	if s.session != key.session || s.instanceSnapshot == nil {
		return nil
	}
	for _, i := range s.instanceSnapshot.Instances {
		if i.Application == key.application && application.Revision(i) == key.revision {
			all = append(all, i)
		}
	}
	return all
}

// fetch fetches the metadata of a revision until it succeeds, or no subscription needs it. At most
// maxConcurrentFetches fetches hold a turn; the others queue for one, independently of earlier failures.
// Snapshots wait at most fetchTimeout. A turn ends before an attempt times out, so that many dead
// instances do not starve live ones.
func (s *subscriber) fetch(ctx context.Context, key revisionKey, r *revision) {
	late := time.AfterFunc(fetchTimeout, func() { s.fetchTimedOut(ctx, key, r) })
	defer late.Stop()
	pause := firstFetchBackoff
	for attempt := 0; ; attempt++ {
		s.fetchTurn <- struct{}{} // the holder releases it within fetchSlotTime
		over := sync.OnceFunc(func() { <-s.fetchTurn })
		turn := time.AfterFunc(fetchSlotTime, over)
		s.mu.Lock()
		instances := s.instancesOf(key)
		needed := len(instances) > 0 && ctx.Err() == nil
		if !needed {
			delete(s.revisions, key)
		}
		s.mu.Unlock()
		var services *application.MetadataInfo
		var err error
		if needed {
			services, err = fetchOnce(ctx, key.session.open(), instances[attempt%len(instances)])
		}
		turn.Stop()
		over()
		if !needed {
			return
		}

		s.mu.Lock()
		s.recordFetch(ctx, key, r, services, err)
		s.mu.Unlock()
		if err == nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, maxBackoff)
	}
}

// fetchTimedOut ends the wait of snapshots for a revision.
func (s *subscriber) fetchTimedOut(ctx context.Context, key revisionKey, r *revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.metadata == nil && r.err == nil && ctx.Err() == nil {
		s.recordFetch(ctx, key, r, nil, errNoResponse)
	}
}

// fetchOnce makes one attempt.
func fetchOnce(ctx context.Context, from registry.Registry, i registry.Instance) (*application.MetadataInfo, error) {
	if from == nil {
		return nil, errRegistryClosed
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return application.Fetch(ctx, from, i)
}

// recordFetch records the result of an attempt. The caller holds mu.
func (s *subscriber) recordFetch(ctx context.Context, key revisionKey, r *revision, services *application.MetadataInfo, err error) {
	if err != nil && r.err == nil && ctx.Err() == nil {
		s.settings.Log.Warn("cannot fetch metadata; instances with this metadata are not used; retrying",
			logRegistry, key.session.key.String(), logApplication, key.application, logError, err)
	}
	again := r.err != nil && err != nil // the result has not changed
	r.metadata, r.err = services, err
	if again {
		return
	}
	for _, sub := range s.subscriptions {
		if len(sub.instancesOf(key)) > 0 {
			s.resolveInstances(sub)
		}
	}
}
