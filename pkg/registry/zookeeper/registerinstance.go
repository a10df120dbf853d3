package zookeeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Registering an instance takes four steps, in this order:
//
//	/dubbo/metadata/<application>/<revision>   write the metadata, unless they exist
//	/dubbo/mapping/<interface>                 add the application, by compare and set
//	/services/<application>/<host:port>        create the instance, ephemeral
//	/dubbo/metadata/<application>/<revision>   check that they still exist
//
// Every few minutes, and in each new session, the loop compares all of them.

const (
	// maxMetadata bounds the metadata of a revision, in bytes, by the size of a request.
	maxMetadata = maxRequestSize - 32<<10
	// revisionRetention is how long metadata stays after the last instance of this process has left its
	// revision: consumers may be about to read it.
	revisionRetention = time.Minute
	// maxRetiredRevisions bounds the revisions that are retained.
	maxRetiredRevisions = 8
	// maxAttempts bounds the attempts to change a node during concurrent changes.
	maxAttempts = 20
)

// announced is the state of a registration whose znode is an instance. The loop owns it.
type announced struct {
	*registry.InstanceRegistration

	mapped          map[string]bool // interfaces with a confirmed mapping; the worker borrows it
	recheckMappings bool            // discard mapped before the next use
}

// RegisterInstance registers an instance: see registry.InstanceRegistry. It rejects an instance
// that cannot be a znode.
func (r *Registry) RegisterInstance(ctx context.Context, a *registry.InstanceRegistration) error {
	if err := checkRegistration(a); err != nil {
		return err
	}
	return r.await(ctx, a.Instance.Application, func(answer chan error) { r.noteDesiredInstance(a, answer) })
}

// UnregisterInstance reverts RegisterInstance: see registry.InstanceRegistry.
func (r *Registry) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	return r.await(ctx, i.Application, func(answer chan error) {
		path := r.layout.instance(&i)
		if e := r.entries[path]; e != nil && e.wanted {
			r.retireRevision(e.instance.InstanceRegistration)
		}
		r.noteDesired(path, registry.URL{}, false, answer)
	})
}

func checkRegistration(a *registry.InstanceRegistration) error {
	if err := a.Check(); err != nil {
		return err
	}
	for _, name := range append([]string{a.Instance.Application, a.Instance.Name(), a.Revision}, a.Interfaces...) {
		if err := checkElement(name); err != nil {
			return fmt.Errorf("the instance of %q: %w", a.Instance.Application, err)
		}
	}
	if n := len(a.MetadataInfo); n > maxMetadata {
		return fmt.Errorf("the metadata of %s has %d bytes; the maximum is %d", a.Instance.Application, n, maxMetadata)
	}
	return nil
}

// noteDesiredInstance records the desired registration and starts to reconcile it.
func (r *Registry) noteDesiredInstance(a *registry.InstanceRegistration, answer chan error) {
	path := r.layout.instance(&a.Instance)
	e := r.entries[path]
	switch {
	case e == nil:
		i := &a.Instance
		e = &registration{
			path: path, wanted: true,
			url:      registry.URL{Protocol: "instance", Host: i.Host, Port: i.Port, Path: i.Application},
			instance: &announced{a, map[string]bool{}, false},
		}
		r.addRegistration(e)
	case !e.wanted || !sameRegistration(e.instance.InstanceRegistration, a):
		if e.wanted && e.instance.Revision != a.Revision {
			r.retireRevision(e.instance.InstanceRegistration)
		}
		e.instance.InstanceRegistration = a
		e.setDesired(true)
	}
	r.reconcile(e, answer)
}

// sameRegistration reports whether two registrations of an instance are equal; the revision
// represents what it provides.
func sameRegistration(a, b *registry.InstanceRegistration) bool {
	return a.Revision == b.Revision && maps.Equal(a.Instance.Metadata, b.Instance.Metadata)
}

// work returns a function that registers the instance. It runs on a worker.
func (s *announced) work(places layout) func(ephemeralNode) error {
	if s.recheckMappings {
		s.mapped, s.recheckMappings = map[string]bool{}, false
	}
	a, mapped := s.InstanceRegistration, s.mapped
	return func(o ephemeralNode) error { return o.registerInstance(places, a, mapped) }
}

// registerInstance writes everything that consumers need to find the instance; o is its znode.
func (o ephemeralNode) registerInstance(places layout, a *registry.InstanceRegistration, mapped map[string]bool) error {
	provided := o
	provided.path, provided.data = places.metadata(a.Instance.Application, a.Revision), a.MetadataInfo
	if err := provided.storePersistent(); err != nil {
		return fmt.Errorf("writing the metadata of revision %s: %w", a.Revision, err)
	}
	for _, name := range a.Interfaces {
		if mapped[name] {
			continue
		}
		mapping := o
		mapping.path = places.mapping(name)
		if err := mapping.addToMapping(a.Instance.Application); err != nil {
			return fmt.Errorf("updating the mapping of %s: %w", name, err)
		}
		mapped[name] = true
	}
	o.data = instanceData(a)
	if err := o.ensure(); err != nil {
		return err
	}
	return provided.storePersistent() // a process that leaves the revision may have removed it meanwhile
}

// storePersistent creates or updates a persistent znode with its data.
func (o ephemeralNode) storePersistent() error {
	for range maxAttempts {
		text, stat, err := o.conn.Get(o.path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = o.createPersistent()
		case err != nil || bytes.Equal(text, o.data):
			return err
		default:
			_, err = o.conn.Set(o.path, o.data, stat.Version)
		}
		if !isConflict(err) {
			return err
		}
	}
	return errConflict
}

// addToMapping adds an application to a mapping. It does not overwrite concurrent changes: it reads the
// mapping again first.
func (o ephemeralNode) addToMapping(application string) error {
	for range maxAttempts {
		text, stat, err := o.conn.Get(o.path)
		if errors.Is(err, zk.ErrNoNode) {
			o.data = []byte(application)
			err = o.createPersistent()
		} else if err == nil {
			with, changed := registry.WithApplication(string(text), application)
			if !changed {
				return nil
			}
			_, err = o.conn.Set(o.path, []byte(with), stat.Version)
		}
		if !isConflict(err) {
			return err
		}
	}
	return errConflict
}

var errConflict = errors.New("too many concurrent changes by other clients")

// isConflict reports whether an error means a conflict with a concurrent change.
func isConflict(err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode)
}

// createPersistent creates a persistent znode and its missing parents.
func (o ephemeralNode) createPersistent() error {
	_, err := o.conn.Create(o.path, o.data, 0, o.acl)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if err := o.createParents(parent(o.path)); err != nil {
		return err
	}
	_, err = o.conn.Create(o.path, o.data, 0, o.acl)
	return err
}

// curatorInstanceData is curatorInstance in the format that Curator writes.
type curatorInstanceData struct {
	Name       string  `json:"name"`
	ID         string  `json:"id"`
	Address    string  `json:"address"`
	Port       uint16  `json:"port"`
	SecurePort *uint16 `json:"sslPort"`
	Payload    payload `json:"payload"`
	Registered int64   `json:"registrationTimeUTC"` // ms
	Kind       string  `json:"serviceType"`
	Form       *string `json:"uriSpec"`
	Enabled    bool    `json:"enabled"`
}

type payload struct {
	Class    string            `json:"@class"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"`
}

// instanceData returns the data of an instance's znode. Equal registrations have equal data.
func instanceData(a *registry.InstanceRegistration) []byte {
	i := &a.Instance
	since, err := strconv.ParseInt(i.Metadata["timestamp"], 10, 64)
	if err != nil {
		since = 0
	}
	text, err := json.Marshal(curatorInstanceData{
		Name: i.Application, ID: i.Name(), Address: i.Host, Port: i.Port,
		Payload: payload{
			Class: "org.apache.dubbo.registry.zookeeper.ZookeeperInstance",
			ID:    i.Name(), Name: i.Application, Metadata: i.Metadata,
		},
		Registered: since, Kind: "DYNAMIC", Enabled: true,
	})
	if err != nil {
		panic(fmt.Sprintf("zookeeper: encoding an instance: %v", err))
	}
	return text
}

// revision is a revision of an application that no instance of this process has.
type revision struct{ application, name string }

// retireRevision schedules the removal of a revision's metadata after revisionRetention. If more than
// maxRetiredRevisions revisions are retained, it removes the oldest immediately.
func (r *Registry) retireRevision(a *registry.InstanceRegistration) {
	v := &revision{a.Instance.Application, a.Revision}
	r.retiredRevisions = append(r.retiredRevisions, v)
	r.afterFunc(revisionRetention, func() { r.removeRevision(v) })
	if len(r.retiredRevisions) > maxRetiredRevisions {
		r.removeRevision(r.retiredRevisions[0])
	}
}

// removeRevision removes the metadata of a revision that no instance has. Metadata that cannot be
// removed stays, which does no harm.
func (r *Registry) removeRevision(v *revision) {
	if !slices.Contains(r.retiredRevisions, v) {
		return // done already
	}
	r.retiredRevisions = slices.DeleteFunc(r.retiredRevisions, func(o *revision) bool { return o == v })
	r.enqueue(func() work {
		for _, e := range r.entries {
			if e.instance != nil && e.wanted && e.instance.Instance.Application == v.application && e.instance.Revision == v.name {
				return nil // an instance of this process has it again
			}
		}
		return func(conn *zk.Conn) func() {
			err := v.remove(conn, r.layout)
			return func() {
				if err != nil && !isConflict(err) {
					r.log.Warn("cannot remove unused metadata from ZooKeeper", "application", v.application, "revision", v.name, "error", err)
				}
			}
		}
	})
}

// remove removes the metadata, unless an instance has the revision. It runs on a worker.
func (v *revision) remove(conn *zk.Conn, places layout) error {
	path := places.metadata(v.application, v.name)
	_, stat, err := conn.Exists(path)
	if err != nil {
		return err
	}
	folder := places.application(v.application)
	ids, _, err := conn.Children(folder)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for _, id := range ids {
		text, _, err := conn.Get(folder + "/" + id)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case err != nil:
			return err
		case bytes.Contains(text, []byte(v.name)):
			return nil // another process provides the same
		}
	}
	return conn.Delete(path, stat.Version)
}
