package memory

import (
	"maps"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// store is what was registered, and who wants to know. Safe for concurrent use. Its lock
// is taken before that of a session.
type store struct {
	sessions int // guarded by Space.mu; of a board of this process

	mu        sync.Mutex
	entries   map[string]map[entryKey]entry    // guarded by mu; by interface
	instances map[string]map[entryKey]instance // guarded by mu; by interface
	watchers  map[string]map[*watcher]struct{} // guarded by mu; by interface
}

// entryKey tells apart what several sessions say alike.
type entryKey struct{ owner, text string }

type entry struct {
	url  registry.URL
	lost bool // whoever registered it has gone without taking it back
}

func newBoard() *store {
	return &store{
		entries:   map[string]map[entryKey]entry{},
		instances: map[string]map[entryKey]instance{},
		watchers:  map[string]map[*watcher]struct{}{},
	}
}

// put adds what an owner says; lost says that it counts no longer.
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
	b.touch(name)
}

// remove takes back what an owner said.
func (b *store) remove(owner, text string, u registry.URL) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.take(u.Service().Interface, entryKey{owner, text})
}

// removeAll takes back all that an owner said.
func (b *store) removeAll(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, all := range b.entries {
		for key := range all {
			if key.owner == owner {
				b.take(name, key)
			}
		}
	}
	for name, all := range b.instances {
		for key := range all {
			if key.owner == owner {
				b.takeInstance(name, key)
			}
		}
	}
}

// take is called with mu held.
func (b *store) take(name string, key entryKey) {
	all := b.entries[name]
	if _, ok := all[key]; !ok {
		return
	}
	delete(all, key)
	if len(all) == 0 {
		delete(b.entries, name)
	}
	b.touch(name)
}

// touch has those looked after who watch an interface. It is called with mu held.
func (b *store) touch(name string) {
	for w := range b.watchers[name] {
		w.session.look(w)
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
	w.session.look(w)
}

func (b *store) unwatch(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := w.service.Interface
	if delete(b.watchers[name], w); len(b.watchers[name]) == 0 {
		delete(b.watchers, name)
	}
}

// view returns what is said of a service, and the texts that tell it from another view.
func (b *store) view(s registry.Service) (registry.Snapshot, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	live := map[string]registry.URL{}
	addresses := map[string]bool{}
	for key, e := range b.entries[s.Interface] {
		if !e.lost && concerns(s, e.url) {
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
	texts = append(texts, b.viewInstances(&v, s)...)
	if !v.Authoritative {
		texts = append(texts, "lost")
	}
	return v, texts
}

// concerns reports whether a URL says something of a service. Rules are for all groups
// and versions that they do not name.
func concerns(s registry.Service, u registry.URL) bool {
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

// watcher is one who wants to know of a service.
type watcher struct {
	service registry.Service        // immutable
	notify  func(registry.Snapshot) // immutable
	session *session                // immutable

	mu      sync.Mutex // held while notify runs
	stopped bool       // guarded by mu
	told    bool       // guarded by mu
	last    []string   // guarded by mu; what it was told
}

// tell calls notify if there is something new.
func (w *watcher) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	view, texts := w.session.board.view(w.service)
	if w.told && slices.Equal(texts, w.last) {
		return
	}
	w.told, w.last = true, texts
	w.notify(view)
}
