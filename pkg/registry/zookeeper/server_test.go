package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	"github.com/weft-proxy/weft/pkg/registry/zookeeper"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

const user = "com.example.User"

// testTree is a part of one server's tree for one subtest.
type testTree struct {
	*testing.T
	server, chroot string
	admin          zkClient
}

// options returns the options of a session in the tree.
func (s testTree) options() registry.Options { return registry.Options{Address: s.server + s.chroot} }

func (s testTree) openSession() *testSession { return open(s, s.options()) }

// put writes a znode of the tree.
func (s testTree) put(path, text string) { s.admin.put(s.chroot+path, text) }

// providers returns the parent znode of a service's providers.
func (s testTree) providers(name string) string { return s.chroot + "/dubbo/" + name + "/providers" }

// TestServer runs subtests on one server, each in its own chroot.
func TestServer(t *testing.T) {
	address := server.Start(t, server.Options{Tick: time.Second}).Address()
	admin := dialZK(t, address)
	admin.put("/test", "") // the parent of the subtests' chroots
	for i, tt := range []struct {
		name string
		run  func(testTree)
	}{
		{"register and unregister", testRegisterUnregister},
		{"paths and owners of znodes", testNodePaths},
		{"providers of Java", testJavaProviders},
		{"groups and versions share znodes", testGroupsAndVersions},
		{"invalid children are skipped", testInvalidChildren},
		{"configurators and routers as URLs", testRuleURLs},
		{"rules of the configuration center", testRuleDocuments},
		{"instances of mapped applications", testInstances},
		{"metadata", testMetadata},
		{"znodes with a password", testPasswords},
		{"no access to a znode", testAccessDenied},
		{"znode of another session is taken over without a gap", testTakeOver},
		{"deleted znode is created again", testDeletedZnode},
		{"invalid URL is rejected", testInvalidURL},
		{"10,000 children", testManyChildren},
		{"no notification after stop", testStop},
		{"closed registry rejects registrations", testAfterClose},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(testTree{t, address, fmt.Sprintf("/test/%d", i), zkClient{t, admin.Conn}})
		})
	}
}

func testRegisterUnregister(s testTree) {
	a, b := s.openSession(), s.openSession()
	sub := b.NewSubscriber(registry.Service{Interface: user})
	sub.Await("no providers", registrytest.Empty)
	first, second := registrytest.Provider(s, user, "10.0.0.1:20880"), registrytest.Provider(s, user, "10.0.0.2:20880")
	a.MustRegister(first)
	a.MustRegister(first) // the second call has no effect
	sub.Await("one provider", registrytest.At("10.0.0.1:20880"))
	a.MustRegister(second)
	sub.Await("both providers", registrytest.At("10.0.0.1:20880", "10.0.0.2:20880"))
	a.MustUnregister(first)
	a.MustUnregister(first)
	sub.Await("the other provider", registrytest.At("10.0.0.2:20880"))
	a.Close(s.Context())
	sub.Await("no providers", registrytest.Empty)
}

func testNodePaths(s testTree) {
	session := s.openSession()
	u := registrytest.Provider(s, user, "10.0.0.1:20880", "version=1.0.0")
	consumer, err := registry.Parse("consumer://10.0.0.2/" + user + "?interface=" + user + "&side=consumer")
	if err != nil {
		s.Fatal(err)
	}
	session.MustRegister(u)
	session.MustRegister(consumer)
	for dir, text := range map[string]string{
		"/providers/": "dubbo%3A%2F%2F10.0.0.1%3A20880%2Fcom.example.User%3Finterface%3Dcom.example.User%26side%3Dprovider%26version%3D1.0.0",
		"/consumers/": "consumer%3A%2F%2F10.0.0.2%2Fcom.example.User%3Finterface%3Dcom.example.User%26side%3Dconsumer",
	} {
		exists, stat, err := s.admin.Exists(s.chroot + "/dubbo/" + user + dir + text)
		if err != nil || !exists {
			s.Fatalf("%s%s: %v, %v; want it to exist", dir, text, exists, err)
		}
		if got, want := fmt.Sprintf("%#x", uint64(stat.EphemeralOwner)), session.State().SessionID; got != want {
			s.Errorf("owner of %s%s is the session %s, want %s", dir, text, got, want)
		}
	}
	acl, _, err := s.admin.GetACL(s.providers(user))
	if err != nil || len(acl) != 1 || acl[0] != zk.WorldACL(zk.PermAll)[0] {
		s.Errorf("the ACL of the znode is %v, %v; want it to allow everything to all clients", acl, err)
	}
}

// Names of znodes that providers of Dubbo 2.7.23 and 3.3.5 created for the same service of a nested
// class. The data of these znodes was the address of the machine.
const (
	java27 = "dubbo%3A%2F%2F192.168.10.11%3A20880%2FP%24DemoService%3Fanyhost%3Dtrue%26application%3Ddemo-provider%26deprecated%3Dfalse%26" +
		"dubbo%3D2.0.2%26dynamic%3Dtrue%26generic%3Dfalse%26group%3Dblue%26interface%3DP%24DemoService%26metadata-type%3Dremote%26" +
		"methods%3DsayHello%26pid%3D11431%26release%3D2.7.23%26revision%3D1.0.0%26service.name%3DServiceBean%3Ablue%2FP%24DemoService%3A1.0.0%26" +
		"side%3Dprovider%26timestamp%3D1795302791288%26version%3D1.0.0%26weight%3D200"
	java33 = "dubbo%3A%2F%2F192.168.10.12%3A20880%2FP%24DemoService%3Fapplication%3Ddemo-provider%26deprecated%3Dfalse%26dubbo%3D2.0.2%26" +
		"dynamic%3Dtrue%26generic%3Dfalse%26group%3Dblue%26interface%3DP%24DemoService%26methods%3DsayHello%26release%3D3.3.5%26" +
		"revision%3D1.0.0%26service-name-mapping%3Dtrue%26side%3Dprovider%26timestamp%3D1795302722146%26version%3D1.0.0%26weight%3D200"
	// instance33 is the data of the instance that the provider of 3.3.5 also registered.
	instance33 = `{"name":"demo-provider","id":"192.168.10.12:20880","address":"192.168.10.12","port":20880,"sslPort":null,` +
		`"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"192.168.10.12:20880","name":"demo-provider",` +
		`"metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"}]","dubbo.metadata-service.url-params":` +
		`"{\"prefer.serialization\":\"hessian2,fastjson2\",\"version\":\"1.0.0\",\"dubbo\":\"2.0.2\",\"release\":\"3.3.5\",` +
		`\"side\":\"provider\",\"port\":\"20881\",\"protocol\":\"dubbo\"}","dubbo.metadata.revision":"d495b2f13774e4540b2670a3f4005d98",` +
		`"dubbo.metadata.storage-type":null,"meta-v":"1.0.0","timestamp":"1795302722146"}},"registrationTimeUTC":1795302725271,` +
		`"serviceType":"DYNAMIC","uriSpec":null}`
)

func testJavaProviders(s testTree) {
	const name = "P$DemoService"
	s.put("/dubbo/P%24DemoService/providers/"+java27, "192.168.10.11")
	s.put("/dubbo/P%24DemoService/providers/"+java33, "192.168.10.12")
	s.put("/dubbo/mapping/"+name, "demo-provider")
	s.put("/services/demo-provider/192.168.10.12:20880", instance33)
	snap := s.openSession().NewSubscriber(registry.Service{Interface: name, Group: "blue", Version: "1.0.0"}).
		Await("both providers", registrytest.At("192.168.10.11:20880", "192.168.10.12:20880"))
	for _, want := range []struct{ host, key, value string }{
		{"192.168.10.11", "weight", "200"},
		{"192.168.10.11", "release", "2.7.23"},
		{"192.168.10.11", "service.name", "ServiceBean:blue/P$DemoService:1.0.0"},
		{"192.168.10.12", "release", "3.3.5"},
		{"192.168.10.12", "methods", "sayHello"},
		{"192.168.10.12", "timestamp", "1795302722146"},
	} {
		for _, u := range snap.Providers {
			if got := u.Get(want.key); u.Host == want.host && got != want.value {
				s.Errorf("%s: %s is %q, want %q", u.Host, want.key, got, want.value)
			}
		}
	}
	if len(snap.Instances) != 1 {
		s.Fatalf("got the instances %v, want one", snap.Instances)
	}
	got := snap.Instances[0]
	if got.Application != "demo-provider" || got.Host != "192.168.10.12" || got.Port != 20880 || !got.Enabled ||
		got.Metadata["dubbo.endpoints"] != `[{"port":20880,"protocol":"dubbo"}]` ||
		got.Metadata["dubbo.metadata.revision"] != "d495b2f13774e4540b2670a3f4005d98" {
		s.Errorf("got %+v, want the instance that Dubbo 3.3.5 wrote", got)
	}
}

func testGroupsAndVersions(s testTree) {
	session := s.openSession()
	red := session.NewSubscriber(registry.Service{Interface: user, Group: "red", Version: "2"})
	unset := session.NewSubscriber(registry.Service{Interface: user})
	blue := session.NewSubscriber(registry.Service{Interface: user, Group: "blue", Version: "2"})
	all := session.NewSubscriber(registry.Service{Interface: user, Group: "*", Version: "*"})
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.2:1", "group=blue", "version=2"))
	all.Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	blue.Await("the provider of the group", registrytest.At("10.0.0.2:1"))
	unset.Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	red.Await("no providers", registrytest.Empty)
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.3:1", "group=blue", "version=2"))
	all.Await("three providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"))
	blue.Await("two providers", registrytest.At("10.0.0.2:1", "10.0.0.3:1"))
	red.Never("of another group", registrytest.Any)
}

func testInvalidChildren(s testTree) {
	for _, name := range []string{"none", "dubbo%3A%2F%2F10.0.0.1%3Aport%2Fx", "%zz"} {
		s.put("/dubbo/"+user+"/providers/"+name, "")
	}
	session := s.openSession()
	sub := session.NewSubscriber(registry.Service{Interface: user})
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	sub.Await("the valid providers", registrytest.At("10.0.0.1:1"))
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.2:1"))
	sub.Await("the valid providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	if got := session.log.count("skipped=3"); got != 1 {
		s.Errorf("the skipped children were logged %d times, want once", got)
	}
}

func testRuleURLs(s testTree) {
	override := "override://0.0.0.0/" + user + "?category=configurators&dynamic=false&enabled=true&timeout=1000"
	condition := "condition://0.0.0.0/" + user + "?category=routers&dynamic=false&rule=host = 10.0.0.1 => "
	sub := s.openSession().NewSubscriber(registry.Service{Interface: user})
	sub.Await("no providers", registrytest.Empty)
	s.put("/dubbo/"+user+"/configurators/"+url.QueryEscape(override), "")
	sub.Await("the override", func(snap registry.Snapshot) bool {
		return len(snap.Configurators) == 1 && snap.Configurators[0].Get("timeout") == "1000"
	})
	s.put("/dubbo/"+user+"/routers/"+url.QueryEscape(condition), "")
	sub.Await("the router", func(snap registry.Snapshot) bool {
		return len(snap.Routers) == 1 && snap.Routers[0].Get("rule") == "host = 10.0.0.1 => "
	})
	s.put("/dubbo/"+user+"/configurators/"+url.QueryEscape(strings.Replace(override, user, "*", 1)), "")
	sub.Await("both configurators", func(snap registry.Snapshot) bool { return len(snap.Configurators) == 2 })
}

func testRuleDocuments(s testTree) {
	requested := registry.Service{Interface: user, Version: "1.0.0"}
	s.put("/dubbo/config/dubbo/"+user+":1.0.0:.configurators", "a: 1")
	s.put("/dubbo/config/dubbo/"+user+":2.0.0:.configurators", "of another version")
	s.put("/dubbo/config/dubbo/shop.tag-router", "b: 1")
	session := s.openSession()
	sub := session.NewSubscriber(requested)
	has := func(name, scope, text string) func(registry.Snapshot) bool {
		return func(snap registry.Snapshot) bool {
			for _, u := range append(snap.Configurators, snap.Routers...) {
				if u.Get(zookeeper.ParameterConfig) == name {
					return u.Get(zookeeper.ParameterScope) == scope && u.Get(zookeeper.ParameterYAML) == text
				}
			}
			return text == ""
		}
	}
	snap := sub.Await("the rule of the service", has(user+":1.0.0:.configurators", zookeeper.ScopeService, "a: 1"))
	if len(snap.Configurators) != 1 || len(snap.Routers) != 0 {
		s.Errorf("got %v and %v, want one configurator", snap.Configurators, snap.Routers)
	}
	s.put("/dubbo/config/dubbo/"+user+":1.0.0:.configurators", "a: 2")
	sub.Await("the new text of the rule", has(user+":1.0.0:.configurators", zookeeper.ScopeService, "a: 2"))
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1", "version=1.0.0", "application=shop"))
	sub.Await("the rule of the provider's application", has("shop.tag-router", zookeeper.ScopeApplication, "b: 1"))
	s.put("/dubbo/config/dubbo/"+user+":1.0.0:.condition-router", "c: 1")
	sub.Await("the new rule", has(user+":1.0.0:.condition-router", zookeeper.ScopeService, "c: 1"))
	if err := s.admin.Delete(s.chroot+"/dubbo/config/dubbo/"+user+":1.0.0:.configurators", -1); err != nil {
		s.Fatal(err)
	}
	sub.Await("no configurator", func(snap registry.Snapshot) bool { return len(snap.Configurators) == 0 })
	consumer, err := registry.Parse("consumer://10.0.0.2/" + user + "?application=front&version=1.0.0&interface=" + user)
	if err != nil {
		s.Fatal(err)
	}
	s.put("/dubbo/config/dubbo/front.configurators", "d: 1")
	session.MustRegister(consumer)
	sub.Await("the rule of the consumer's application", has("front.configurators", zookeeper.ScopeApplication, "d: 1"))
}

// instance returns an instance in the format that Curator 5 writes for Dubbo 3.
func instance(address string, port int, revision string) string {
	return fmt.Sprintf(`{"name":"shop","id":"%[1]s:%[2]d","address":"%[1]s","port":%[2]d,"sslPort":null,"payload":{"@class":`+
		`"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"%[1]s:%[2]d","name":"shop","metadata":{`+
		`"dubbo.endpoints":"[{\"port\":%[2]d,\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"%[3]s",`+
		`"dubbo.metadata.storage-type":"remote","timestamp":"1690000000000"}},"registrationTimeUTC":1690000000001,`+
		`"serviceType":"DYNAMIC","uriSpec":null}`, address, port, revision)
}

func testInstances(s testTree) {
	session := s.openSession()
	sub := session.NewSubscriber(registry.Service{Interface: user})
	sub.Await("no providers", registrytest.Empty)
	s.put("/services/shop/10.0.0.1:20880", instance("10.0.0.1", 20880, "abc"))
	s.put("/services/shop/none", "not JSON")
	s.put("/dubbo/mapping/"+user, "shop, other")
	snap := sub.Await("one instance", func(snap registry.Snapshot) bool { return len(snap.Instances) == 1 })
	got := snap.Instances[0]
	if got.Application != "shop" || got.ID != "10.0.0.1:20880" || got.Host != "10.0.0.1" || got.Port != 20880 || got.Weight != 1 ||
		!got.Healthy || !got.Enabled || got.Metadata["dubbo.metadata.revision"] != "abc" {
		s.Errorf("got %+v, want shop at 10.0.0.1:20880 with revision abc", got)
	}
	s.put("/services/shop/10.0.0.1:20880", instance("10.0.0.1", 20880, "def"))
	sub.Await("the new revision", func(snap registry.Snapshot) bool {
		return len(snap.Instances) == 1 && snap.Instances[0].Metadata["dubbo.metadata.revision"] == "def"
	})
	s.put("/services/other/10.0.0.2:20880", instance("10.0.0.2", 20880, "abc"))
	sub.Await("the instance of the other application", func(snap registry.Snapshot) bool { return len(snap.Instances) == 2 })
	newSub := session.NewSubscriber(registry.Service{Interface: user, Version: "1.0.0"})
	newSub.Await("both instances", func(snap registry.Snapshot) bool { return len(snap.Instances) == 2 })
	s.put("/dubbo/mapping/"+user, "other")
	sub.Await("only the instance of the other application", func(snap registry.Snapshot) bool {
		return len(snap.Instances) == 1 && snap.Instances[0].Host == "10.0.0.2"
	})
}

func testMetadata(s testTree) {
	session := s.openSession()
	s.put("/dubbo/metadata/shop/abc", `{"app":"shop"}`)
	if got, err := session.Metadata(s.Context(), "shop", "abc"); err != nil || string(got) != `{"app":"shop"}` {
		s.Errorf("got %s, %v, want {\"app\":\"shop\"}", got, err)
	}
	if got, err := session.Metadata(s.Context(), "shop", "def"); !errors.Is(err, registry.ErrNoMetadata) {
		s.Errorf("got %s, %v; want %v", got, err, registry.ErrNoMetadata)
	}
	if got, err := session.Metadata(s.Context(), "..", "abc"); err == nil {
		s.Errorf("unexpected data outside of the root: %s", got)
	}
}

func testPasswords(s testTree) {
	options := s.options()
	options.Username, options.Password = "weft", "secret"
	a, b := open(s, options), open(s, options)
	sub := b.NewSubscriber(registry.Service{Interface: user})
	a.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	sub.Await("the provider", registrytest.At("10.0.0.1:1"))
	if names, _, err := s.admin.Children(s.providers(user)); !errors.Is(err, zk.ErrNoAuth) {
		s.Errorf("without the password: %q, %v; want %v", names, err, zk.ErrNoAuth)
	}
	options.Password = "wrong"
	unauthorized := open(s, options)
	ctx, cancel := context.WithTimeout(s.Context(), registrytest.Timeout)
	defer cancel()
	if err := unauthorized.Register(ctx, registrytest.Provider(s, user, "10.0.0.2:1")); !errors.Is(err, zk.ErrNoAuth) {
		s.Errorf("with a wrong password: %v, want %v", err, zk.ErrNoAuth)
	}
	if state := unauthorized.State(); !state.Connected || !strings.Contains(state.LastError, "not authenticated") {
		s.Errorf("state = %+v, want the reason", state)
	}
}

func testAccessDenied(s testTree) {
	s.put("/dubbo/"+user, "")
	acl := zk.DigestACL(zk.PermAll, "somebody", "else")
	if _, err := s.admin.Create(s.providers(user), nil, 0, acl); err != nil {
		s.Fatal(err)
	}
	session := s.openSession()
	sub := session.NewSubscriber(registry.Service{Interface: user})
	session.Await("an authentication error", func(state registry.State) bool { return strings.Contains(state.LastError, "not authenticated") })
	sub.Never("of a znode that may not be read", registrytest.Any)
}

func testTakeOver(s testTree) {
	u := registrytest.Provider(s, user, "10.0.0.1:1")
	path := s.providers(user) + "/" + u.Encoded()
	s.put("/dubbo/"+user+"/providers", "")
	previous := dialZK(s, s.server)
	if _, err := previous.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		s.Fatal(err)
	}
	session := s.openSession()
	sub := session.NewSubscriber(registry.Service{Interface: user})
	sub.Await("the provider", registrytest.At("10.0.0.1:1"))
	session.MustRegister(u)
	previous.Close()
	other := registrytest.Provider(s, user, "10.0.0.2:1")
	session.MustRegister(other)
	sub.Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	sub.Never("without the provider", registrytest.Empty)
	exists, stat, err := s.admin.Exists(path)
	if err != nil || !exists || fmt.Sprintf("%#x", uint64(stat.EphemeralOwner)) != session.State().SessionID {
		s.Errorf("after the end of the previous session: exists = %v, %+v, %v; want it owned by the new session", exists, stat, err)
	}
	// After another session has taken over a znode, Unregister does not remove the znode.
	third := open(s, s.options())
	third.MustRegister(u)
	session.MustUnregister(u)
	if exists, _, err := s.admin.Exists(path); err != nil || !exists {
		s.Errorf("after the earlier owner unregistered it: %v, %v; want it to exist", exists, err)
	}
}

func testDeletedZnode(s testTree) {
	session := s.openSession()
	u := registrytest.Provider(s, user, "10.0.0.1:1")
	session.MustRegister(u)
	if err := s.admin.Delete(s.providers(user)+"/"+u.Encoded(), -1); err != nil {
		s.Fatal(err)
	}
	zookeeper.Sweep(session.Registry)
	s.admin.children(s.providers(user), 1)
}

func testInvalidURL(s testTree) {
	session := s.openSession()
	for want, u := range map[string]registry.URL{
		"is empty":         {Protocol: "dubbo", Host: "h"},
		"not a valid name": {Protocol: "dubbo", Host: "h", Path: ".."},
		"category":         {Protocol: "dubbo", Host: "h", Path: "x", Parameters: registry.ParametersOf(map[string]string{"category": "."})},
		"65536":            {Protocol: "dubbo", Host: "h", Path: "x", Parameters: registry.ParametersOf(map[string]string{"y": strings.Repeat("z", registry.MaxURL)})},
	} {
		if err := session.Register(s.Context(), u); err == nil || !strings.Contains(err.Error(), want) {
			s.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func testManyChildren(s testTree) {
	const n = 10_000
	s.put("/dubbo/"+user+"/providers", "")
	padding := strings.Repeat("x", 400)
	for i := 0; i < n; i += 500 {
		var batch []any
		for j := i; j < i+500; j++ {
			u := registrytest.Provider(s, user, fmt.Sprintf("10.1.%d.%d:20880", j/250, j%250), "padding="+padding)
			batch = append(batch, &zk.CreateRequest{Path: s.providers(user) + "/" + u.Encoded(), Acl: zk.WorldACL(zk.PermAll)})
		}
		if _, err := s.admin.Multi(batch...); err != nil {
			s.Fatal(err)
		}
	}
	session := s.openSession()
	sub := session.NewSubscriber(registry.Service{Interface: user})
	sub.Await("all providers", func(snap registry.Snapshot) bool { return len(snap.Providers) == n })
	start := time.Now()
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	sub.Await("one more provider", func(snap registry.Snapshot) bool { return len(snap.Providers) == n+1 })
	s.Logf("the provider after %d others was reported after %v", n, time.Since(start))
}

func testStop(s testTree) {
	session := s.openSession()
	stoppedSub, sub := session.NewSubscriber(registry.Service{Interface: user}), session.NewSubscriber(registry.Service{Interface: user})
	stoppedSub.Await("no providers", registrytest.Empty)
	stoppedSub.Stop()
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	sub.Await("the provider", registrytest.At("10.0.0.1:1"))
	stoppedSub.Never("after Stop", registrytest.Any)
	sub.Stop()
	// The new subscription finds an existing watch.
	newSub := session.NewSubscriber(registry.Service{Interface: user})
	newSub.Await("the provider", registrytest.At("10.0.0.1:1"))
	session.MustRegister(registrytest.Provider(s, user, "10.0.0.2:1"))
	newSub.Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
}

func testAfterClose(s testTree) {
	session := s.openSession()
	u := registrytest.Provider(s, user, "10.0.0.1:1")
	session.MustRegister(u)
	session.Close(s.Context())
	s.admin.children(s.providers(user), 0)
	if err := session.Register(s.Context(), u); !errors.Is(err, zookeeper.ErrClosed) {
		s.Errorf("got %v, want %v", err, zookeeper.ErrClosed)
	}
	if state := session.State(); state.Connected || state.SessionID != "" {
		s.Errorf("state after Close = %+v, want disconnected without a session", state)
	}
	session.Close(s.Context())
}
