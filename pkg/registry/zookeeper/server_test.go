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

// options returns the options of a session in the scene.
func (s testTree) options() registry.Options { return registry.Options{Address: s.server + s.chroot} }

func (s testTree) openSession() *testSession { return open(s, s.options()) }

// put writes a znode of the scene.
func (s testTree) put(path, text string) { s.admin.put(s.chroot+path, text) }

// providers returns the parent znode of a service's providers.
func (s testTree) providers(name string) string { return s.chroot + "/dubbo/" + name + "/providers" }

// TestWithAServer runs subtests on one server, each in its own chroot.
func TestWithAServer(t *testing.T) {
	address := server.Start(t, server.Options{Tick: time.Second}).Address()
	judge := dialZK(t, address)
	judge.put("/test", "") // the subtests create what is below
	for i, tt := range []struct {
		name string
		play func(testTree)
	}{
		{"what is registered is seen, and what is taken back is gone", testRegisterUnregister},
		{"nodes are where Dubbo looks for them, and of the session", testNodePaths},
		{"providers written by Java are read", testJavaProviders},
		{"groups and versions share the folders", testGroupsAndVersions},
		{"children that are no URLs are skipped", testInvalidChildren},
		{"configurators and routers are in the view", testRuleURLs},
		{"rules of the configuration centre are in the view", testRuleDocuments},
		{"instances of the applications that are mapped are in the view", instances},
		{"metadata are read", metadata},
		{"nodes of who has a password are his alone", testPasswords},
		{"no access to a znode", denied},
		{"a node of another session is taken over without a gap", testTakeOver},
		{"a node that was deleted comes back", deleted},
		{"a URL that cannot be a node is refused", refused},
		{"10,000 children", testManyChildren},
		{"no notification after stop", stopped},
		{"a closed registry refuses", closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.play(testTree{t, address, fmt.Sprintf("/test/%d", i), zkClient{t, judge.Conn}})
		})
	}
}

func testRegisterUnregister(s testTree) {
	a, b := s.openSession(), s.openSession()
	f := b.NewSubscriber(registry.Service{Interface: user})
	f.Await("nothing", registrytest.Empty)
	one, two := registrytest.Provider(s, user, "10.0.0.1:20880"), registrytest.Provider(s, user, "10.0.0.2:20880")
	a.MustRegister(one)
	a.MustRegister(one) // the same again
	f.Await("one", registrytest.At("10.0.0.1:20880"))
	a.MustRegister(two)
	f.Await("both", registrytest.At("10.0.0.1:20880", "10.0.0.2:20880"))
	a.MustUnregister(one)
	a.MustUnregister(one)
	f.Await("the other", registrytest.At("10.0.0.2:20880"))
	a.Close(s.Context())
	f.Await("nothing", registrytest.Empty)
}

func testNodePaths(s testTree) {
	p := s.openSession()
	u := registrytest.Provider(s, user, "10.0.0.1:20880", "version=1.0.0")
	consumer, err := registry.Parse("consumer://10.0.0.2/" + user + "?interface=" + user + "&side=consumer")
	if err != nil {
		s.Fatal(err)
	}
	p.MustRegister(u)
	p.MustRegister(consumer)
	for folder, text := range map[string]string{
		"/providers/": "dubbo%3A%2F%2F10.0.0.1%3A20880%2Fcom.example.User%3Finterface%3Dcom.example.User%26side%3Dprovider%26version%3D1.0.0",
		"/consumers/": "consumer%3A%2F%2F10.0.0.2%2Fcom.example.User%3Finterface%3Dcom.example.User%26side%3Dconsumer",
	} {
		exists, stat, err := s.admin.Exists(s.chroot + "/dubbo/" + user + folder + text)
		if err != nil || !exists {
			s.Fatalf("%s%s: %v, %v; want it to be there", folder, text, exists, err)
		}
		if got, want := fmt.Sprintf("%#x", uint64(stat.EphemeralOwner)), p.State().Session; got != want {
			s.Errorf("owner of %s%s is the session %s, want %s", folder, text, got, want)
		}
	}
	acl, _, err := s.admin.GetACL(s.providers(user))
	if err != nil || len(acl) != 1 || acl[0] != zk.WorldACL(zk.PermAll)[0] {
		s.Errorf("the ACL of the znode is %v, %v; want it to allow everything to all clients", acl, err)
	}
}

// Data that providers of Dubbo 2.7.23 and 3.3.5 wrote to ZooKeeper: the same service of a nested
// class, with the address of the machine as data.
const (
	java27 = "dubbo%3A%2F%2F192.168.10.11%3A20880%2FP%24DemoService%3Fanyhost%3Dtrue%26application%3Ddemo-provider%26deprecated%3Dfalse%26" +
		"dubbo%3D2.0.2%26dynamic%3Dtrue%26generic%3Dfalse%26group%3Dblue%26interface%3DP%24DemoService%26metadata-type%3Dremote%26" +
		"methods%3DsayHello%26pid%3D11431%26release%3D2.7.23%26revision%3D1.0.0%26service.name%3DServiceBean%3Ablue%2FP%24DemoService%3A1.0.0%26" +
		"side%3Dprovider%26timestamp%3D1795302791288%26version%3D1.0.0%26weight%3D200"
	java33 = "dubbo%3A%2F%2F192.168.10.12%3A20880%2FP%24DemoService%3Fapplication%3Ddemo-provider%26deprecated%3Dfalse%26dubbo%3D2.0.2%26" +
		"dynamic%3Dtrue%26generic%3Dfalse%26group%3Dblue%26interface%3DP%24DemoService%26methods%3DsayHello%26release%3D3.3.5%26" +
		"revision%3D1.0.0%26service-name-mapping%3Dtrue%26side%3Dprovider%26timestamp%3D1795302722146%26version%3D1.0.0%26weight%3D200"
	// instance33 is the instance that the provider of 3.3.5 wrote as well.
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
	v := s.openSession().NewSubscriber(registry.Service{Interface: name, Group: "blue", Version: "1.0.0"}).
		Await("both", registrytest.At("192.168.10.11:20880", "192.168.10.12:20880"))
	for _, want := range []struct{ host, key, value string }{
		{"192.168.10.11", "weight", "200"},
		{"192.168.10.11", "release", "2.7.23"},
		{"192.168.10.11", "service.name", "ServiceBean:blue/P$DemoService:1.0.0"},
		{"192.168.10.12", "release", "3.3.5"},
		{"192.168.10.12", "methods", "sayHello"},
		{"192.168.10.12", "timestamp", "1795302722146"},
	} {
		for _, u := range v.Providers {
			if got := u.Get(want.key); u.Host == want.host && got != want.value {
				s.Errorf("%s: %s is %q, want %q", u.Host, want.key, got, want.value)
			}
		}
	}
	if len(v.Instances) != 1 {
		s.Fatalf("got the instances %v, want one", v.Instances)
	}
	got := v.Instances[0]
	if got.Application != "demo-provider" || got.Host != "192.168.10.12" || got.Port != 20880 || !got.Enabled ||
		got.Metadata["dubbo.endpoints"] != `[{"port":20880,"protocol":"dubbo"}]` ||
		got.Metadata["dubbo.metadata.revision"] != "d495b2f13774e4540b2670a3f4005d98" {
		s.Errorf("got %+v", got)
	}
}

func testGroupsAndVersions(s testTree) {
	p := s.openSession()
	red := p.NewSubscriber(registry.Service{Interface: user, Group: "red", Version: "2"})
	bare := p.NewSubscriber(registry.Service{Interface: user})
	blue := p.NewSubscriber(registry.Service{Interface: user, Group: "blue", Version: "2"})
	all := p.NewSubscriber(registry.Service{Interface: user, Group: "*", Version: "*"})
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.2:1", "group=blue", "version=2"))
	all.Await("both", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	blue.Await("that of the group", registrytest.At("10.0.0.2:1"))
	bare.Await("both", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	red.Await("nobody", registrytest.Empty)
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.3:1", "group=blue", "version=2"))
	all.Await("three", registrytest.At("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"))
	blue.Await("two", registrytest.At("10.0.0.2:1", "10.0.0.3:1"))
	red.Never("of what is of another group", registrytest.Any)
}

func testInvalidChildren(s testTree) {
	for _, name := range []string{"none", "dubbo%3A%2F%2F10.0.0.1%3Aport%2Fx", "%zz"} {
		s.put("/dubbo/"+user+"/providers/"+name, "")
	}
	p := s.openSession()
	f := p.NewSubscriber(registry.Service{Interface: user})
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	f.Await("what is one", registrytest.At("10.0.0.1:1"))
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.2:1"))
	f.Await("what is one", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	if got := p.log.count("skipped=3"); got != 1 {
		s.Errorf("it was logged %d times, want once", got)
	}
}

func testRuleURLs(s testTree) {
	override := "override://0.0.0.0/" + user + "?category=configurators&dynamic=false&enabled=true&timeout=1000"
	condition := "condition://0.0.0.0/" + user + "?category=routers&dynamic=false&rule=host = 10.0.0.1 => "
	f := s.openSession().NewSubscriber(registry.Service{Interface: user})
	f.Await("nothing", registrytest.Empty)
	s.put("/dubbo/"+user+"/configurators/"+url.QueryEscape(override), "")
	f.Await("the override", func(v registry.Snapshot) bool {
		return len(v.Configurators) == 1 && v.Configurators[0].Get("timeout") == "1000"
	})
	s.put("/dubbo/"+user+"/routers/"+url.QueryEscape(condition), "")
	f.Await("the router", func(v registry.Snapshot) bool {
		return len(v.Routers) == 1 && v.Routers[0].Get("rule") == "host = 10.0.0.1 => "
	})
	s.put("/dubbo/"+user+"/configurators/"+url.QueryEscape(strings.Replace(override, user, "*", 1)), "")
	f.Await("both", func(v registry.Snapshot) bool { return len(v.Configurators) == 2 })
}

func testRuleDocuments(s testTree) {
	asked := registry.Service{Interface: user, Version: "1.0.0"}
	s.put("/dubbo/config/dubbo/"+user+":1.0.0:.configurators", "a: 1")
	s.put("/dubbo/config/dubbo/"+user+":2.0.0:.configurators", "of another version")
	s.put("/dubbo/config/dubbo/shop.tag-router", "b: 1")
	p := s.openSession()
	f := p.NewSubscriber(asked)
	has := func(name, scope, text string) func(registry.Snapshot) bool {
		return func(v registry.Snapshot) bool {
			for _, u := range append(v.Configurators, v.Routers...) {
				if u.Get(zookeeper.ParameterConfig) == name {
					return u.Get(zookeeper.ParameterScope) == scope && u.Get(zookeeper.ParameterYAML) == text
				}
			}
			return text == ""
		}
	}
	v := f.Await("the rule of the service", has(user+":1.0.0:.configurators", zookeeper.ScopeService, "a: 1"))
	if len(v.Configurators) != 1 || len(v.Routers) != 0 {
		s.Errorf("got %v and %v, want one configurator", v.Configurators, v.Routers)
	}
	s.put("/dubbo/config/dubbo/"+user+":1.0.0:.configurators", "a: 2")
	f.Await("its new text", has(user+":1.0.0:.configurators", zookeeper.ScopeService, "a: 2"))
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1", "version=1.0.0", "application=shop"))
	f.Await("the rule of the provider's application", has("shop.tag-router", zookeeper.ScopeApplication, "b: 1"))
	s.put("/dubbo/config/dubbo/"+user+":1.0.0:.condition-router", "c: 1")
	f.Await("a rule that was not there", has(user+":1.0.0:.condition-router", zookeeper.ScopeService, "c: 1"))
	if err := s.admin.Delete(s.chroot+"/dubbo/config/dubbo/"+user+":1.0.0:.configurators", -1); err != nil {
		s.Fatal(err)
	}
	f.Await("no configurator", func(v registry.Snapshot) bool { return len(v.Configurators) == 0 })
	consumer, err := registry.Parse("consumer://10.0.0.2/" + user + "?application=front&version=1.0.0&interface=" + user)
	if err != nil {
		s.Fatal(err)
	}
	s.put("/dubbo/config/dubbo/front.configurators", "d: 1")
	p.MustRegister(consumer)
	f.Await("the rule of the consumer's application", has("front.configurators", zookeeper.ScopeApplication, "d: 1"))
}

// instance returns an instance in the format that Curator 5 writes for Dubbo 3.
func instance(address string, port int, revision string) string {
	return fmt.Sprintf(`{"name":"shop","id":"%[1]s:%[2]d","address":"%[1]s","port":%[2]d,"sslPort":null,"payload":{"@class":`+
		`"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"%[1]s:%[2]d","name":"shop","metadata":{`+
		`"dubbo.endpoints":"[{\"port\":%[2]d,\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"%[3]s",`+
		`"dubbo.metadata.storage-type":"remote","timestamp":"1690000000000"}},"registrationTimeUTC":1690000000001,`+
		`"serviceType":"DYNAMIC","uriSpec":null}`, address, port, revision)
}

func instances(s testTree) {
	p := s.openSession()
	f := p.NewSubscriber(registry.Service{Interface: user})
	f.Await("nothing", registrytest.Empty)
	s.put("/services/shop/10.0.0.1:20880", instance("10.0.0.1", 20880, "abc"))
	s.put("/services/shop/none", "not JSON")
	s.put("/dubbo/mapping/"+user, "shop, other")
	v := f.Await("an instance", func(v registry.Snapshot) bool { return len(v.Instances) == 1 })
	got := v.Instances[0]
	if got.Application != "shop" || got.ID != "10.0.0.1:20880" || got.Host != "10.0.0.1" || got.Port != 20880 || got.Weight != 1 ||
		!got.Healthy || !got.Enabled || got.Metadata["dubbo.metadata.revision"] != "abc" {
		s.Errorf("got %+v", got)
	}
	s.put("/services/shop/10.0.0.1:20880", instance("10.0.0.1", 20880, "def"))
	f.Await("the new revision", func(v registry.Snapshot) bool {
		return len(v.Instances) == 1 && v.Instances[0].Metadata["dubbo.metadata.revision"] == "def"
	})
	s.put("/services/other/10.0.0.2:20880", instance("10.0.0.2", 20880, "abc"))
	f.Await("that of the other application", func(v registry.Snapshot) bool { return len(v.Instances) == 2 })
	late := p.NewSubscriber(registry.Service{Interface: user, Version: "1.0.0"})
	late.Await("instances at once", func(v registry.Snapshot) bool { return len(v.Instances) == 2 })
	s.put("/dubbo/mapping/"+user, "other")
	f.Await("that of one application", func(v registry.Snapshot) bool { return len(v.Instances) == 1 && v.Instances[0].Host == "10.0.0.2" })
}

func metadata(s testTree) {
	p := s.openSession()
	s.put("/dubbo/metadata/shop/abc", `{"app":"shop"}`)
	if got, err := p.Metadata(s.Context(), "shop", "abc"); err != nil || string(got) != `{"app":"shop"}` {
		s.Errorf("got %s, %v", got, err)
	}
	if got, err := p.Metadata(s.Context(), "shop", "def"); !errors.Is(err, registry.ErrNoMetadata) {
		s.Errorf("got %s, %v; want %v", got, err, registry.ErrNoMetadata)
	}
	if got, err := p.Metadata(s.Context(), "..", "abc"); err == nil {
		s.Errorf("unexpected data outside of the root: %s", got)
	}
}

func testPasswords(s testTree) {
	options := s.options()
	options.Username, options.Password = "weft", "secret"
	a, b := open(s, options), open(s, options)
	f := b.NewSubscriber(registry.Service{Interface: user})
	a.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	f.Await("the provider", registrytest.At("10.0.0.1:1"))
	if names, _, err := s.admin.Children(s.providers(user)); !errors.Is(err, zk.ErrNoAuth) {
		s.Errorf("without the password: %q, %v; want %v", names, err, zk.ErrNoAuth)
	}
	options.Password = "wrong"
	stranger := open(s, options)
	ctx, cancel := context.WithTimeout(s.Context(), registrytest.Timeout)
	defer cancel()
	if err := stranger.Register(ctx, registrytest.Provider(s, user, "10.0.0.2:1")); !errors.Is(err, zk.ErrNoAuth) {
		s.Errorf("with a wrong password: %v, want %v", err, zk.ErrNoAuth)
	}
	if state := stranger.State(); !state.Connected || !strings.Contains(state.LastError, "not authenticated") {
		s.Errorf("the state is %+v, want it to say why", state)
	}
}

func denied(s testTree) {
	s.put("/dubbo/"+user, "")
	mine := zk.DigestACL(zk.PermAll, "somebody", "else")
	if _, err := s.admin.Create(s.providers(user), nil, 0, mine); err != nil {
		s.Fatal(err)
	}
	p := s.openSession()
	f := p.NewSubscriber(registry.Service{Interface: user})
	p.Await("telling why", func(state registry.State) bool { return strings.Contains(state.LastError, "not authenticated") })
	f.Never("of a folder that may not be read", registrytest.Any)
}

func testTakeOver(s testTree) {
	u := registrytest.Provider(s, user, "10.0.0.1:1")
	path := s.providers(user) + "/" + u.Encoded()
	s.put("/dubbo/"+user+"/providers", "")
	former := dialZK(s, s.server)
	if _, err := former.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		s.Fatal(err)
	}
	p := s.openSession()
	f := p.NewSubscriber(registry.Service{Interface: user})
	f.Await("the provider", registrytest.At("10.0.0.1:1"))
	p.MustRegister(u)
	former.Close()
	other := registrytest.Provider(s, user, "10.0.0.2:1")
	p.MustRegister(other)
	f.Await("both", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	f.Never("without the provider", registrytest.Empty)
	exists, stat, err := s.admin.Exists(path)
	if err != nil || !exists || fmt.Sprintf("%#x", uint64(stat.EphemeralOwner)) != p.State().Session {
		s.Errorf("after the end of the former session: %v, %+v, %v", exists, stat, err)
	}
	// A znode that another process has taken over belongs to it.
	third := open(s, s.options())
	third.MustRegister(u)
	p.MustUnregister(u)
	if exists, _, err := s.admin.Exists(path); err != nil || !exists {
		s.Errorf("after the earlier owner unregistered it: %v, %v; want it to exist", exists, err)
	}
}

func deleted(s testTree) {
	p := s.openSession()
	u := registrytest.Provider(s, user, "10.0.0.1:1")
	p.MustRegister(u)
	if err := s.admin.Delete(s.providers(user)+"/"+u.Encoded(), -1); err != nil {
		s.Fatal(err)
	}
	zookeeper.Sweep(p.Registry)
	s.admin.children(s.providers(user), 1)
}

func refused(s testTree) {
	p := s.openSession()
	for want, u := range map[string]registry.URL{
		"is empty":         {Protocol: "dubbo", Host: "h"},
		"not a valid name": {Protocol: "dubbo", Host: "h", Path: ".."},
		"category":         {Protocol: "dubbo", Host: "h", Path: "x", Parameters: registry.ParametersOf(map[string]string{"category": "."})},
		"65536":            {Protocol: "dubbo", Host: "h", Path: "x", Parameters: registry.ParametersOf(map[string]string{"y": strings.Repeat("z", registry.MaxURL)})},
	} {
		if err := p.Register(s.Context(), u); err == nil || !strings.Contains(err.Error(), want) {
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
	p := s.openSession()
	f := p.NewSubscriber(registry.Service{Interface: user})
	f.Await("all", func(v registry.Snapshot) bool { return len(v.Providers) == n })
	begin := time.Now()
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	f.Await("one more", func(v registry.Snapshot) bool { return len(v.Providers) == n+1 })
	s.Logf("one more of %d was seen after %v", n, time.Since(begin))
}

func stopped(s testTree) {
	p := s.openSession()
	f, g := p.NewSubscriber(registry.Service{Interface: user}), p.NewSubscriber(registry.Service{Interface: user})
	f.Await("nothing", registrytest.Empty)
	f.Stop()
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.1:1"))
	g.Await("the provider", registrytest.At("10.0.0.1:1"))
	f.Never("after it has stopped", registrytest.Any)
	g.Stop()
	// The new subscription finds an existing watch.
	h := p.NewSubscriber(registry.Service{Interface: user})
	h.Await("the provider", registrytest.At("10.0.0.1:1"))
	p.MustRegister(registrytest.Provider(s, user, "10.0.0.2:1"))
	h.Await("both", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
}

func closed(s testTree) {
	p := s.openSession()
	u := registrytest.Provider(s, user, "10.0.0.1:1")
	p.MustRegister(u)
	p.Close(s.Context())
	s.admin.children(s.providers(user), 0)
	if err := p.Register(s.Context(), u); !errors.Is(err, zookeeper.ErrClosed) {
		s.Errorf("got %v, want %v", err, zookeeper.ErrClosed)
	}
	if state := p.State(); state.Connected || state.Session != "" {
		s.Errorf("the state is %+v", state)
	}
	p.Close(s.Context())
}
