package memory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// instance is a registered instance, stored under each of its interfaces.
type instance struct {
	*registry.InstanceRegistration

	lost bool // its session ended without unregistering it
}

// RegisterInstance implements registry.InstanceRegistry. Metadata and mapping exist as long as the
// instance does.
func (s *session) RegisterInstance(ctx context.Context, a *registry.InstanceRegistration) error {
	if err := a.Check(); err != nil {
		return err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("the instance of %s: %w", a.Instance.Application, err)
	}
	if len(text) > mostLine {
		return fmt.Errorf("the instance of %s has %d bytes; the maximum is %d", a.Instance.Application, len(text), mostLine)
	}
	return s.say(ctx, func() uint64 { return s.announce(nameOf(&a.Instance), string(text), a) })
}

// UnregisterInstance implements registry.InstanceRegistry.
func (s *session) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	return s.say(ctx, func() uint64 { return s.announce(nameOf(&i), "", nil) })
}

// nameOf returns the key of an instance in a session.
func nameOf(i *registry.Instance) string { return i.Application + " " + i.Name() }

// registrationText is the registration of an instance. Its text may be long, so mark, the SHA-256
// of text, is the key in the store.
type registrationText struct {
	text, mark   string
	announcement *registry.InstanceRegistration
}

func newSaid(text string, a *registry.InstanceRegistration) registrationText {
	sum := sha256.Sum256([]byte(text))
	return registrationText{text, string(sum[:]), a}
}

// announce replaces the registration of an instance by a, whose JSON is text; a nil a removes it.
// It returns the number of the change.
func (s *session) announce(name, text string, a *registry.InstanceRegistration) uint64 {
	s.saying.Lock()
	defer s.saying.Unlock()
	s.mu.Lock()
	old, asked := s.announced[name], s.asked
	s.mu.Unlock()
	if old.text == text {
		return asked
	}
	next := newSaid(text, a)
	s.board.replace(s.name, old, next)
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.announced, name); a != nil {
		s.announced[name] = next
	}
	s.asked++
	return s.asked
}

// Metadata implements registry.Registry. It returns the metadata of a registered instance.
func (s *session) Metadata(_ context.Context, application, revision string) ([]byte, error) {
	if text := s.board.metadata(application, revision); text != nil {
		return text, nil
	}
	return nil, registry.ErrNoMetadata
}

// metadata returns the metadata of a revision, or nil.
func (b *store) metadata(application, revision string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, all := range b.instances {
		for _, i := range all {
			if i.Instance.Application == application && i.Revision == revision {
				return i.MetadataInfo
			}
		}
	}
	return nil
}

// replace replaces a registration of an owner in one step, so that no snapshot misses both. Either
// of old and next may be empty.
func (b *store) replace(owner string, old, next registrationText) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putInstance(owner, next, false)
	b.removeInstance(owner, old)
}

// putInstance adds a registration of an owner, unless it is empty; lost says whether its session
// ended without unregistering it. mu is held, as in the next two methods.
func (b *store) putInstance(owner string, what registrationText, lost bool) {
	if what.announcement == nil {
		return
	}
	key := entryKey{owner, what.mark}
	for _, name := range what.announcement.Interfaces {
		all := b.instances[name]
		if all == nil {
			all = map[entryKey]instance{}
			b.instances[name] = all
		}
		if old, ok := all[key]; !ok || old.lost != lost {
			all[key] = instance{what.announcement, lost}
			b.touch(name)
		}
	}
}

// removeInstance removes a registration of an owner, unless it is empty.
func (b *store) removeInstance(owner string, what registrationText) {
	if what.announcement == nil {
		return
	}
	for _, name := range what.announcement.Interfaces {
		b.takeInstance(name, entryKey{owner, what.mark})
	}
}

func (b *store) takeInstance(name string, key entryKey) {
	all := b.instances[name]
	if _, ok := all[key]; !ok {
		return
	}
	if delete(all, key); len(all) == 0 {
		delete(b.instances, name)
	}
	b.touch(name)
}

// viewInstances adds the instances that provide an interface to its snapshot, and returns the marks
// that distinguish it from other snapshots. mu is held.
func (b *store) viewInstances(v *registry.Snapshot, s registry.Service) []string {
	live := map[string]registrationText{} // by nameOf: several sessions may register the same instance
	for key, i := range b.instances[s.Interface] {
		name := nameOf(&i.Instance)
		if !i.lost && key.text > live[name].mark {
			live[name] = registrationText{mark: key.text, announcement: i.InstanceRegistration}
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(live)) {
		v.Instances = append(v.Instances, live[name].announcement.Instance)
		texts = append(texts, live[name].mark)
	}
	for _, i := range b.instances[s.Interface] {
		if _, back := live[nameOf(&i.Instance)]; i.lost && !back {
			v.Authoritative = false
		}
	}
	return texts
}

// mostLine bounds a registration in the directory, in bytes.
const mostLine = 8 << 20

// record is one parsed line of a urls file.
type record struct {
	url          registry.URL
	announcement *registry.InstanceRegistration // nil: the line is a URL
}

// parseLine parses a line of a urls file: a percent-encoded URL, or the JSON of a registration.
func parseLine(text string) (l record, err error) {
	if !strings.HasPrefix(text, "{") {
		l.url, err = registry.ParseEncoded(text)
		return l, err
	}
	l.announcement = &registry.InstanceRegistration{}
	if err := json.Unmarshal([]byte(text), l.announcement); err != nil {
		return record{}, fmt.Errorf("invalid instance: %w", err)
	}
	return l, l.announcement.Check()
}

// putLine adds a record of an owner.
func (b *store) putLine(owner, text string, l record, lost bool) {
	if l.announcement == nil {
		b.put(owner, text, l.url, lost)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putInstance(owner, newSaid(text, l.announcement), lost)
}

// removeLine removes a record of an owner.
func (b *store) removeLine(owner, text string, l record) {
	if l.announcement == nil {
		b.remove(owner, text, l.url)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeInstance(owner, newSaid(text, l.announcement))
}
