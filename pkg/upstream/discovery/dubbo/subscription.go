package dubbo

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// subscription is a service at one registry that is called from here. What the registry
// says is not believed when it looks like a loss:
//
//	nobody is left                         those who were there are kept, and those who
//	                                       left not long before: sessions of many expire
//	                                       one after the other
//	more than half are gone, in the first
//	  list of another session              those who are gone are kept
//
// They are kept beside those who are named until they are named again, or EmptyAfter has
// passed. A provider that really is gone costs little: it cannot be reached, and is
// ejected. One that lives and is not called costs the service.
type subscription struct {
	wish     *spec
	since    time.Time
	service  *service      // immutable
	session  *session      // immutable
	consumer *registration // immutable

	// All guarded by Hub.mu.
	over          bool               // it was taken back
	stop          func()             // nil: not begun
	deadline      time.Time          // until then its service waits for the first list
	heard         *registry.Snapshot // what was heard last, if it has instances
	unresolved    error              // why some of them are no providers
	pending       *registry.Snapshot // not judged yet; nil: nothing new
	sawEmpty      bool               // since the last judgement there was a list of nobody
	current       registry.Snapshot  // what the registry says
	retained      []keptProvider     // who are used beside
	removed       []departed         // who the registry has ceased to name of late
	listed        time.Time          // when the registry said it; zero: nothing is known
	restored      bool               // said is not of this session
	held          time.Time          // of restored: until when said was known to hold
	emptied       time.Time          // since when the registry has named nobody; zero: it names somebody
	sessionNumber int                // the number of the session that said was judged in; 0: of no session here
}

// provision is a service at an address, where there may be others: of another group, or
// version.
type provision struct {
	host    string
	port    uint16
	service registry.Service
}

func provisionOf(u registry.URL) provision {
	s := u.Service()
	s.Version = registry.PlainVersion(s.Version)
	return provision{u.Host, u.Port, s}
}

// keptProvider is used although the registry does not name it.
type keptProvider struct {
	url   registry.URL
	until time.Time
}

// departed is a provider that the registry does not name any more.
type departed struct {
	url registry.URL
	at  time.Time
}

// ofLate is how long ago providers may have left that count as lost when nobody is left: as
// long as the sessions of all take to expire that lost a registry at the same time.
const ofLate = 2 * time.Minute

// known reports whether there is a list.
func (s *subscription) known() bool { return !s.listed.IsZero() }

// onSnapshot takes in what a registry says. It is registry.Registry's notify.
func (h *Discovery) onSnapshot(s *subscription, v registry.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.over {
		return
	}
	v.Providers = accepted(s.wish.id.service, v.Providers)
	s.heard, s.unresolved = nil, nil
	if len(v.Instances) > 0 {
		s.heard = &v
		h.resolve(s)
		return
	}
	h.queueSnapshot(s, v)
}

// queueSnapshot takes in a list without instances. mu is held.
func (h *Discovery) queueSnapshot(s *subscription, v registry.Snapshot) {
	s.pending = &v
	s.sawEmpty = s.sawEmpty && !v.Authoritative || isEmpty(&v) && !v.Authoritative
	h.dirty[s.service] = struct{}{}
	h.poke()
}

// accepted returns the providers that a consumer of a service takes; it does not change
// all.
func accepted(s registry.Service, all []registry.URL) []registry.URL {
	refused := func(u registry.URL) bool { return !s.Accepts(u) }
	if !slices.ContainsFunc(all, refused) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), refused)
}

// subscribe begins or changes a subscription. It is called with mu held.
func (h *Discovery) subscribe(w *spec) *subscription {
	old := h.followed[w.id]
	if old == nil || !reflect.DeepEqual(old.wish.Request, w.Request) {
		h.save(saveSoon)
	}
	if old != nil && old.wish.session == w.session {
		old.wish = w
		u := h.consumer(w, old.since)
		h.set(old.consumer, &u)
		return old
	}
	s := h.newSubscription(w)
	if old != nil { // with other credentials: what is known stays
		s.current, s.retained, s.removed, s.listed, s.restored, s.held, s.emptied = old.current, old.retained, old.removed, old.listed, true, time.Now(), old.emptied
		h.unsubscribe(old)
	}
	h.followed[w.id] = s
	s.service.sources = append(s.service.sources, s)
	slices.SortFunc(s.service.sources, func(a, b *subscription) int {
		return cmp.Or(cmp.Compare(a.wish.id.kind, b.wish.id.kind), cmp.Compare(a.wish.id.address, b.wish.id.address))
	})
	return s
}

// newSubscription returns a subscription that is about to begin.
func (h *Discovery) newSubscription(w *spec) *subscription {
	sv := h.services[w.id.service]
	if sv == nil {
		sv = &service{key: w.id.service}
		h.services[w.id.service] = sv
	}
	session := h.session(w.session)
	session.uses++
	s := &subscription{wish: w, since: h.stamp(), service: sv, session: session, deadline: time.Now().Add(answerWait)}
	s.consumer = h.newEntry(session)
	u := h.consumer(w, s.since)
	h.set(s.consumer, &u)
	h.starts = append(h.starts, s)
	h.poke()
	return s
}

// unsubscribe ends a subscription. It is called with mu held.
func (h *Discovery) unsubscribe(s *subscription) {
	s.over = true
	delete(h.followed, s.wish.id)
	s.service.sources = slices.DeleteFunc(s.service.sources, func(o *subscription) bool { return o == s })
	stop := s.stop // nil: follow sees that it is over
	h.stops = append(h.stops, func() {
		if stop != nil {
			stop()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end(s.consumer)
		h.leave(s.session)
	})
	h.poke()
}

// evaluate decides what of the newest list is believed, at the time now, in the session of
// that number.
func (s *subscription) evaluate(now time.Time, session int, emptyAfter time.Duration) {
	if v := s.pending; v != nil {
		s.pending = nil
		s.accept(*v, now, session, emptyAfter)
	}
	s.retained = slices.DeleteFunc(s.retained, func(k keptProvider) bool { return !now.Before(k.until) })
}

// accept makes v what the registry says.
func (s *subscription) accept(v registry.Snapshot, now time.Time, session int, emptyAfter time.Duration) {
	there := map[provision]bool{}
	for _, u := range v.Providers {
		there[provisionOf(u)] = true
	}
	// Whoever was named and is no longer.
	var gone []registry.URL
	before := map[provision]bool{}
	for _, u := range s.current.Providers {
		before[provisionOf(u)] = true
		if !there[provisionOf(u)] {
			gone = append(gone, u)
		}
	}
	another := s.sessionNumber != session
	if s.restored && now.Sub(s.held) >= emptyAfter {
		another = false // so long ago that it is no sign of a loss
	}
	doubted := s.sawEmpty || another && 2*len(gone) > len(before)
	s.retained = slices.DeleteFunc(s.retained, func(k keptProvider) bool { return there[provisionOf(k.url)] || v.Authoritative })
	s.removed = slices.DeleteFunc(s.removed, func(d departed) bool {
		return there[provisionOf(d.url)] || v.Authoritative || now.Sub(d.at) > ofLate
	})
	for _, u := range gone {
		s.removed = append(s.removed, departed{u, now})
	}
	if s.sawEmpty {
		gone = s.lost()
	}
	s.sawEmpty = false
	if doubted && !v.Authoritative && emptyAfter > 0 {
		for _, u := range gone {
			s.retained = append(s.retained, keptProvider{u, now.Add(emptyAfter)})
		}
		if isEmpty(&v) {
			v = withRules(v, s.current)
		}
	}
	switch {
	case !isEmpty(&v):
		s.emptied = time.Time{}
	case s.emptied.IsZero():
		s.emptied = now
	}
	s.current, s.listed, s.restored, s.sessionNumber = v, now, false, session
}

// lost returns those who left of late and are not kept yet.
func (s *subscription) lost() (urls []registry.URL) {
	kept := make(map[provision]bool, len(s.retained))
	for _, k := range s.retained {
		kept[provisionOf(k.url)] = true
	}
	for _, d := range s.removed {
		if !kept[provisionOf(d.url)] {
			urls = append(urls, d.url)
		}
	}
	return urls
}

// isEmpty reports whether nobody is named.
func isEmpty(v *registry.Snapshot) bool { return len(v.Providers) == 0 && len(v.Instances) == 0 }

// withRules returns v with the rules of before, where it has none: they were lost with
// the providers.
func withRules(v, before registry.Snapshot) registry.Snapshot {
	if len(v.Configurators) == 0 {
		v.Configurators = before.Configurators
	}
	if len(v.Routers) == 0 {
		v.Routers = before.Routers
	}
	return v
}

// effective returns the list that is used.
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

// emptyProtected reports whether the registry names nobody, and others are used.
func (s *subscription) emptyProtected() bool {
	return len(s.retained) > 0 && len(s.current.Providers) == 0
}

// due returns when judging again changes something though nothing new is said; zero: it
// does not.
func (s *subscription) due() (at time.Time) {
	for _, k := range s.retained {
		if at.IsZero() || k.until.Before(at) {
			at = k.until
		}
	}
	return at
}
