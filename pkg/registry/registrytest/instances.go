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
		{"instance is found by its interfaces, with its metadata", testInstanceFound},
		{"RegisterInstance is idempotent", testInstanceTwice},
		{"UnregisterInstance removes the instance", testInstanceUnregister},
		{"replaced instance is present all the time", testInstanceReplace},
		{"several applications provide an interface", testSeveralApplications},
		{"Close unregisters instances", testInstanceClose},
		{"invalid instance is rejected", testInstanceRejected},
	}
}

const keyRevision = "dubbo.metadata.revision"

// NewInstance returns the registration of an instance of an application at port 20880 of a host,
// which provides the interfaces. Registrations with the same application and interfaces have the
// same revision. The metadata is JSON with characters that need escapes: registries must not
// interpret it.
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

func (e *env) registerInstance(r *Session, reg *registry.InstanceRegistration) {
	e.Helper()
	ctx, cancel := e.context()
	defer cancel()
	if err := r.RegisterInstance(ctx, reg); err != nil {
		e.Fatalf("RegisterInstance(%+v): %v", reg.Instance, err)
	}
}

func (e *env) unregisterInstance(r *Session, reg *registry.InstanceRegistration) {
	e.Helper()
	ctx, cancel := e.context()
	defer cancel()
	if err := r.UnregisterInstance(ctx, registry.Instance{Application: reg.Instance.Application, Host: reg.Instance.Host, Port: reg.Instance.Port}); err != nil {
		e.Fatalf("UnregisterInstance(%+v): %v", reg.Instance, err)
	}
}

// awaitInstances waits until the snapshot contains exactly these instances, as they were
// registered.
func (sub *recordingSubscriber) awaitInstances(want ...*registry.InstanceRegistration) {
	sub.env.Helper()
	describe := func(i registry.Instance) string {
		return fmt.Sprintf("%s %s:%d %v %v", i.Application, i.Host, i.Port, i.Healthy && i.Enabled, i.Metadata[keyRevision])
	}
	var wantTexts []string
	for _, r := range want {
		wantTexts = append(wantTexts, describe(r.Instance))
	}
	slices.Sort(wantTexts)
	sub.await("instances "+strings.Join(wantTexts, ", "), func(snap registry.Snapshot) bool {
		var found []string
		for _, i := range snap.Instances {
			found = append(found, describe(i))
		}
		slices.Sort(found)
		return slices.Equal(found, wantTexts)
	})
}

func testInstanceFound(e *env) {
	reg := NewInstance("shop", "10.0.0.1", iface, "com.example.Order")
	e.registerInstance(e.open(), reg)
	consumer := e.open()
	e.subscribe(consumer, greeter()).awaitInstances(reg)
	e.subscribe(consumer, registry.Service{Interface: "com.example.Order", Group: "g"}).awaitInstances(reg)
	e.subscribe(consumer, registry.Service{Interface: "com.example.Other"}).awaitInstances()
	ctx, cancel := e.context()
	defer cancel()
	text, err := consumer.Metadata(ctx, reg.Instance.Application, reg.Revision)
	if err != nil {
		e.Fatal(err)
	}
	if string(text) != string(reg.MetadataInfo) {
		e.Errorf("Metadata = %s, want %s", text, reg.MetadataInfo)
	}
}

func testInstanceTwice(e *env) {
	r, reg := e.open(), NewInstance("shop", "10.0.0.1", iface)
	e.registerInstance(r, reg)
	e.registerInstance(r, reg)
	sub := e.subscribe(e.open(), greeter())
	sub.awaitInstances(reg)
	e.unregisterInstance(r, reg)
	sub.awaitInstances()
}

func testInstanceUnregister(e *env) {
	r := e.open()
	sub := e.subscribe(e.open(), greeter())
	first, second := NewInstance("shop", "10.0.0.1", iface), NewInstance("shop", "10.0.0.2", iface)
	e.unregisterInstance(r, first) // not registered
	e.registerInstance(r, first)
	e.registerInstance(r, second)
	sub.awaitInstances(first, second)
	e.unregisterInstance(r, first)
	sub.awaitInstances(second)
	e.unregisterInstance(r, second)
	sub.awaitInstances()
	e.registerInstance(r, first)
	sub.awaitInstances(first)
}

func testInstanceReplace(e *env) {
	r := e.open()
	reg := NewInstance("shop", "10.0.0.1", iface)
	e.registerInstance(r, reg)
	seen, gaps := false, 0
	stop := e.open().Subscribe(greeter(), func(snap registry.Snapshot) {
		if seen = seen || len(snap.Instances) > 0; seen && len(snap.Instances) == 0 {
			gaps++
		}
	})
	sub := e.subscribe(e.open(), greeter())
	sub.awaitInstances(reg)
	for i := range 3 {
		reg = NewInstance("shop", "10.0.0.1", iface, fmt.Sprintf("com.example.S%d", i))
		e.registerInstance(r, reg)
	}
	sub.awaitInstances(reg)
	e.subscribe(e.open(), registry.Service{Interface: "com.example.S2"}).awaitInstances(reg)
	stop()
	if gaps > 0 {
		e.Errorf("%d snapshots do not contain the instance, want 0", gaps)
	}
}

func testSeveralApplications(e *env) {
	var regs []*registry.InstanceRegistration
	sub := e.subscribe(e.open(), greeter())
	for i := range 3 {
		reg := NewInstance(fmt.Sprintf("shop%d", i), "10.0.0.1", iface)
		regs = append(regs, reg)
		e.registerInstance(e.open(), reg)
	}
	sub.awaitInstances(regs...)
}

func testInstanceClose(e *env) {
	r, other := e.open(), e.open()
	sub := e.subscribe(e.open(), greeter())
	first, second := NewInstance("shop", "10.0.0.1", iface), NewInstance("shop", "10.0.0.2", iface)
	e.registerInstance(r, first)
	e.registerInstance(other, second)
	sub.awaitInstances(first, second)
	r.CloseSession()
	sub.awaitInstances(second)
	ctx, cancel := e.context()
	defer cancel()
	if err := r.RegisterInstance(ctx, first); err == nil {
		e.Error("RegisterInstance after Close succeeded, want an error")
	}
}

func testInstanceRejected(e *env) {
	r := e.open()
	ctx, cancel := e.context()
	defer cancel()
	for _, invalidate := range []func(*registry.InstanceRegistration){
		func(reg *registry.InstanceRegistration) { reg.Instance.Application = "" },
		func(reg *registry.InstanceRegistration) { reg.Instance.Application = "a,b" },
		func(reg *registry.InstanceRegistration) { reg.Revision = "" },
	} {
		reg := NewInstance("shop", "10.0.0.1", iface)
		invalidate(reg)
		if err := r.RegisterInstance(ctx, reg); err == nil || errors.Is(err, ctx.Err()) {
			e.Errorf("RegisterInstance(%+v): %v, want a rejection", reg.Instance, err)
		}
	}
	e.subscribe(e.open(), greeter()).awaitInstances()
}
