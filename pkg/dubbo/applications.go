package dubbo

import (
	"context"
	"errors"
	"slices"
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

// revision is what is known about one revision. Guarded by Discovery.mu.
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
// failed. mu is held.
func (h *Discovery) resolveInstances(s *subscription) {
	v := *s.instanceSnapshot
	s.unresolved = nil
	revisions := make([]*revision, len(v.Instances)) // nil: the instance provides nothing
	pending := false
	for n, i := range v.Instances {
		if application.Revision(i) == "" {
			continue
		}
		r := h.revisionOf(s.session, i)
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
			found = append(found, r.metadata.URLs(i, s.spec.id.service)...)
		default:
			s.unresolved = r.err
			found = append(found, s.providersAt(i)...)
		}
	}
	v.Providers = mergeProviders(found, v.Providers)
	v.Instances = nil
	h.queueSnapshot(s, v)
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

// revisionOf returns the state of an instance's revision, and starts to fetch it on first use. mu
// is held.
func (h *Discovery) revisionOf(s *session, i registry.Instance) *revision {
	key := revisionKey{s, i.Application, application.Revision(i)}
	r := h.revisions[key]
	if r != nil {
		return r
	}
	if len(h.revisions) >= max(maxRevisions, h.sweepAt) {
		h.dropUnusedRevisions()
		h.sweepAt = 2 * len(h.revisions) // sweeps stay rare if most revisions are needed
	}
	r = &revision{}
	h.revisions[key] = r
	if h.running {
		h.tasks.Go(func() { h.fetch(key, r) })
	}
	return r
}

// dropUnusedRevisions drops fetched revisions that no subscription needs. mu is held.
func (h *Discovery) dropUnusedRevisions() {
	needed := map[revisionKey]bool{}
	for _, s := range h.subscriptions {
		if s.instanceSnapshot == nil {
			continue
		}
		for _, i := range s.instanceSnapshot.Instances {
			needed[revisionKey{s.session, i.Application, application.Revision(i)}] = true
		}
	}
	for key, r := range h.revisions {
		if r.metadata != nil && !needed[key] {
			delete(h.revisions, key)
		}
	}
}

// instancesOf returns the instances of a revision that subscriptions report. mu is held.
func (h *Discovery) instancesOf(key revisionKey) (all []registry.Instance) {
	for _, s := range h.subscriptions {
		if s.session == key.session && s.instanceSnapshot != nil {
			all = append(all, s.instancesOf(key)...)
		}
	}
	return all
}

func (s *subscription) instancesOf(key revisionKey) (all []registry.Instance) {
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
func (h *Discovery) fetch(key revisionKey, r *revision) {
	late := time.AfterFunc(fetchTimeout, func() { h.fetchTimedOut(key, r) })
	defer late.Stop()
	pause := firstFetchBackoff
	for attempt := 0; ; attempt++ {
		h.fetchSlots <- struct{}{} // the holder releases it within fetchSlotTime
		over := sync.OnceFunc(func() { <-h.fetchSlots })
		turn := time.AfterFunc(fetchSlotTime, over)
		h.mu.Lock()
		instances := h.instancesOf(key)
		needed := len(instances) > 0 && h.runCtx.Err() == nil
		if !needed {
			delete(h.revisions, key)
		}
		from := key.session.registry
		h.mu.Unlock()
		var services *application.MetadataInfo
		var err error
		if needed {
			services, err = h.fetchOnce(from, instances[attempt%len(instances)])
		}
		turn.Stop()
		over()
		if !needed {
			return
		}

		h.mu.Lock()
		h.recordFetch(key, r, services, err)
		h.mu.Unlock()
		if err == nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-h.runCtx.Done():
		}
		timer.Stop()
		pause = min(2*pause, maxBackoff)
	}
}

// fetchTimedOut ends the wait of snapshots for a revision.
func (h *Discovery) fetchTimedOut(key revisionKey, r *revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.metadata == nil && r.err == nil && h.runCtx.Err() == nil {
		h.recordFetch(key, r, nil, errNoResponse)
	}
}

// fetchOnce makes one attempt.
func (h *Discovery) fetchOnce(from registry.Registry, i registry.Instance) (*application.MetadataInfo, error) {
	if from == nil {
		return nil, errRegistryClosed
	}
	ctx, cancel := context.WithTimeout(h.runCtx, fetchTimeout)
	defer cancel()
	return application.Fetch(ctx, from, i)
}

// recordFetch records the result of an attempt. mu is held.
func (h *Discovery) recordFetch(key revisionKey, r *revision, services *application.MetadataInfo, err error) {
	if err != nil && r.err == nil && h.runCtx.Err() == nil {
		h.options.Log.Warn("cannot fetch metadata; instances with this metadata are not used; retrying",
			logRegistry, key.session.key.String(), logApplication, key.application, logError, err)
	}
	again := r.err != nil && err != nil // the result has not changed
	r.metadata, r.err = services, err
	if again {
		return
	}
	for _, s := range h.subscriptions {
		if s.session == key.session && s.instanceSnapshot != nil && slices.ContainsFunc(s.instanceSnapshot.Instances, func(i registry.Instance) bool {
			return i.Application == key.application && application.Revision(i) == key.revision
		}) {
			h.resolveInstances(s)
		}
	}
}
