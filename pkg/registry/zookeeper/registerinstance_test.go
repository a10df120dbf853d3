package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	"github.com/weft-proxy/weft/pkg/registry/zookeeper"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

// newRegistration returns the registration of an instance of shop that provides the interfaces.
func newRegistration(host string, interfaces ...string) *registry.InstanceRegistration {
	return registrytest.NewInstance("shop", host, interfaces...)
}

func (s *testSession) instanceRegistry() registry.InstanceRegistry {
	r, ok := s.Registry.(registry.InstanceRegistry)
	if !ok {
		panic("the registry does not implement InstanceRegistry")
	}
	return r
}

func (s *testSession) registerInstance(t *testing.T, reg *registry.InstanceRegistration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), registrytest.Timeout)
	defer cancel()
	if err := s.instanceRegistry().RegisterInstance(ctx, reg); err != nil {
		t.Fatal(err)
	}
}

// text returns the data of a znode; "": it does not exist.
func (c zkClient) text(path string) string {
	c.t.Helper()
	text, _, err := c.Get(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		c.t.Fatalf("%s: %v", path, err)
	}
	return string(text)
}

// await waits until cond returns true for the data of a znode.
func (c zkClient) await(path, label string, cond func(text string) bool) {
	c.t.Helper()
	deadline := time.After(registrytest.Timeout)
	for {
		_, _, changed, err := c.ExistsW(path)
		if err != nil {
			c.t.Fatal(err)
		}
		text := c.text(path)
		if cond(text) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			c.t.Fatalf("%s: not %s, data %q", path, label, text)
		}
	}
}

// TestRegisterInstance runs subtests on one server, each in its own chroot.
func TestRegisterInstance(t *testing.T) {
	address := server.Start(t, server.Options{Tick: time.Second}).Address()
	admin := dialZK(t, address)
	admin.put("/instances", "")
	for i, tt := range []struct {
		name string
		run  func(testTree)
	}{
		{"znodes and data as Dubbo expects them", testRegisterInstance},
		{"concurrent updates of a mapping", testMappings},
		{"another revision replaces the instance", testRevisionChange},
		{"unused metadata is removed", testUnusedMetadata},
		{"metadata of the last revisions is retained", testRetainedMetadata},
		{"deleted znodes are created again", testRepair},
		{"instance of another session is taken over", testInstanceTakeOver},
	} {
		t.Run(tt.name, func(t *testing.T) {
			chroot := fmt.Sprintf("/instances/%d", i)
			tt.run(testTree{T: t, server: address, chroot: chroot, admin: admin})
		})
	}
}

func (s testTree) instancePath(host string) string {
	return s.chroot + "/services/shop/" + host + ":20880"
}

func (s testTree) metadataPath(reg *registry.InstanceRegistration) string {
	return s.chroot + "/dubbo/metadata/shop/" + reg.Revision
}

func testRegisterInstance(s testTree) {
	reg := newRegistration("10.0.0.1", user)
	session := s.openSession()
	session.registerInstance(s.T, reg)
	session.registerInstance(s.T, reg) // the second call has no effect
	want := strings.TrimSuffix(instance("10.0.0.1", 20880, reg.Revision), "}") + `,"enabled":true}`
	want = strings.Replace(want, "1690000000001", "1690000000000", 1)
	if got := s.admin.text(s.instancePath("10.0.0.1")); got != want {
		s.Errorf("instance =\n%s, want\n%s", got, want)
	}
	_, stat, err := s.admin.Exists(s.instancePath("10.0.0.1"))
	if err != nil || stat.EphemeralOwner == 0 {
		s.Errorf("the instance outlives its session: %+v, %v", stat, err)
	}
	if got := s.admin.text(s.metadataPath(reg)); got != string(reg.MetadataInfo) {
		s.Errorf("metadata = %s, want %s", got, reg.MetadataInfo)
	}
	if got := s.admin.text(s.chroot + "/dubbo/mapping/" + user); got != "shop" {
		s.Errorf("mapping = %q, want shop", got)
	}
	if err := session.instanceRegistry().UnregisterInstance(s.Context(), reg.Instance); err != nil {
		s.Fatal(err)
	}
	if got := s.admin.text(s.instancePath("10.0.0.1")); got != "" {
		s.Errorf("after UnregisterInstance the instance is %s, want none", got)
	}
	if err := session.instanceRegistry().UnregisterInstance(s.Context(), reg.Instance); err != nil {
		s.Errorf("second UnregisterInstance: %v", err)
	}
	invalid := newRegistration("10.0.0.1", "a/b")
	if err := session.instanceRegistry().RegisterInstance(s.Context(), invalid); err == nil {
		s.Error("RegisterInstance accepted an interface that is not valid as a znode")
	}
}

func testMappings(s testTree) {
	const many = 10
	var wg sync.WaitGroup
	errs := make([]error, many)
	for i := range many {
		session := s.openSession()
		reg := newRegistration(fmt.Sprintf("10.0.0.%d", i), user)
		reg.Instance.Application = fmt.Sprintf("shop%d", i)
		wg.Go(func() { errs[i] = session.instanceRegistry().RegisterInstance(s.Context(), reg) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	names := registry.Applications(s.admin.text(s.chroot + "/dubbo/mapping/" + user))
	slices.Sort(names)
	if len(slices.Compact(names)) != many {
		s.Errorf("mapping = %v, want all applications", names)
	}
}

func testRevisionChange(s testTree) {
	session := s.openSession()
	sub := session.NewSubscriber(registry.Service{Interface: user})
	session.registerInstance(s.T, newRegistration("10.0.0.1", user))
	sub.Await("the instance", func(snap registry.Snapshot) bool { return len(snap.Instances) == 1 })
	next := newRegistration("10.0.0.1", user, "com.example.Order")
	session.registerInstance(s.T, next)
	sub.Never("without the instance", func(snap registry.Snapshot) bool { return len(snap.Instances) == 0 })
	session.registerInstance(s.T, next)
	if got := s.admin.text(s.instancePath("10.0.0.1")); !strings.Contains(got, next.Revision) {
		s.Errorf("instance = %s, want revision %s", got, next.Revision)
	}
	if got := s.admin.text(s.chroot + "/dubbo/mapping/com.example.Order"); got != "shop" {
		s.Errorf("mapping of the new interface = %q, want shop", got)
	}
}

func testUnusedMetadata(s testTree) {
	session, other := s.openSession(), s.openSession()
	first, second := newRegistration("10.0.0.1", user), newRegistration("10.0.0.1", "com.example.Order")
	session.registerInstance(s.T, first)
	other.registerInstance(s.T, newRegistration("10.0.0.2", user)) // with the same revision
	session.registerInstance(s.T, second)
	zookeeper.ForgetRevisions(session.Registry)
	session.registerInstance(s.T, newRegistration("10.0.0.1", user, "com.example.Order"))
	zookeeper.ForgetRevisions(session.Registry)
	s.admin.await(s.metadataPath(second), "removed", func(text string) bool { return text == "" })
	if s.admin.text(s.metadataPath(first)) == "" {
		s.Error("the metadata of another instance was removed")
	}
	if err := other.instanceRegistry().UnregisterInstance(s.Context(), newRegistration("10.0.0.2").Instance); err != nil {
		s.Fatal(err)
	}
	zookeeper.ForgetRevisions(other.Registry)
	s.admin.await(s.metadataPath(first), "removed", func(text string) bool { return text == "" })
}

func testRetainedMetadata(s testTree) {
	session := s.openSession()
	var regs []*registry.InstanceRegistration
	for i := range 20 {
		reg := newRegistration("10.0.0.1", fmt.Sprintf("com.example.S%d", i))
		regs = append(regs, reg)
		session.registerInstance(s.T, reg)
	}
	s.admin.children(s.chroot+"/dubbo/metadata/shop", 1+8)
	if s.admin.text(s.metadataPath(regs[19])) == "" || s.admin.text(s.metadataPath(regs[18])) == "" {
		s.Error("the metadata of the last revisions was removed")
	}
}

func testRepair(s testTree) {
	session := s.openSession()
	reg := newRegistration("10.0.0.1", user)
	session.registerInstance(s.T, reg)
	mapping := s.chroot + "/dubbo/mapping/" + user
	for _, path := range []string{s.instancePath("10.0.0.1"), s.metadataPath(reg), mapping} {
		if err := s.admin.Delete(path, -1); err != nil {
			s.Fatal(err)
		}
	}
	s.put("/dubbo/mapping/"+user, "other")
	zookeeper.Sweep(session.Registry)
	s.admin.await(s.instancePath("10.0.0.1"), "created again", func(text string) bool { return text != "" })
	s.admin.await(s.metadataPath(reg), "created again", func(text string) bool { return text == string(reg.MetadataInfo) })
	s.admin.await(mapping, "complete", func(text string) bool { return text == "other,shop" })
}

func testInstanceTakeOver(s testTree) {
	before, after := s.openSession(), s.openSession()
	sub := after.NewSubscriber(registry.Service{Interface: user})
	reg := newRegistration("10.0.0.1", user)
	before.registerInstance(s.T, reg)
	sub.Await("the instance", func(snap registry.Snapshot) bool { return len(snap.Instances) == 1 })
	after.registerInstance(s.T, reg)
	before.CloseSession()
	after.registerInstance(s.T, reg)
	if s.admin.text(s.instancePath("10.0.0.1")) == "" {
		s.Error("the instance disappeared with the earlier session")
	}
	sub.Never("without the instance", func(snap registry.Snapshot) bool { return len(snap.Instances) == 0 })
}

func TestInstanceIsRegisteredInNewSession(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, server.Start(t, fastTicks()).Address())
	admin := dialZK(t, proxy.server)
	p := open(t, registry.Options{Address: proxy.address(), SessionTimeout: shortSession})
	reg := newRegistration("10.0.0.1", user)
	p.registerInstance(t, reg)
	node := "/services/shop/10.0.0.1:20880"
	_, before, err := admin.Exists(node)
	if err != nil {
		t.Fatal(err)
	}
	session := p.State().SessionID
	proxy.expire()
	p.Await("another session", func(s registry.State) bool { return s.Connected && s.SessionID != session })
	p.registerInstance(t, reg) // returns when the instance is registered again
	_, after, err := admin.Exists(node)
	if err != nil || after.EphemeralOwner == 0 || after.EphemeralOwner == before.EphemeralOwner {
		t.Errorf("the owner of the instance is session %#x, was %#x: %v; want the new session", after.EphemeralOwner, before.EphemeralOwner, err)
	}
}
