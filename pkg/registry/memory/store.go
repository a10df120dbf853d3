package memory

import (
	"maps"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/pkg/registry"
)

// store contains registrations and watchers. It is safe for concurrent use. Its lock is acquired
// after session.updateMu and watcher.mu, and before session.mu.
type store struct {
	sessions int // guarded by Server.mu; number of sessions, if the store is in Server.stores

	mu        sync.Mutex
	entries   map[string]map[entryKey]entry    // guarded by mu; by interface
	instances map[string]map[entryKey]instance // guarded by mu; by interface
	watchers  map[string]map[*watcher]struct{} // guarded by mu; by interface
}

// entryKey identifies a registration of a session. owner is the name of the session; text is the
// encoded URL, or the hash of a registrationText.
type entryKey struct{ owner, text string }

type entry struct {
	url  registry.URL
	lost bool // the session ended without unregistering the URL
}

func newStore() *store {
	return &store{
		entries:   map[string]map[entryKey]entry{},
		instances: map[string]map[entryKey]instance{},
		watchers:  map[string]map[*watcher]struct{}{},
	}
}

// put adds a URL of an owner; lost means that the owner ended without unregistering the URL.
func (st *store) put(owner, text string, u registry.URL, lost bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	name := u.Service().Interface
	byKey := st.entries[name]
	if byKey == nil {
		byKey = map[entryKey]entry{}
		st.entries[name] = byKey
	}
	key := entryKey{owner, text}
	if old, ok := byKey[key]; ok && old.lost == lost {
		return
	}
	byKey[key] = entry{u, lost}
	st.scheduleChecks(name)
}

// remove removes a URL of an owner.
func (st *store) remove(owner, text string, u registry.URL) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.removeEntry(u.Service().Interface, entryKey{owner, text})
}

// removeAll removes all registrations of an owner.
func (st *store) removeAll(owner string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for name, byKey := range st.entries {
		for key := range byKey {
			if key.owner == owner {
				st.removeEntry(name, key)
			}
		}
	}
	for name, byKey := range st.instances {
		for key := range byKey {
			if key.owner == owner {
				st.removeInstanceEntry(name, key)
			}
		}
	}
}

// removeEntry removes an entry of an interface. The caller holds mu.
func (st *store) removeEntry(name string, key entryKey) {
	byKey := st.entries[name]
	if _, ok := byKey[key]; !ok {
		return
	}
	delete(byKey, key)
	if len(byKey) == 0 {
		delete(st.entries, name)
	}
	st.scheduleChecks(name)
}

// scheduleChecks schedules a check of each watcher of an interface. The caller holds mu.
func (st *store) scheduleChecks(name string) {
	for w := range st.watchers[name] {
		w.session.scheduleCheck(w)
	}
}

func (st *store) watch(w *watcher) {
	st.mu.Lock()
	name := w.service.Interface
	if st.watchers[name] == nil {
		st.watchers[name] = map[*watcher]struct{}{}
	}
	st.watchers[name][w] = struct{}{}
	st.mu.Unlock()
	w.session.scheduleCheck(w)
}

func (st *store) unwatch(w *watcher) {
	st.mu.Lock()
	defer st.mu.Unlock()
	name := w.service.Interface
	if delete(st.watchers[name], w); len(st.watchers[name]) == 0 {
		delete(st.watchers, name)
	}
}

// snapshot returns the snapshot of a service, and texts that distinguish it from other snapshots.
func (st *store) snapshot(s registry.Service) (registry.Snapshot, []string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	live := map[string]registry.URL{}
	addresses := map[string]bool{}
	for key, e := range st.entries[s.Interface] {
		if !e.lost && matchesService(s, e.url) {
			live[key.text] = e.url
			addresses[e.url.Address()] = true
		}
	}
	snap := registry.Snapshot{Authoritative: true}
	texts := slices.Sorted(maps.Keys(live))
	for _, text := range texts {
		switch u := live[text]; u.Category() {
		case registry.Providers:
			snap.Providers = append(snap.Providers, u)
		case registry.Configurators:
			snap.Configurators = append(snap.Configurators, u)
		case registry.Routers:
			snap.Routers = append(snap.Routers, u)
		}
	}
	for _, e := range st.entries[s.Interface] {
		if e.lost && e.url.Category() == registry.Providers && s.Accepts(e.url) && !addresses[e.url.Address()] {
			snap.Authoritative = false
		}
	}
	texts = append(texts, st.addInstances(&snap, s)...)
	if !snap.Authoritative {
		texts = append(texts, "lost")
	}
	return snap, texts
}

// matchesService reports whether a URL is part of the snapshot of a service. Rules without a group
// or version apply to all groups or versions.
func matchesService(s registry.Service, u registry.URL) bool {
	switch u.Category() {
	case registry.Consumers:
		return false
	case registry.Providers:
		return s.Accepts(u)
	}
	service := u.Service()
	if u.Category() == registry.Configurators && s.Accepts(u) {
		return true
	}
	return (service.Group == "" || service.Group == "*" || service.Group == s.Group) && (service.Version == "" || service.Version == "*" || service.Version == s.Version)
}

// watcher is a subscription to a service.
type watcher struct {
	service registry.Service        // immutable
	notify  func(registry.Snapshot) // immutable
	session *session                // immutable

	mu        sync.Mutex // held while notify runs
	stopped   bool       // guarded by mu
	notified  bool       // guarded by mu; notify was called
	lastTexts []string   // guarded by mu; the texts of the last snapshot
}

// notifyIfChanged calls notify if the snapshot has changed.
func (w *watcher) notifyIfChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	snap, texts := w.session.store.snapshot(w.service)
	if w.notified && slices.Equal(texts, w.lastTexts) {
		return
	}
	w.notified, w.lastTexts = true, texts
	w.notify(snap)
}
