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
//	/dubbo/metadata/<application>/<revision>   write the metadata, unless the znode contains it
//	/dubbo/mapping/<interface>                 add the application, by compare and set
//	/services/<application>/<host:port>        create the instance, ephemeral
//	/dubbo/metadata/<application>/<revision>   write the metadata again if another process removed it
//
// Every few minutes, and in each new session, the Registry repeats these steps, which restore
// missing or changed znodes.

const (
	// maxMetadataBytes is the maximum size of a revision's metadata. It must fit in a request,
	// together with the path.
	maxMetadataBytes = maxRequestSize - 32<<10
	// revisionRetention is how long metadata is retained after an instance of this process has
	// changed to another revision or was unregistered: consumers may still be about to read it.
	revisionRetention = time.Minute
	// maxRetiredRevisions bounds the revisions that are retained.
	maxRetiredRevisions = 8
	// maxAttempts bounds the attempts to change a node during concurrent changes.
	maxAttempts = 20
)

// registeredInstance is the state of a registration whose znode is an instance. The loop owns it.
type registeredInstance struct {
	*registry.InstanceRegistration

	mapped          map[string]bool // interfaces with a confirmed mapping; a worker may use the map
	recheckMappings bool            // replace mapped with an empty map before the next use
}

// RegisterInstance registers an instance: see registry.InstanceRegistry. It rejects an instance
// whose names are not valid as znodes.
func (r *Registry) RegisterInstance(ctx context.Context, reg *registry.InstanceRegistration) error {
	if err := checkRegistration(reg); err != nil {
		return err
	}
	return r.await(ctx, reg.Instance.Application, func(done chan error) { r.noteDesiredInstance(reg, done) })
}

// UnregisterInstance reverts RegisterInstance: see registry.InstanceRegistry.
func (r *Registry) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	return r.await(ctx, i.Application, func(done chan error) {
		path := r.layout.instance(&i)
		if e := r.entries[path]; e != nil && e.desired {
			r.retireRevision(e.instance.InstanceRegistration)
		}
		r.noteDesired(path, registry.URL{}, false, done)
	})
}

func checkRegistration(reg *registry.InstanceRegistration) error {
	if err := reg.Check(); err != nil {
		return err
	}
	for _, name := range append([]string{reg.Instance.Application, reg.Instance.Name(), reg.Revision}, reg.Interfaces...) {
		if err := checkElement(name); err != nil {
			return fmt.Errorf("the instance of %q: %w", reg.Instance.Application, err)
		}
	}
	if n := len(reg.MetadataInfo); n > maxMetadataBytes {
		return fmt.Errorf("the metadata of %s has %d bytes; the maximum is %d", reg.Instance.Application, n, maxMetadataBytes)
	}
	return nil
}

// noteDesiredInstance records the desired registration and starts to reconcile it.
func (r *Registry) noteDesiredInstance(reg *registry.InstanceRegistration, done chan error) {
	path := r.layout.instance(&reg.Instance)
	e := r.entries[path]
	switch {
	case e == nil:
		i := &reg.Instance
		e = &registration{
			path: path, desired: true,
			url:      registry.URL{Protocol: "instance", Host: i.Host, Port: i.Port, Path: i.Application},
			instance: &registeredInstance{reg, map[string]bool{}, false},
		}
		r.addRegistration(e)
	case !e.desired || !sameRegistration(e.instance.InstanceRegistration, reg):
		if e.desired && e.instance.Revision != reg.Revision {
			r.retireRevision(e.instance.InstanceRegistration)
		}
		e.instance.InstanceRegistration = reg
		e.setDesired(true)
	}
	r.reconcile(e, done)
}

// sameRegistration reports whether two registrations of an instance are equal. Equal revisions mean
// equal services.
func sameRegistration(a, b *registry.InstanceRegistration) bool {
	return a.Revision == b.Revision && maps.Equal(a.Instance.Metadata, b.Instance.Metadata)
}

// registerFunc returns a function that registers the instance on a worker.
func (s *registeredInstance) registerFunc(l layout) func(znodeWriter) error {
	if s.recheckMappings {
		s.mapped, s.recheckMappings = map[string]bool{}, false
	}
	reg, mapped := s.InstanceRegistration, s.mapped
	return func(n znodeWriter) error { return n.registerInstance(l, reg, mapped) }
}

// registerInstance writes all znodes that consumers need to find the instance; n is the znode of
// the instance.
func (n znodeWriter) registerInstance(l layout, reg *registry.InstanceRegistration, mapped map[string]bool) error {
	metadata := n
	metadata.path, metadata.data = l.metadata(reg.Instance.Application, reg.Revision), reg.MetadataInfo
	if err := metadata.storePersistent(); err != nil {
		return fmt.Errorf("writing the metadata of revision %s: %w", reg.Revision, err)
	}
	for _, name := range reg.Interfaces {
		if mapped[name] {
			continue
		}
		mapping := n
		mapping.path = l.mapping(name)
		if err := mapping.addToMapping(reg.Instance.Application); err != nil {
			return fmt.Errorf("updating the mapping of %s: %w", name, err)
		}
		mapped[name] = true
	}
	n.data = instanceData(reg)
	if err := n.ensure(); err != nil {
		return err
	}
	return metadata.storePersistent() // a process that changed to another revision may have removed it
}

// storePersistent creates or updates a persistent znode with its data.
func (n znodeWriter) storePersistent() error {
	for range maxAttempts {
		text, stat, err := n.conn.Get(n.path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = n.createPersistent()
		case err != nil || bytes.Equal(text, n.data):
			return err
		default:
			_, err = n.conn.Set(n.path, n.data, stat.Version)
		}
		if !isConflict(err) {
			return err
		}
	}
	return errConflict
}

// addToMapping adds an application to a mapping. After a concurrent change it reads the mapping
// again, so that it overwrites no change.
func (n znodeWriter) addToMapping(application string) error {
	for range maxAttempts {
		text, stat, err := n.conn.Get(n.path)
		if errors.Is(err, zk.ErrNoNode) {
			n.data = []byte(application)
			err = n.createPersistent()
		} else if err == nil {
			updated, changed := registry.WithApplication(string(text), application)
			if !changed {
				return nil
			}
			_, err = n.conn.Set(n.path, []byte(updated), stat.Version)
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
func (n znodeWriter) createPersistent() error {
	_, err := n.conn.Create(n.path, n.data, 0, n.acl)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if err := n.createParents(parent(n.path)); err != nil {
		return err
	}
	_, err = n.conn.Create(n.path, n.data, 0, n.acl)
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
	URISpec    *string `json:"uriSpec"`
	Enabled    bool    `json:"enabled"`
}

type payload struct {
	Class    string            `json:"@class"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"`
}

// instanceData returns the data of an instance's znode. Equal registrations have equal data.
func instanceData(reg *registry.InstanceRegistration) []byte {
	i := &reg.Instance
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

// revision is a revision of an application that an instance of this process had.
type revision struct{ application, name string }

// retireRevision schedules the removal of a revision's metadata after revisionRetention. If more
// than maxRetiredRevisions revisions are retained, it removes the oldest immediately.
func (r *Registry) retireRevision(reg *registry.InstanceRegistration) {
	rev := &revision{reg.Instance.Application, reg.Revision}
	r.retiredRevisions = append(r.retiredRevisions, rev)
	r.afterFunc(revisionRetention, func() { r.removeRevision(rev) })
	if len(r.retiredRevisions) > maxRetiredRevisions {
		r.removeRevision(r.retiredRevisions[0])
	}
}

// removeRevision removes the metadata of a revision that no instance has. It does not retry a
// failed removal: remaining metadata does no harm.
func (r *Registry) removeRevision(rev *revision) {
	if !slices.Contains(r.retiredRevisions, rev) {
		return // done already
	}
	r.retiredRevisions = slices.DeleteFunc(r.retiredRevisions, func(other *revision) bool { return other == rev })
	r.enqueue(func() work {
		for _, e := range r.entries {
			if e.instance != nil && e.desired && e.instance.Instance.Application == rev.application && e.instance.Revision == rev.name {
				return nil // an instance of this process has the revision again
			}
		}
		return func(c *client) func() {
			err := rev.remove(c.conn, r.layout)
			return func() {
				if err != nil && !isConflict(err) {
					r.log.Warn("cannot remove unused metadata from ZooKeeper", "application", rev.application, "revision", rev.name, "error", err)
				}
			}
		}
	})
}

// remove removes the metadata, unless an instance has the revision. It runs on a worker.
func (r *revision) remove(conn *zk.Conn, l layout) error {
	path := l.metadata(r.application, r.name)
	_, stat, err := conn.Exists(path)
	if err != nil {
		return err
	}
	parentPath := l.application(r.application)
	ids, _, err := conn.Children(parentPath)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for _, id := range ids {
		text, _, err := conn.Get(parentPath + "/" + id)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case err != nil:
			return err
		case bytes.Contains(text, []byte(r.name)):
			return nil // another process has the revision
		}
	}
	return conn.Delete(path, stat.Version)
}
