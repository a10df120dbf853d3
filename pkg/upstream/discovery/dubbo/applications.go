package dubbo

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/application"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// What a registry says of instances (Dubbo 3) becomes providers when the metadata of their
// revisions are known. They are fetched once for all services and instances, and again
// after a while if that fails:
//
//	hear ── View.Instances ──▶ resolve ──▶ all are known ──▶ believed as any other list
//	                             │  ▲
//	                             ▼  │ known, or failed
//	                           fetch ─▶ registry.Metadata, or the instance itself
//
// A list waits for all that it needs for the first time, so that providers whose
// application has a new revision are not missing meanwhile.

// revisionKey is what tells revisions apart.
type revisionKey struct {
	session               *session
	application, revision string
}

// revision is what is known of one. It is guarded by Hub.mu.
type revision struct {
	services *application.MetadataInfo // nil: not known yet
	err      error                     // of the last attempt; nil: there was none, or it went well
}

const (
	fetchIn     = 5 * time.Second
	mostFetches = 32 // that have their turn at a time
	fetchTurn   = 500 * time.Millisecond
	// firstFetchPause is how long the second attempt waits; later ones wait twice as long each
	// time. Dubbo registers an instance a moment before it answers questions about it.
	firstFetchPause = 50 * time.Millisecond
	mostRevisions   = 1024 // that may no longer be needed
)

var errRegistryGone = errors.New("the registry is not in use any more")

// resolve makes providers of the instances that were heard of, if all can be. mu is held.
func (h *Discovery) resolve(s *subscription) {
	v := *s.heard
	s.unresolved = nil
	revisions := make([]*revision, len(v.Instances)) // nil: the instance provides nothing
	pending := false
	for n, i := range v.Instances {
		if application.Revision(i) == "" {
			continue
		}
		r := h.revisionOf(s.session, i)
		revisions[n], pending = r, pending || r.services == nil && r.err == nil
	}
	if pending {
		return
	}
	var found []registry.URL
	for n, i := range v.Instances {
		switch r := revisions[n]; {
		case r == nil:
		case r.services != nil:
			found = append(found, r.services.URLs(i, s.wish.id.service)...)
		default:
			s.unresolved = r.err
			found = append(found, s.knownAt(i)...)
		}
	}
	v.Providers = withoutDoubles(found, v.Providers)
	v.Instances = nil
	h.queueSnapshot(s, v)
}

// knownAt returns the providers that are known of an instance.
func (s *subscription) knownAt(i registry.Instance) (all []registry.URL) {
	for _, u := range s.current.Providers {
		if u.Host == i.Host && u.Get(parameterApplication) == i.Application {
			all = append(all, u)
		}
	}
	return all
}

// withoutDoubles returns the providers that instances are, and those of others that are at
// other addresses, or of another group or version: as in Dubbo, what an application says
// counts more.
func withoutDoubles(found, others []registry.URL) []registry.URL {
	if len(found) == 0 {
		return others
	}
	there := make(map[provision]bool, len(found))
	for _, u := range found {
		there[provisionOf(u)] = true
	}
	for _, u := range others {
		if !there[provisionOf(u)] {
			found = append(found, u)
		}
	}
	return found
}

// revisionOf returns what is known of an instance's revision, which is fetched if that has
// not begun. mu is held.
func (h *Discovery) revisionOf(s *session, i registry.Instance) *revision {
	key := revisionKey{s, i.Application, application.Revision(i)}
	r := h.revisions[key]
	if r != nil {
		return r
	}
	if len(h.revisions) >= max(mostRevisions, h.sweepAt) {
		h.forgetRevisions()
		h.sweepAt = 2 * len(h.revisions) // if most are needed, looking for others costs little
	}
	r = &revision{}
	h.revisions[key] = r
	if h.running {
		h.tasks.Go(func() { h.fetch(key, r) })
	}
	return r
}

// forgetRevisions forgets what is known of revisions that nobody needs. mu is held.
func (h *Discovery) forgetRevisions() {
	needed := map[revisionKey]bool{}
	for _, s := range h.followed {
		if s.heard == nil {
			continue
		}
		for _, i := range s.heard.Instances {
			needed[revisionKey{s.session, i.Application, application.Revision(i)}] = true
		}
	}
	for key, r := range h.revisions {
		if r.services != nil && !needed[key] {
			delete(h.revisions, key)
		}
	}
}

// instancesOf returns the instances of a revision that are followed. mu is held.
func (h *Discovery) instancesOf(key revisionKey) (all []registry.Instance) {
	for _, s := range h.followed {
		if s.session == key.session && s.heard != nil {
			all = append(all, s.instancesOf(key)...)
		}
	}
	return all
}

func (s *subscription) instancesOf(key revisionKey) (all []registry.Instance) {
	for _, i := range s.heard.Instances {
		if i.Application == key.application && application.Revision(i) == key.revision {
			all = append(all, i)
		}
	}
	return all
}

// fetch finds out what a revision provides, as long as somebody needs it. The turns of all
// come one after the other, however often some before them have failed; lists do not wait
// for that longer than fetchIn. A turn is over before who does not answer is given up, so
// that many dead instances leave time for those that live.
func (h *Discovery) fetch(key revisionKey, r *revision) {
	late := time.AfterFunc(fetchIn, func() { h.late(key, r) })
	defer late.Stop()
	pause := firstFetchPause
	for attempt := 0; ; attempt++ {
		h.fetches <- struct{}{} // who holds it lets go of it within fetchTurn
		over := sync.OnceFunc(func() { <-h.fetches })
		turn := time.AfterFunc(fetchTurn, over)
		h.mu.Lock()
		instances := h.instancesOf(key)
		needed := len(instances) > 0 && h.life.Err() == nil
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
		h.fetched(key, r, services, err)
		h.mu.Unlock()
		if err == nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-h.life.Done():
		}
		timer.Stop()
		pause = min(2*pause, longestPause)
	}
}

// late has lists wait no longer for a revision.
func (h *Discovery) late(key revisionKey, r *revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.services == nil && r.err == nil && h.life.Err() == nil {
		h.fetched(key, r, nil, errNotBefore)
	}
}

// fetchOnce makes an attempt.
func (h *Discovery) fetchOnce(from registry.Registry, i registry.Instance) (*application.MetadataInfo, error) {
	if from == nil {
		return nil, errRegistryGone
	}
	ctx, cancel := context.WithTimeout(h.life, fetchIn)
	defer cancel()
	return application.Fetch(ctx, from, i)
}

// fetched takes in what became of an attempt. mu is held.
func (h *Discovery) fetched(key revisionKey, r *revision, services *application.MetadataInfo, err error) {
	if err != nil && r.err == nil && h.life.Err() == nil {
		h.o.Log.Warn("instances cannot be used before their metadata is known, which is tried again",
			logRegistry, key.session.key.String(), logApplication, key.application, logError, err)
	}
	again := r.err != nil && err != nil // nothing is new
	r.services, r.err = services, err
	if again {
		return
	}
	for _, s := range h.followed {
		if s.session == key.session && s.heard != nil && slices.ContainsFunc(s.heard.Instances, func(i registry.Instance) bool {
			return i.Application == key.application && application.Revision(i) == key.revision
		}) {
			h.resolve(s)
		}
	}
}
