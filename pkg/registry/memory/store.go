package memory

import (
	"maps"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/pkg/registry"
)

// store contains registrations and watchers. It is safe for concurrent use. Its lock is acquired
// before that of a session.
type store struct {
	sessions int // guarded by Server.mu; sessions that use a store of this process

	mu        sync.Mutex
	entries   map[string]map[entryKey]entry    // guarded by mu; by interface
	instances map[string]map[entryKey]instance // guarded by mu; by interface
	watchers  map[string]map[*watcher]struct{} // guarded by mu; by interface
}

// entryKey distinguishes equal registrations of several sessions.
type entryKey struct{ owner, text string }

type entry struct {
	url  registry.URL
	lost bool // its session ended without unregistering it
}

func newStore() *store {
	return &store{
		entries:   map[string]map[entryKey]entry{},
		instances: map[string]map[entryKey]instance{},
		watchers:  map[string]map[*watcher]struct{}{},
	}
}

// put adds a URL of an owner; lost says whether its session ended without unregistering it.
func (b *store) put(owner, text string, u registry.URL, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := u.Service().Interface
	all := b.entries[name]
	if all == nil {
		all = map[entryKey]entry{}
		b.entries[name] = all
	}
	key := entryKey{owner, text}
	if old, ok := all[key]; ok && old.lost == lost {
		return
	}
	all[key] = entry{u, lost}
	b.checkWatchers(name)
}

// remove removes a URL of an owner.
func (b *store) remove(owner, text string, u registry.URL) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeEntry(u.Service().Interface, entryKey{owner, text})
}

// removeAll removes all registrations of an owner.
func (b *store) removeAll(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, all := range b.entries {
		for key := range all {
			if key.owner == owner {
				b.removeEntry(name, key)
			}
		}
	}
	for name, all := range b.instances {
		for key := range all {
			if key.owner == owner {
				b.removeInstanceEntry(name, key)
			}
		}
	}
}

// removeEntry must be called with mu held.
func (b *store) removeEntry(name string, key entryKey) {
	all := b.entries[name]
	if _, ok := all[key]; !ok {
		return
	}
	delete(all, key)
	if len(all) == 0 {
		delete(b.entries, name)
	}
	b.checkWatchers(name)
}

// checkWatchers marks the watchers of an interface for a check. mu is held.
func (b *store) checkWatchers(name string) {
	for w := range b.watchers[name] {
		w.session.scheduleCheck(w)
	}
}

func (b *store) watch(w *watcher) {
	b.mu.Lock()
	name := w.service.Interface
	if b.watchers[name] == nil {
		b.watchers[name] = map[*watcher]struct{}{}
	}
	b.watchers[name][w] = struct{}{}
	b.mu.Unlock()
	w.session.scheduleCheck(w)
}

func (b *store) unwatch(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := w.service.Interface
	if delete(b.watchers[name], w); len(b.watchers[name]) == 0 {
		delete(b.watchers, name)
	}
}

// snapshot returns the snapshot of a service, and texts that distinguish it from other snapshots.
func (b *store) snapshot(s registry.Service) (registry.Snapshot, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	live := map[string]registry.URL{}
	addresses := map[string]bool{}
	for key, e := range b.entries[s.Interface] {
		if !e.lost && matchesService(s, e.url) {
			live[key.text] = e.url
			addresses[e.url.Address()] = true
		}
	}
	v := registry.Snapshot{Authoritative: true}
	texts := slices.Sorted(maps.Keys(live))
	for _, text := range texts {
		switch u := live[text]; u.Category() {
		case registry.Providers:
			v.Providers = append(v.Providers, u)
		case registry.Configurators:
			v.Configurators = append(v.Configurators, u)
		case registry.Routers:
			v.Routers = append(v.Routers, u)
		}
	}
	for _, e := range b.entries[s.Interface] {
		if e.lost && e.url.Category() == registry.Providers && s.Accepts(e.url) && !addresses[e.url.Address()] {
			v.Authoritative = false
		}
	}
	texts = append(texts, b.addInstances(&v, s)...)
	if !v.Authoritative {
		texts = append(texts, "lost")
	}
	return v, texts
}

// matchesService reports whether a URL is part of the snapshot of a service. Rules apply to all groups
// and versions if they name none.
func matchesService(s registry.Service, u registry.URL) bool {
	switch u.Category() {
	case registry.Consumers:
		return false
	case registry.Providers:
		return s.Accepts(u)
	}
	of := u.Service()
	if u.Category() == registry.Configurators && s.Accepts(u) {
		return true
	}
	return (of.Group == "" || of.Group == "*" || of.Group == s.Group) && (of.Version == "" || of.Version == "*" || of.Version == s.Version)
}

// watcher is a subscription to a service.
type watcher struct {
	service registry.Service        // immutable
	notify  func(registry.Snapshot) // immutable
	session *session                // immutable

	mu       sync.Mutex // held while notify runs
	stopped  bool       // guarded by mu
	notified bool       // guarded by mu; notify was called
	last     []string   // guarded by mu; the texts of the last snapshot
}

// notifyIfChanged calls notify if the snapshot has changed.
func (w *watcher) notifyIfChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	view, texts := w.session.store.snapshot(w.service)
	if w.notified && slices.Equal(texts, w.last) {
		return
	}
	w.notified, w.last = true, texts
	w.notify(view)
}
