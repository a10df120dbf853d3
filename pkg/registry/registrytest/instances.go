package registrytest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/registry"
)

// instanceTests returns the tests of registry.InstanceRegistry's contract.
func instanceTests() []contractTest {
	return []contractTest{
		{"an instance is found by its interfaces, with what it provides", testInstanceFound},
		{"announcing twice is announcing once", testInstanceTwice},
		{"an instance that is taken back is gone", testInstanceUnregister},
		{"an instance that is replaced is there all the time", testInstanceReplace},
		{"several applications may provide an interface", testSeveralApplications},
		{"the end of a session takes back its instances", testInstanceClose},
		{"an instance that no registry could hold is refused", testInstanceRejected},
	}
}

const keyRevision = "dubbo.metadata.revision"

// NewInstance returns the registration of an instance of an application at port 20880 of a host
// that provides interfaces. Equal applications with equal interfaces have the same revision.
// Registries must not interpret the metadata info, which is JSON with characters that need escapes.
func NewInstance(application, host string, interfaces ...string) *registry.InstanceRegistration {
	interfaces = slices.Compact(slices.Sorted(slices.Values(interfaces)))
	sum := sha256.Sum256([]byte(application + " " + strings.Join(interfaces, " ")))
	revision := hex.EncodeToString(sum[:16])
	return &registry.InstanceRegistration{
		Instance: registry.Instance{
			Application: application, Host: host, Port: 20880, Weight: 1, Healthy: true, Enabled: true,
			Metadata: map[string]string{
				keyRevision:                   revision,
				"dubbo.metadata.storage-type": "remote",
				"dubbo.endpoints":             `[{"port":20880,"protocol":"dubbo"}]`,
				"timestamp":                   "1690000000000",
			},
		},
		Revision:     revision,
		MetadataInfo: fmt.Appendf(nil, `{"app":%q,"revision":%q,"interfaces":"%s","note":"ü, 1+2 & \"3\""}`, application, revision, strings.Join(interfaces, ",")),
		Interfaces:   interfaces,
	}
}

func (b *env) registerInstance(r *Session, a *registry.InstanceRegistration) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := r.RegisterInstance(ctx, a); err != nil {
		b.Fatalf("Announce(%+v): %v", a.Instance, err)
	}
}

func (b *env) unregisterInstance(r *Session, a *registry.InstanceRegistration) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := r.UnregisterInstance(ctx, registry.Instance{Application: a.Instance.Application, Host: a.Instance.Host, Port: a.Instance.Port}); err != nil {
		b.Fatalf("Retract(%+v): %v", a.Instance, err)
	}
}

// awaitInstances waits until the snapshot contains exactly these instances, as they were registered.
func (f *recordingSubscriber) awaitInstances(want ...*registry.InstanceRegistration) {
	f.env.Helper()
	describe := func(i registry.Instance) string {
		return fmt.Sprintf("%s %s:%d %v %v", i.Application, i.Host, i.Port, i.Healthy && i.Enabled, i.Metadata[keyRevision])
	}
	var wanted []string
	for _, a := range want {
		wanted = append(wanted, describe(a.Instance))
	}
	slices.Sort(wanted)
	f.await("instances "+strings.Join(wanted, ", "), func(v registry.Snapshot) bool {
		var found []string
		for _, i := range v.Instances {
			found = append(found, describe(i))
		}
		slices.Sort(found)
		return slices.Equal(found, wanted)
	})
}

func testInstanceFound(b *env) {
	a := NewInstance("shop", "10.0.0.1", iface, "com.example.Order")
	b.registerInstance(b.open(), a)
	watching := b.open()
	b.subscribe(watching, greeter()).awaitInstances(a)
	b.subscribe(watching, registry.Service{Interface: "com.example.Order", Group: "g"}).awaitInstances(a)
	b.subscribe(watching, registry.Service{Interface: "com.example.Other"}).awaitInstances()
	ctx, cancel := b.context()
	defer cancel()
	text, err := watching.Metadata(ctx, a.Instance.Application, a.Revision)
	if err != nil {
		b.Fatal(err)
	}
	if string(text) != string(a.MetadataInfo) {
		b.Errorf("the metadata are %s, want %s", text, a.MetadataInfo)
	}
}

func testInstanceTwice(b *env) {
	r, a := b.open(), NewInstance("shop", "10.0.0.1", iface)
	b.registerInstance(r, a)
	b.registerInstance(r, a)
	f := b.subscribe(b.open(), greeter())
	f.awaitInstances(a)
	b.unregisterInstance(r, a)
	f.awaitInstances()
}

func testInstanceUnregister(b *env) {
	r := b.open()
	f := b.subscribe(b.open(), greeter())
	one, two := NewInstance("shop", "10.0.0.1", iface), NewInstance("shop", "10.0.0.2", iface)
	b.unregisterInstance(r, one) // not registered
	b.registerInstance(r, one)
	b.registerInstance(r, two)
	f.awaitInstances(one, two)
	b.unregisterInstance(r, one)
	f.awaitInstances(two)
	b.unregisterInstance(r, two)
	f.awaitInstances()
	b.registerInstance(r, one)
	f.awaitInstances(one)
}

func testInstanceReplace(b *env) {
	r := b.open()
	a := NewInstance("shop", "10.0.0.1", iface)
	b.registerInstance(r, a)
	seen, gaps := false, 0
	stop := b.open().Subscribe(greeter(), func(v registry.Snapshot) {
		if seen = seen || len(v.Instances) > 0; seen && len(v.Instances) == 0 {
			gaps++
		}
	})
	f := b.subscribe(b.open(), greeter())
	f.awaitInstances(a)
	for i := range 3 {
		a = NewInstance("shop", "10.0.0.1", iface, fmt.Sprintf("com.example.S%d", i))
		b.registerInstance(r, a)
	}
	f.awaitInstances(a)
	b.subscribe(b.open(), registry.Service{Interface: "com.example.S2"}).awaitInstances(a)
	stop()
	if gaps > 0 {
		b.Errorf("%d views are without it", gaps)
	}
}

func testSeveralApplications(b *env) {
	var all []*registry.InstanceRegistration
	f := b.subscribe(b.open(), greeter())
	for i := range 3 {
		a := NewInstance(fmt.Sprintf("shop%d", i), "10.0.0.1", iface)
		all = append(all, a)
		b.registerInstance(b.open(), a)
	}
	f.awaitInstances(all...)
}

func testInstanceClose(b *env) {
	r, stays := b.open(), b.open()
	f := b.subscribe(b.open(), greeter())
	one, two := NewInstance("shop", "10.0.0.1", iface), NewInstance("shop", "10.0.0.2", iface)
	b.registerInstance(r, one)
	b.registerInstance(stays, two)
	f.awaitInstances(one, two)
	r.End()
	f.awaitInstances(two)
	ctx, cancel := b.context()
	defer cancel()
	if err := r.RegisterInstance(ctx, one); err == nil {
		b.Error("Announce after Close is no error")
	}
}

func testInstanceRejected(b *env) {
	r := b.open()
	ctx, cancel := b.context()
	defer cancel()
	for _, spoil := range []func(*registry.InstanceRegistration){
		func(a *registry.InstanceRegistration) { a.Instance.Application = "" },
		func(a *registry.InstanceRegistration) { a.Instance.Application = "a,b" },
		func(a *registry.InstanceRegistration) { a.Revision = "" },
	} {
		a := NewInstance("shop", "10.0.0.1", iface)
		spoil(a)
		if err := r.RegisterInstance(ctx, a); err == nil || errors.Is(err, ctx.Err()) {
			b.Errorf("Announce(%+v): %v", a.Instance, err)
		}
	}
	b.subscribe(b.open(), greeter()).awaitInstances()
}
