package memory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/registry"
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
	if len(text) > maxLineSize {
		return fmt.Errorf("the instance of %s has %d bytes; the maximum is %d", a.Instance.Application, len(text), maxLineSize)
	}
	return s.update(ctx, func() uint64 { return s.setInstance(instanceName(&a.Instance), string(text), a) })
}

// UnregisterInstance implements registry.InstanceRegistry.
func (s *session) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	return s.update(ctx, func() uint64 { return s.setInstance(instanceName(&i), "", nil) })
}

// instanceName returns the key of an instance in a session.
func instanceName(i *registry.Instance) string { return i.Application + " " + i.Name() }

// registrationText is the registration of an instance. Its text may be long, so mark, the SHA-256
// of text, is the key in the store.
type registrationText struct {
	text, hash   string
	registration *registry.InstanceRegistration
}

func newRegistrationText(text string, a *registry.InstanceRegistration) registrationText {
	sum := sha256.Sum256([]byte(text))
	return registrationText{text, string(sum[:]), a}
}

// setInstance replaces the registration of an instance by a, whose JSON is text; a nil a removes it.
// It returns the number of the change.
func (s *session) setInstance(name, text string, a *registry.InstanceRegistration) uint64 {
	s.updateMu.Lock()
	defer s.updateMu.Unlock()
	s.mu.Lock()
	old, asked := s.instances[name], s.changes
	s.mu.Unlock()
	if old.text == text {
		return asked
	}
	next := newRegistrationText(text, a)
	s.store.replace(s.name, old, next)
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.instances, name); a != nil {
		s.instances[name] = next
	}
	s.changes++
	return s.changes
}

// Metadata implements registry.Registry. It returns the metadata of a registered instance.
func (s *session) Metadata(_ context.Context, application, revision string) ([]byte, error) {
	if text := s.store.metadata(application, revision); text != nil {
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
	if what.registration == nil {
		return
	}
	key := entryKey{owner, what.hash}
	for _, name := range what.registration.Interfaces {
		all := b.instances[name]
		if all == nil {
			all = map[entryKey]instance{}
			b.instances[name] = all
		}
		if old, ok := all[key]; !ok || old.lost != lost {
			all[key] = instance{what.registration, lost}
			b.checkWatchers(name)
		}
	}
}

// removeInstance removes a registration of an owner, unless it is empty.
func (b *store) removeInstance(owner string, what registrationText) {
	if what.registration == nil {
		return
	}
	for _, name := range what.registration.Interfaces {
		b.removeInstanceEntry(name, entryKey{owner, what.hash})
	}
}

func (b *store) removeInstanceEntry(name string, key entryKey) {
	all := b.instances[name]
	if _, ok := all[key]; !ok {
		return
	}
	if delete(all, key); len(all) == 0 {
		delete(b.instances, name)
	}
	b.checkWatchers(name)
}

// addInstances adds the instances that provide an interface to its snapshot, and returns the marks
// that distinguish it from other snapshots. mu is held.
func (b *store) addInstances(v *registry.Snapshot, s registry.Service) []string {
	live := map[string]registrationText{} // by instanceName: several sessions may register the same instance
	for key, i := range b.instances[s.Interface] {
		name := instanceName(&i.Instance)
		if !i.lost && key.text > live[name].hash {
			live[name] = registrationText{hash: key.text, registration: i.InstanceRegistration}
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(live)) {
		v.Instances = append(v.Instances, live[name].registration.Instance)
		texts = append(texts, live[name].hash)
	}
	for _, i := range b.instances[s.Interface] {
		if _, back := live[instanceName(&i.Instance)]; i.lost && !back {
			v.Authoritative = false
		}
	}
	return texts
}

// maxLineSize bounds a registration in the directory, in bytes.
const maxLineSize = 8 << 20

// record is one parsed line of a urls file.
type record struct {
	url          registry.URL
	registration *registry.InstanceRegistration // nil: the line is a URL
}

// parseLine parses a line of a urls file: a percent-encoded URL, or the JSON of a registration.
func parseLine(text string) (l record, err error) {
	if !strings.HasPrefix(text, "{") {
		l.url, err = registry.ParseEncoded(text)
		return l, err
	}
	l.registration = &registry.InstanceRegistration{}
	if err := json.Unmarshal([]byte(text), l.registration); err != nil {
		return record{}, fmt.Errorf("invalid instance: %w", err)
	}
	return l, l.registration.Check()
}

// putRecord adds a record of an owner.
func (b *store) putRecord(owner, text string, l record, lost bool) {
	if l.registration == nil {
		b.put(owner, text, l.url, lost)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putInstance(owner, newRegistrationText(text, l.registration), lost)
}

// removeRecord removes a record of an owner.
func (b *store) removeRecord(owner, text string, l record) {
	if l.registration == nil {
		b.remove(owner, text, l.url)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeInstance(owner, newRegistrationText(text, l.registration))
}
