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

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// An announcement is a wish about a node of ours, as a registration is (register.go). That
// the node is there comes last:
//
//	/dubbo/metadata/<application>/<revision>   what is provided, unless it is there
//	/dubbo/mapping/<interface>                 has the application, by compare and set
//	/services/<application>/<host:port>        the instance, ephemeral
//	/dubbo/metadata/<application>/<revision>   is still there
//
// All of it is compared every few minutes, and in a session that is new.

const (
	// mostProvided bounds what a revision provides, in bytes: what is sent at once.
	mostProvided = mostSent - 32<<10
	// keepRevision is how long metadata stay that are of no instance of ours any more:
	// consumers may be about to read them.
	keepRevision = time.Minute
	// mostPast is of how many revisions they stay at most.
	mostPast = 8
	// mostTries is how often a mapping is tried to be changed that others change as well.
	mostTries = 20
)

// announced is what an entry has whose node is an instance. The loop owns it.
type announced struct {
	*registry.InstanceRegistration

	mapped  map[string]bool // interfaces that were found mapped; lent to the worker
	doubted bool            // mapped counts no longer
}

// RegisterInstance makes an instance known: see registry.InstanceRegistry. One that cannot be a node is
// refused, and no wish.
func (r *Registry) RegisterInstance(ctx context.Context, a *registry.InstanceRegistration) error {
	if err := checkAnnouncement(a); err != nil {
		return err
	}
	return r.await(ctx, a.Instance.Application, func(answer chan error) { r.announce(a, answer) })
}

// UnregisterInstance takes back what Announce said: see registry.InstanceRegistry.
func (r *Registry) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	return r.await(ctx, i.Application, func(answer chan error) {
		path := r.layout.instance(&i)
		if e := r.entries[path]; e != nil && e.wanted {
			r.leaveRevision(e.said.InstanceRegistration)
		}
		r.noteDesired(path, registry.URL{}, false, answer)
	})
}

func checkAnnouncement(a *registry.InstanceRegistration) error {
	if err := a.Check(); err != nil {
		return err
	}
	for _, name := range append([]string{a.Instance.Application, a.Instance.Name(), a.Revision}, a.Interfaces...) {
		if err := checkElement(name); err != nil {
			return fmt.Errorf("the instance of %q: %w", a.Instance.Application, err)
		}
	}
	if n := len(a.MetadataInfo); n > mostProvided {
		return fmt.Errorf("what %s provides has %d bytes: there may be %d", a.Instance.Application, n, mostProvided)
	}
	return nil
}

// announce notes what is announced and begins with it.
func (r *Registry) announce(a *registry.InstanceRegistration, answer chan error) {
	path := r.layout.instance(&a.Instance)
	e := r.entries[path]
	switch {
	case e == nil:
		i := &a.Instance
		e = &registration{
			path: path, wanted: true,
			url:  registry.URL{Protocol: "instance", Host: i.Host, Port: i.Port, Path: i.Application},
			said: &announced{a, map[string]bool{}, false},
		}
		r.add(e)
	case !e.wanted || !sameAnnouncement(e.said.InstanceRegistration, a):
		if e.wanted && e.said.Revision != a.Revision {
			r.leaveRevision(e.said.InstanceRegistration)
		}
		e.said.InstanceRegistration = a
		e.turn(true)
	}
	r.reconcile(e, answer)
}

// sameAnnouncement reports whether two say the same of an instance: the revision stands
// for what is provided.
func sameAnnouncement(a, b *registry.InstanceRegistration) bool {
	return a.Revision == b.Revision && maps.Equal(a.Instance.Metadata, b.Instance.Metadata)
}

// work returns what makes the announcement true, which runs on a worker.
func (s *announced) work(places layout) func(ephemeralNode) error {
	if s.doubted {
		s.mapped, s.doubted = map[string]bool{}, false
	}
	a, mapped := s.InstanceRegistration, s.mapped
	return func(o ephemeralNode) error { return o.announce(places, a, mapped) }
}

// announce sees to it that consumers find the instance, whose node o is.
func (o ephemeralNode) announce(places layout, a *registry.InstanceRegistration, mapped map[string]bool) error {
	provided := o
	provided.path, provided.data = places.metadata(a.Instance.Application, a.Revision), a.MetadataInfo
	if err := provided.store(); err != nil {
		return fmt.Errorf("the metadata of revision %s: %w", a.Revision, err)
	}
	for _, name := range a.Interfaces {
		if mapped[name] {
			continue
		}
		mapping := o
		mapping.path = places.mapping(name)
		if err := mapping.enlist(a.Instance.Application); err != nil {
			return fmt.Errorf("the mapping of %s: %w", name, err)
		}
		mapped[name] = true
	}
	o.data = instanceData(a)
	if err := o.ensure(); err != nil {
		return err
	}
	return provided.store() // who leaves the revision at this time may have removed it
}

// store sees to it that a node is there that stays, with its data.
func (o ephemeralNode) store() error {
	for range mostTries {
		text, stat, err := o.conn.Get(o.path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = o.createPersistent()
		case err != nil || bytes.Equal(text, o.data):
			return err
		default:
			_, err = o.conn.Set(o.path, o.data, stat.Version)
		}
		if !isOvertaken(err) {
			return err
		}
	}
	return errOvertaken
}

// enlist sees to it that a mapping has an application. Nobody's is lost: what others have
// written since it was read is read first.
func (o ephemeralNode) enlist(application string) error {
	for range mostTries {
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
		if !isOvertaken(err) {
			return err
		}
	}
	return errOvertaken
}

var errOvertaken = errors.New("others change it all the time")

// isOvertaken reports whether an error says that somebody else was faster.
func isOvertaken(err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode)
}

// createPersistent creates a node that stays, and what is missing above it.
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

// written is curatorInstance as Curator writes it.
type written struct {
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

// instanceData returns what the node of an instance holds: the same each time.
func instanceData(a *registry.InstanceRegistration) []byte {
	i := &a.Instance
	since, err := strconv.ParseInt(i.Metadata["timestamp"], 10, 64)
	if err != nil {
		since = 0
	}
	text, err := json.Marshal(written{
		Name: i.Application, ID: i.Name(), Address: i.Host, Port: i.Port,
		Payload: payload{
			Class: "org.apache.dubbo.registry.zookeeper.ZookeeperInstance",
			ID:    i.Name(), Name: i.Application, Metadata: i.Metadata,
		},
		Registered: since, Kind: "DYNAMIC", Enabled: true,
	})
	if err != nil {
		panic(fmt.Sprintf("zookeeper: an instance is no JSON: %v", err))
	}
	return text
}

// revision is one of an application that no instance of ours has any more.
type revision struct{ application, name string }

// leaveRevision has the metadata of what was announced removed after a while, those of the
// revision left first at once if there are many.
func (r *Registry) leaveRevision(a *registry.InstanceRegistration) {
	v := &revision{a.Instance.Application, a.Revision}
	r.past = append(r.past, v)
	r.afterFunc(keepRevision, func() { r.forgetRevision(v) })
	if len(r.past) > mostPast {
		r.forgetRevision(r.past[0])
	}
}

// forgetRevision removes the metadata of a revision that no instance has. What cannot be
// removed stays: it does no harm.
func (r *Registry) forgetRevision(v *revision) {
	if !slices.Contains(r.past, v) {
		return // it was done
	}
	r.past = slices.DeleteFunc(r.past, func(o *revision) bool { return o == v })
	r.enqueue(func() work {
		for _, e := range r.entries {
			if e.said != nil && e.wanted && e.said.Instance.Application == v.application && e.said.Revision == v.name {
				return nil // it is ours again
			}
		}
		return func(conn *zk.Conn) func() {
			err := v.remove(conn, r.layout)
			return func() {
				if err != nil && !isOvertaken(err) {
					r.log.Warn("metadata that nobody needs stay in ZooKeeper", "application", v.application, "revision", v.name, "error", err)
				}
			}
		}
	})
}

// remove runs on a worker.
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
