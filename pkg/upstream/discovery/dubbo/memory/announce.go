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

// instance is what is announced, at each of its interfaces.
type instance struct {
	*registry.InstanceRegistration

	lost bool // whoever announced it has gone without taking it back
}

// RegisterInstance is registry.InstanceRegistry's. Metadata and mapping come and go with the instance.
func (s *session) RegisterInstance(ctx context.Context, a *registry.InstanceRegistration) error {
	if err := a.Check(); err != nil {
		return err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("the instance of %s: %w", a.Instance.Application, err)
	}
	if len(text) > mostLine {
		return fmt.Errorf("the instance of %s has %d bytes: there may be %d", a.Instance.Application, len(text), mostLine)
	}
	return s.say(ctx, func() uint64 { return s.announce(nameOf(&a.Instance), string(text), a) })
}

// UnregisterInstance is registry.InstanceRegistry's.
func (s *session) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	return s.say(ctx, func() uint64 { return s.announce(nameOf(&i), "", nil) })
}

// nameOf tells instances of a session apart.
func nameOf(i *registry.Instance) string { return i.Application + " " + i.Name() }

// registrationText is what a session announces. It may be long: mark stands for the text where it is
// looked up.
type registrationText struct {
	text, mark   string
	announcement *registry.InstanceRegistration
}

func newSaid(text string, a *registry.InstanceRegistration) registrationText {
	sum := sha256.Sum256([]byte(text))
	return registrationText{text, string(sum[:]), a}
}

// announce makes a, which text is the JSON of, what is said of an instance; nil: nothing. It
// returns the number of the change.
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

// Metadata is registry.Registry's: of those that are announced.
func (s *session) Metadata(_ context.Context, application, revision string) ([]byte, error) {
	if text := s.board.metadata(application, revision); text != nil {
		return text, nil
	}
	return nil, registry.ErrNoMetadata
}

// metadata returns what a revision provides; nil: it is not known.
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

// replace has an owner say next in place of old, either of which may be nothing. Nobody
// sees it without both.
func (b *store) replace(owner string, old, next registrationText) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putInstance(owner, next, false)
	b.removeInstance(owner, old)
}

// putInstance adds what an owner announces, if it is anything; lost says that it counts no
// longer. It is called with mu held, as the next two.
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

// removeInstance takes back what an owner announced, if it is anything.
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

// viewInstances adds the instances that provide an interface to its view, and returns the
// marks that tell them from others. mu is held.
func (b *store) viewInstances(v *registry.Snapshot, s registry.Service) []string {
	live := map[string]registrationText{} // by nameOf: the same process may have been heard of twice
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

// mostLine bounds an announcement in the folder, in bytes.
const mostLine = 8 << 20

// record is what a line of the folder says.
type record struct {
	url          registry.URL
	announcement *registry.InstanceRegistration // nil: it is the URL
}

// parseLine reads a line of the folder: a URL, encoded, or the JSON of an announcement.
func parseLine(text string) (l record, err error) {
	if !strings.HasPrefix(text, "{") {
		l.url, err = registry.ParseEncoded(text)
		return l, err
	}
	l.announcement = &registry.InstanceRegistration{}
	if err := json.Unmarshal([]byte(text), l.announcement); err != nil {
		return record{}, fmt.Errorf("an instance: %w", err)
	}
	return l, l.announcement.Check()
}

// putLine adds what a line of an owner's says, and removeLine takes it back.
func (b *store) putLine(owner, text string, l record, lost bool) {
	if l.announcement == nil {
		b.put(owner, text, l.url, lost)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putInstance(owner, newSaid(text, l.announcement), lost)
}

func (b *store) removeLine(owner, text string, l record) {
	if l.announcement == nil {
		b.remove(owner, text, l.url)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeInstance(owner, newSaid(text, l.announcement))
}
