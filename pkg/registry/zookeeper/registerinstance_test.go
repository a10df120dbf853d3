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

// announcement returns the registration of an instance of shop that provides interfaces.
func announcement(host string, interfaces ...string) *registry.InstanceRegistration {
	return registrytest.NewInstance("shop", host, interfaces...)
}

func (p *testSession) announcer() registry.InstanceRegistry {
	a, ok := p.Registry.(registry.InstanceRegistry)
	if !ok {
		panic("it announces nothing")
	}
	return a
}

func (p *testSession) registerInstance(t *testing.T, a *registry.InstanceRegistration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), registrytest.Timeout)
	defer cancel()
	if err := p.announcer().RegisterInstance(ctx, a); err != nil {
		t.Fatal(err)
	}
}

// text returns the data of a znode; "": it does not exist.
func (w zkClient) text(path string) string {
	w.t.Helper()
	text, _, err := w.Get(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		w.t.Fatalf("%s: %v", path, err)
	}
	return string(text)
}

// await waits until is returns true for the data of a znode.
func (w zkClient) await(path, what string, is func(text string) bool) {
	w.t.Helper()
	limit := time.After(registrytest.Timeout)
	for {
		_, _, came, err := w.ExistsW(path)
		if err != nil {
			w.t.Fatal(err)
		}
		text := w.text(path)
		if is(text) {
			return
		}
		select {
		case <-came:
		case <-limit:
			w.t.Fatalf("%s does not become %s: %q", path, what, text)
		}
	}
}

// TestAnnouncements runs subtests on one server, each in its own chroot.
func TestAnnouncements(t *testing.T) {
	address := server.Start(t, server.Options{Tick: time.Second}).Address()
	judge := dialZK(t, address)
	judge.put("/announced", "")
	for i, tt := range []struct {
		name string
		play func(testTree)
	}{
		{"an instance is where Dubbo looks for it, as Curator writes it", announced},
		{"who has been faster keeps his place in a mapping", testMappings},
		{"another revision replaces the instance", testRevisionChange},
		{"unused metadata are removed", forgotten},
		{"metadata of the last revisions stay for a while", bounded},
		{"what others take away comes back", testRepair},
		{"an instance of another session is taken over", testInstanceTakeOver},
	} {
		t.Run(tt.name, func(t *testing.T) {
			chroot := fmt.Sprintf("/announced/%d", i)
			tt.play(testTree{T: t, server: address, chroot: chroot, admin: judge})
		})
	}
}

func (s testTree) instance(host string) string { return s.chroot + "/services/shop/" + host + ":20880" }

func (s testTree) provided(a *registry.InstanceRegistration) string {
	return s.chroot + "/dubbo/metadata/shop/" + a.Revision
}

func announced(s testTree) {
	a := announcement("10.0.0.1", user)
	p := s.openSession()
	p.registerInstance(s.T, a)
	p.registerInstance(s.T, a) // the second call has no effect
	want := strings.TrimSuffix(instance("10.0.0.1", 20880, a.Revision), "}") + `,"enabled":true}`
	want = strings.Replace(want, "1690000000001", "1690000000000", 1)
	if got := s.admin.text(s.instance("10.0.0.1")); got != want {
		s.Errorf("the instance is\n%s, want\n%s", got, want)
	}
	_, stat, err := s.admin.Exists(s.instance("10.0.0.1"))
	if err != nil || stat.EphemeralOwner == 0 {
		s.Errorf("the instance outlives its session: %+v, %v", stat, err)
	}
	if got := s.admin.text(s.provided(a)); got != string(a.MetadataInfo) {
		s.Errorf("the metadata are %s, want %s", got, a.MetadataInfo)
	}
	if got := s.admin.text(s.chroot + "/dubbo/mapping/" + user); got != "shop" {
		s.Errorf("the mapping is %q", got)
	}
	if err := p.announcer().UnregisterInstance(s.Context(), a.Instance); err != nil {
		s.Fatal(err)
	}
	if got := s.admin.text(s.instance("10.0.0.1")); got != "" {
		s.Errorf("the instance is still %s", got)
	}
	if err := p.announcer().UnregisterInstance(s.Context(), a.Instance); err != nil {
		s.Errorf("taking it back again: %v", err)
	}
	bad := announcement("10.0.0.1", "a/b")
	if err := p.announcer().RegisterInstance(s.Context(), bad); err == nil {
		s.Error("an interface that cannot be a node is taken")
	}
}

func testMappings(s testTree) {
	const many = 10
	var all sync.WaitGroup
	errs := make([]error, many)
	for i := range many {
		p := s.openSession()
		a := announcement(fmt.Sprintf("10.0.0.%d", i), user)
		a.Instance.Application = fmt.Sprintf("shop%d", i)
		all.Go(func() { errs[i] = p.announcer().RegisterInstance(s.Context(), a) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	names := registry.Applications(s.admin.text(s.chroot + "/dubbo/mapping/" + user))
	slices.Sort(names)
	if len(slices.Compact(names)) != many {
		s.Errorf("the mapping has lost some: %v", names)
	}
}

func testRevisionChange(s testTree) {
	p := s.openSession()
	f := p.NewSubscriber(registry.Service{Interface: user})
	p.registerInstance(s.T, announcement("10.0.0.1", user))
	f.Await("the instance", func(v registry.Snapshot) bool { return len(v.Instances) == 1 })
	next := announcement("10.0.0.1", user, "com.example.Order")
	p.registerInstance(s.T, next)
	f.Never("without the instance", func(v registry.Snapshot) bool { return len(v.Instances) == 0 })
	p.registerInstance(s.T, next)
	if got := s.admin.text(s.instance("10.0.0.1")); !strings.Contains(got, next.Revision) {
		s.Errorf("the instance is %s, want revision %s", got, next.Revision)
	}
	if got := s.admin.text(s.chroot + "/dubbo/mapping/com.example.Order"); got != "shop" {
		s.Errorf("the mapping of the new service is %q", got)
	}
}

func forgotten(s testTree) {
	one, other := s.openSession(), s.openSession()
	first, second := announcement("10.0.0.1", user), announcement("10.0.0.1", "com.example.Order")
	one.registerInstance(s.T, first)
	other.registerInstance(s.T, announcement("10.0.0.2", user)) // of the same revision
	one.registerInstance(s.T, second)
	zookeeper.ForgetRevisions(one.Registry)
	one.registerInstance(s.T, announcement("10.0.0.1", user, "com.example.Order"))
	zookeeper.ForgetRevisions(one.Registry)
	s.admin.await(s.provided(second), "gone", func(text string) bool { return text == "" })
	if s.admin.text(s.provided(first)) == "" {
		s.Error("the metadata of another instance were removed")
	}
	if err := other.announcer().UnregisterInstance(s.Context(), announcement("10.0.0.2").Instance); err != nil {
		s.Fatal(err)
	}
	zookeeper.ForgetRevisions(other.Registry)
	s.admin.await(s.provided(first), "gone", func(text string) bool { return text == "" })
}

func bounded(s testTree) {
	p := s.openSession()
	var all []*registry.InstanceRegistration
	for i := range 20 {
		a := announcement("10.0.0.1", fmt.Sprintf("com.example.S%d", i))
		all = append(all, a)
		p.registerInstance(s.T, a)
	}
	s.admin.children(s.chroot+"/dubbo/metadata/shop", 1+8)
	if s.admin.text(s.provided(all[19])) == "" || s.admin.text(s.provided(all[18])) == "" {
		s.Error("the metadata of the last revisions were removed")
	}
}

func testRepair(s testTree) {
	p := s.openSession()
	a := announcement("10.0.0.1", user)
	p.registerInstance(s.T, a)
	mapping := s.chroot + "/dubbo/mapping/" + user
	for _, path := range []string{s.instance("10.0.0.1"), s.provided(a), mapping} {
		if err := s.admin.Delete(path, -1); err != nil {
			s.Fatal(err)
		}
	}
	s.put("/dubbo/mapping/"+user, "other")
	zookeeper.Sweep(p.Registry)
	s.admin.await(s.instance("10.0.0.1"), "there", func(text string) bool { return text != "" })
	s.admin.await(s.provided(a), "there", func(text string) bool { return text == string(a.MetadataInfo) })
	s.admin.await(mapping, "complete", func(text string) bool { return text == "other,shop" })
}

func testInstanceTakeOver(s testTree) {
	before, after := s.openSession(), s.openSession()
	f := after.NewSubscriber(registry.Service{Interface: user})
	a := announcement("10.0.0.1", user)
	before.registerInstance(s.T, a)
	f.Await("the instance", func(v registry.Snapshot) bool { return len(v.Instances) == 1 })
	after.registerInstance(s.T, a)
	before.End()
	after.registerInstance(s.T, a)
	if s.admin.text(s.instance("10.0.0.1")) == "" {
		s.Error("the instance disappeared with the earlier session")
	}
	f.Never("without the instance", func(v registry.Snapshot) bool { return len(v.Instances) == 0 })
}

func TestInstanceIsRegisteredInNewSession(t *testing.T) {
	t.Parallel()
	w := startProxy(t, server.Start(t, fastTicks()).Address())
	judge := dialZK(t, w.server)
	p := open(t, registry.Options{Address: w.address(), SessionTimeout: brief})
	a := announcement("10.0.0.1", user)
	p.registerInstance(t, a)
	node := "/services/shop/10.0.0.1:20880"
	_, before, err := judge.Exists(node)
	if err != nil {
		t.Fatal(err)
	}
	session := p.State().Session
	w.expire()
	p.Await("in another session", func(s registry.State) bool { return s.Connected && s.Session != session })
	p.registerInstance(t, a) // returns when it is registered again
	_, after, err := judge.Exists(node)
	if err != nil || after.EphemeralOwner == 0 || after.EphemeralOwner == before.EphemeralOwner {
		t.Errorf("the instance is of session %#x, and was of %#x: %v", after.EphemeralOwner, before.EphemeralOwner, err)
	}
}
