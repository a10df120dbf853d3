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

	lost bool // the session ended without unregistering the instance
}

// RegisterInstance implements registry.InstanceRegistry. The metadata and the mapping end with the
// instance.
func (s *session) RegisterInstance(ctx context.Context, reg *registry.InstanceRegistration) error {
	if err := reg.Check(); err != nil {
		return err
	}
	text, err := json.Marshal(reg)
	if err != nil {
		return fmt.Errorf("the instance of %s: %w", reg.Instance.Application, err)
	}
	if len(text) > maxLineSize {
		return fmt.Errorf("the instance of %s has %d bytes; the maximum is %d", reg.Instance.Application, len(text), maxLineSize)
	}
	return s.update(ctx, func() uint64 { return s.setInstance(instanceName(&reg.Instance), string(text), reg) })
}

// UnregisterInstance implements registry.InstanceRegistry.
func (s *session) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	return s.update(ctx, func() uint64 { return s.setInstance(instanceName(&i), "", nil) })
}

// instanceName returns the key of an instance in a session.
func instanceName(i *registry.Instance) string { return i.Application + " " + i.Name() }

// registrationText is the registration of an instance as JSON text. The key in the store is hash,
// the SHA-256 of text, because the text may be long.
type registrationText struct {
	text, hash   string
	registration *registry.InstanceRegistration
}

func newRegistrationText(text string, reg *registry.InstanceRegistration) registrationText {
	sum := sha256.Sum256([]byte(text))
	return registrationText{text, string(sum[:]), reg}
}

// setInstance replaces the registration of an instance with reg, whose JSON is text; a nil reg
// removes it. It returns the number of the change.
func (s *session) setInstance(name, text string, reg *registry.InstanceRegistration) uint64 {
	s.updateMu.Lock()
	defer s.updateMu.Unlock()
	s.mu.Lock()
	old, number := s.instances[name], s.changeCount
	s.mu.Unlock()
	if old.text == text {
		return number
	}
	next := newRegistrationText(text, reg)
	s.store.replace(s.name, old, next)
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.instances, name); reg != nil {
		s.instances[name] = next
	}
	s.changeCount++
	return s.changeCount
}

// Metadata implements registry.Registry. It returns the metadata of a registered instance.
func (s *session) Metadata(_ context.Context, application, revision string) ([]byte, error) {
	if text := s.store.metadata(application, revision); text != nil {
		return text, nil
	}
	return nil, registry.ErrNoMetadata
}

// metadata returns the metadata of a revision, or nil.
func (st *store) metadata(application, revision string) []byte {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, byKey := range st.instances {
		for _, i := range byKey {
			if i.Instance.Application == application && i.Revision == revision {
				return i.MetadataInfo
			}
		}
	}
	return nil
}

// replace replaces a registration of an owner in one step, so that each snapshot contains old or
// next. Either may be empty: then replace only adds or removes a registration.
func (st *store) replace(owner string, old, next registrationText) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.putInstance(owner, next, false)
	st.removeInstance(owner, old)
}

// putInstance adds a registration of an owner, unless it is empty; lost means that the owner ended
// without unregistering it. The caller holds mu, as for the next two methods.
func (st *store) putInstance(owner string, rt registrationText, lost bool) {
	if rt.registration == nil {
		return
	}
	key := entryKey{owner, rt.hash}
	for _, name := range rt.registration.Interfaces {
		byKey := st.instances[name]
		if byKey == nil {
			byKey = map[entryKey]instance{}
			st.instances[name] = byKey
		}
		if old, ok := byKey[key]; !ok || old.lost != lost {
			byKey[key] = instance{rt.registration, lost}
			st.scheduleChecks(name)
		}
	}
}

// removeInstance removes a registration of an owner, unless it is empty.
func (st *store) removeInstance(owner string, rt registrationText) {
	if rt.registration == nil {
		return
	}
	for _, name := range rt.registration.Interfaces {
		st.removeInstanceEntry(name, entryKey{owner, rt.hash})
	}
}

func (st *store) removeInstanceEntry(name string, key entryKey) {
	byKey := st.instances[name]
	if _, ok := byKey[key]; !ok {
		return
	}
	if delete(byKey, key); len(byKey) == 0 {
		delete(st.instances, name)
	}
	st.scheduleChecks(name)
}

// addInstances adds the instances that provide an interface to snap, and returns their hashes,
// which distinguish the snapshot from others. The caller holds mu.
func (st *store) addInstances(snap *registry.Snapshot, s registry.Service) []string {
	live := map[string]registrationText{} // by instanceName: several sessions may register the same instance
	for key, i := range st.instances[s.Interface] {
		name := instanceName(&i.Instance)
		if !i.lost && key.text > live[name].hash {
			live[name] = registrationText{hash: key.text, registration: i.InstanceRegistration}
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(live)) {
		snap.Instances = append(snap.Instances, live[name].registration.Instance)
		texts = append(texts, live[name].hash)
	}
	for _, i := range st.instances[s.Interface] {
		if _, registered := live[instanceName(&i.Instance)]; i.lost && !registered {
			snap.Authoritative = false
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
func parseLine(text string) (rec record, err error) {
	if !strings.HasPrefix(text, "{") {
		rec.url, err = registry.ParseEncoded(text)
		return rec, err
	}
	rec.registration = &registry.InstanceRegistration{}
	if err := json.Unmarshal([]byte(text), rec.registration); err != nil {
		return record{}, fmt.Errorf("invalid instance: %w", err)
	}
	return rec, rec.registration.Check()
}

// putRecord adds a record of an owner.
func (st *store) putRecord(owner, text string, rec record, lost bool) {
	if rec.registration == nil {
		st.put(owner, text, rec.url, lost)
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.putInstance(owner, newRegistrationText(text, rec.registration), lost)
}

// removeRecord removes a record of an owner.
func (st *store) removeRecord(owner, text string, rec record) {
	if rec.registration == nil {
		st.remove(owner, text, rec.url)
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.removeInstance(owner, newRegistrationText(text, rec.registration))
}
