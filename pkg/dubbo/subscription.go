package dubbo

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// subscription is the subscription to a service at one registry. Weft does not trust a snapshot
// that looks like a loss in the registry:
//
//	no provider is left                    Weft retains the previous providers, and those
//	                                       removed shortly before, because the sessions
//	                                       of many providers expire one by one
//	more than half are missing in the
//	  first snapshot of another session    Weft retains the missing providers
//
// Retained providers are used next to reported ones until the registry reports them again, or
// EmptyAfter has passed. A provider that is really gone costs little: Weft cannot reach it, and
// ejects it. A live provider without calls costs the service.
type subscription struct {
	spec     *spec
	since    time.Time
	service  *service      // immutable
	session  *session      // immutable
	consumer *registration // immutable

	// Guarded by Discovery.mu.
	ended            bool               // unsubscribed
	stop             func()             // nil: not started
	deadline         time.Time          // the service waits until then for the first snapshot
	instanceSnapshot *registry.Snapshot // the last snapshot, if it has instances
	unresolved       error              // why some instances are not providers
	pending          *registry.Snapshot // not evaluated yet; nil: none
	sawEmpty         bool               // pending or replaced snapshots: one was empty, not authoritative
	current          registry.Snapshot  // the last evaluated snapshot
	retained         []retainedProvider // used in addition to current
	removed          []removedProvider  // recently removed by the registry
	evaluatedAt      time.Time          // when current was evaluated; zero: no snapshot
	restored         bool               // current is not from this session
	validUntil       time.Time          // if restored: until when current was known to be valid
	emptySince       time.Time          // since when there is no provider; zero: there is one
	sessionNumber    int                // session in which current was evaluated; 0: none of this process
}

// providerKey is a service at an address, which may provide it in other groups or versions, too.
type providerKey struct {
	host    string
	port    uint16
	service registry.Service
}

func providerKeyOf(u registry.URL) providerKey {
	s := u.Service()
	s.Version = registry.PlainVersion(s.Version)
	return providerKey{u.Host, u.Port, s}
}

// retainedProvider is a provider that is used although the registry does not report it.
type retainedProvider struct {
	url   registry.URL
	until time.Time
}

// removedProvider is a provider that the registry no longer reports.
type removedProvider struct {
	url registry.URL
	at  time.Time
}

// lossWindow is how long after their removal providers count as lost when the registry becomes empty.
// It covers the expiry of sessions that lost the registry at the same time.
const lossWindow = 2 * time.Minute

// hasSnapshot reports whether there is a snapshot.
func (s *subscription) hasSnapshot() bool { return !s.evaluatedAt.IsZero() }

// onSnapshot processes a snapshot. It is the notify function of registry.Registry.
func (h *Discovery) onSnapshot(s *subscription, v registry.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.ended {
		return
	}
	v.Providers = filterAccepted(s.spec.id.service, v.Providers)
	s.instanceSnapshot, s.unresolved = nil, nil
	if len(v.Instances) > 0 {
		s.instanceSnapshot = &v
		h.resolveInstances(s)
		return
	}
	h.queueSnapshot(s, v)
}

// queueSnapshot schedules the evaluation of a snapshot without instances. mu is held.
func (h *Discovery) queueSnapshot(s *subscription, v registry.Snapshot) {
	s.pending = &v
	s.sawEmpty = s.sawEmpty && !v.Authoritative || isEmpty(&v) && !v.Authoritative
	h.dirty[s.service] = struct{}{}
	h.wakeLoop()
}

// filterAccepted returns the providers that a consumer of a service accepts. It does not modify all.
func filterAccepted(s registry.Service, all []registry.URL) []registry.URL {
	refused := func(u registry.URL) bool { return !s.Accepts(u) }
	if !slices.ContainsFunc(all, refused) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), refused)
}

// subscribe starts or changes a subscription. mu is held.
func (h *Discovery) subscribe(w *spec) *subscription {
	old := h.subscriptions[w.id]
	if old == nil || !reflect.DeepEqual(old.spec.Request, w.Request) {
		h.save(saveSoon)
	}
	if old != nil && old.spec.session == w.session {
		old.spec = w
		u := h.consumerURL(w, old.since)
		h.set(old.consumer, &u)
		return old
	}
	s := h.newSubscription(w)
	if old != nil { // with other credentials: the known state stays
		s.current, s.retained, s.removed, s.evaluatedAt, s.restored, s.validUntil, s.emptySince = old.current, old.retained, old.removed, old.evaluatedAt, true, time.Now(), old.emptySince
		h.unsubscribe(old)
	}
	h.subscriptions[w.id] = s
	s.service.sources = append(s.service.sources, s)
	slices.SortFunc(s.service.sources, func(a, b *subscription) int {
		return cmp.Or(cmp.Compare(a.spec.id.kind, b.spec.id.kind), cmp.Compare(a.spec.id.address, b.spec.id.address))
	})
	return s
}

// newSubscription returns a subscription that the loop will start.
func (h *Discovery) newSubscription(w *spec) *subscription {
	sv := h.services[w.id.service]
	if sv == nil {
		sv = &service{key: w.id.service}
		h.services[w.id.service] = sv
	}
	session := h.openSession(w.session)
	session.uses++
	s := &subscription{spec: w, since: h.stamp(), service: sv, session: session, deadline: time.Now().Add(registryTimeout)}
	s.consumer = h.newRegistration(session)
	u := h.consumerURL(w, s.since)
	h.set(s.consumer, &u)
	h.pendingStarts = append(h.pendingStarts, s)
	h.wakeLoop()
	return s
}

// unsubscribe ends a subscription. mu is held.
func (h *Discovery) unsubscribe(s *subscription) {
	s.ended = true
	delete(h.subscriptions, s.spec.id)
	s.service.sources = slices.DeleteFunc(s.service.sources, func(o *subscription) bool { return o == s })
	stop := s.stop // nil: follow sees that over is set
	h.pendingStops = append(h.pendingStops, func() {
		if stop != nil {
			stop()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.endRegistration(s.consumer)
		h.releaseSession(s.session)
	})
	h.wakeLoop()
}

// evaluate processes the pending snapshot at the time now, in the session with that number, and
// drops expired retained providers.
func (s *subscription) evaluate(now time.Time, session int, emptyAfter time.Duration) {
	if v := s.pending; v != nil {
		s.pending = nil
		s.accept(*v, now, session, emptyAfter)
	}
	s.retained = slices.DeleteFunc(s.retained, func(k retainedProvider) bool { return !now.Before(k.until) })
}

// accept makes v the current snapshot, and decides which missing providers to retain.
func (s *subscription) accept(v registry.Snapshot, now time.Time, session int, emptyAfter time.Duration) {
	there := map[providerKey]bool{}
	for _, u := range v.Providers {
		there[providerKeyOf(u)] = true
	}
	// Providers that are missing from v.
	var gone []registry.URL
	before := map[providerKey]bool{}
	for _, u := range s.current.Providers {
		before[providerKeyOf(u)] = true
		if !there[providerKeyOf(u)] {
			gone = append(gone, u)
		}
	}
	another := s.sessionNumber != session
	if s.restored && now.Sub(s.validUntil) >= emptyAfter {
		another = false // the restored snapshot is too old to indicate a loss
	}
	doubted := s.sawEmpty || another && 2*len(gone) > len(before)
	s.retained = slices.DeleteFunc(s.retained, func(k retainedProvider) bool { return there[providerKeyOf(k.url)] || v.Authoritative })
	s.removed = slices.DeleteFunc(s.removed, func(d removedProvider) bool {
		return there[providerKeyOf(d.url)] || v.Authoritative || now.Sub(d.at) > lossWindow
	})
	for _, u := range gone {
		s.removed = append(s.removed, removedProvider{u, now})
	}
	if s.sawEmpty {
		gone = s.recentlyRemoved()
	}
	s.sawEmpty = false
	if doubted && !v.Authoritative && emptyAfter > 0 {
		for _, u := range gone {
			s.retained = append(s.retained, retainedProvider{u, now.Add(emptyAfter)})
		}
		if isEmpty(&v) {
			v = withRules(v, s.current)
		}
	}
	switch {
	case !isEmpty(&v):
		s.emptySince = time.Time{}
	case s.emptySince.IsZero():
		s.emptySince = now
	}
	s.current, s.evaluatedAt, s.restored, s.sessionNumber = v, now, false, session
}

// recentlyRemoved returns the recently removed providers that are not retained yet.
func (s *subscription) recentlyRemoved() (urls []registry.URL) {
	kept := make(map[providerKey]bool, len(s.retained))
	for _, k := range s.retained {
		kept[providerKeyOf(k.url)] = true
	}
	for _, d := range s.removed {
		if !kept[providerKeyOf(d.url)] {
			urls = append(urls, d.url)
		}
	}
	return urls
}

// isEmpty reports whether a snapshot has no providers or instances.
func isEmpty(v *registry.Snapshot) bool { return len(v.Providers) == 0 && len(v.Instances) == 0 }

// withRules returns v with the rules of before if it has none, because they were lost with the
// providers.
func withRules(v, before registry.Snapshot) registry.Snapshot {
	if len(v.Configurators) == 0 {
		v.Configurators = before.Configurators
	}
	if len(v.Routers) == 0 {
		v.Routers = before.Routers
	}
	return v
}

// effective returns the current snapshot with the retained providers.
func (s *subscription) effective() registry.Snapshot {
	v := s.current
	if len(s.retained) > 0 {
		v.Providers = slices.Clone(v.Providers)
		for _, k := range s.retained {
			v.Providers = append(v.Providers, k.url)
		}
	}
	return v
}

// emptyProtected reports whether the registry reports no provider, but retained ones are used.
func (s *subscription) emptyProtected() bool {
	return len(s.retained) > 0 && len(s.current.Providers) == 0
}

// nextExpiry returns when the next retained provider expires, or zero.
func (s *subscription) nextExpiry() (at time.Time) {
	for _, k := range s.retained {
		if at.IsZero() || k.until.Before(at) {
			at = k.until
		}
	}
	return at
}
