package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/application"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// announcements returns the tests of registry.InstanceRegistry's contract.
func announcements() []contractTest {
	return []contractTest{
		{"an instance is found by its interfaces, with what it provides", instanceFound},
		{"announcing twice is announcing once", instanceTwice},
		{"an instance that is taken back is gone", instanceTakenBack},
		{"an instance that is replaced is there all the time", instanceReplaced},
		{"several applications may provide an interface", instancesOfSeveral},
		{"the end of a session takes back its instances", instanceClosed},
		{"an instance that no registry could hold is refused", instanceRefused},
	}
}

// announcement returns the registration of an instance that provides interfaces.
func announcement(name, host string, interfaces ...string) *registry.InstanceRegistration {
	var offers []*application.ServiceInfo
	for _, one := range interfaces {
		offers = append(offers, &application.ServiceInfo{
			Service: registry.Service{Interface: one}, Protocol: "dubbo", Path: one,
			Parameters: map[string]string{"interface": one, "note": "ü, 1+2 & \"3\""},
		})
	}
	return application.NewInstanceRegistration(application.LocalInstance{Application: name, Host: host, Port: 20880, Since: time.UnixMilli(1)}, offers)
}

func (b *env) announce(r *Session, a *registry.InstanceRegistration) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := r.RegisterInstance(ctx, a); err != nil {
		b.Fatalf("Announce(%+v): %v", a.Instance, err)
	}
}

func (b *env) retract(r *Session, a *registry.InstanceRegistration) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := r.UnregisterInstance(ctx, registry.Instance{Application: a.Instance.Application, Host: a.Instance.Host, Port: a.Instance.Port}); err != nil {
		b.Fatalf("Retract(%+v): %v", a.Instance, err)
	}
}

// instances waits until the snapshot contains exactly these instances, as they were registered.
func (f *follower) instances(want ...*registry.InstanceRegistration) {
	f.b.Helper()
	describe := func(i registry.Instance) string {
		return fmt.Sprintf("%s %s:%d %v %v", i.Application, i.Host, i.Port, i.Healthy && i.Enabled, application.Revision(i))
	}
	var wanted []string
	for _, a := range want {
		wanted = append(wanted, describe(a.Instance))
	}
	slices.Sort(wanted)
	f.until("instances "+strings.Join(wanted, ", "), func(v registry.Snapshot) bool {
		var found []string
		for _, i := range v.Instances {
			found = append(found, describe(i))
		}
		slices.Sort(found)
		return slices.Equal(found, wanted)
	})
}

func instanceFound(b *env) {
	a := announcement("shop", "10.0.0.1", iface, "com.example.Order")
	b.announce(b.open(), a)
	watching := b.open()
	b.follow(watching, greeter()).instances(a)
	b.follow(watching, registry.Service{Interface: "com.example.Order", Group: "g"}).instances(a)
	b.follow(watching, registry.Service{Interface: "com.example.Other"}).instances()
	ctx, cancel := b.context()
	defer cancel()
	services, err := application.Fetch(ctx, watching, a.Instance)
	if err != nil {
		b.Fatal(err)
	}
	urls := services.URLs(a.Instance, greeter())
	if len(urls) != 1 || urls[0].Address() != "10.0.0.1:20880" || urls[0].Get("note") != "ü, 1+2 & \"3\"" {
		b.Errorf("it provides %v", urls)
	}
}

func instanceTwice(b *env) {
	r, a := b.open(), announcement("shop", "10.0.0.1", iface)
	b.announce(r, a)
	b.announce(r, a)
	f := b.follow(b.open(), greeter())
	f.instances(a)
	b.retract(r, a)
	f.instances()
}

func instanceTakenBack(b *env) {
	r := b.open()
	f := b.follow(b.open(), greeter())
	one, two := announcement("shop", "10.0.0.1", iface), announcement("shop", "10.0.0.2", iface)
	b.retract(r, one) // not registered
	b.announce(r, one)
	b.announce(r, two)
	f.instances(one, two)
	b.retract(r, one)
	f.instances(two)
	b.retract(r, two)
	f.instances()
	b.announce(r, one)
	f.instances(one)
}

func instanceReplaced(b *env) {
	r := b.open()
	a := announcement("shop", "10.0.0.1", iface)
	b.announce(r, a)
	seen, gaps := false, 0
	stop := b.open().Subscribe(greeter(), func(v registry.Snapshot) {
		if seen = seen || len(v.Instances) > 0; seen && len(v.Instances) == 0 {
			gaps++
		}
	})
	f := b.follow(b.open(), greeter())
	f.instances(a)
	for i := range 3 {
		a = announcement("shop", "10.0.0.1", iface, fmt.Sprintf("com.example.S%d", i))
		b.announce(r, a)
	}
	f.instances(a)
	b.follow(b.open(), registry.Service{Interface: "com.example.S2"}).instances(a)
	stop()
	if gaps > 0 {
		b.Errorf("%d views are without it", gaps)
	}
}

func instancesOfSeveral(b *env) {
	var all []*registry.InstanceRegistration
	f := b.follow(b.open(), greeter())
	for i := range 3 {
		a := announcement(fmt.Sprintf("shop%d", i), "10.0.0.1", iface)
		all = append(all, a)
		b.announce(b.open(), a)
	}
	f.instances(all...)
}

func instanceClosed(b *env) {
	r, stays := b.open(), b.open()
	f := b.follow(b.open(), greeter())
	one, two := announcement("shop", "10.0.0.1", iface), announcement("shop", "10.0.0.2", iface)
	b.announce(r, one)
	b.announce(stays, two)
	f.instances(one, two)
	r.End()
	f.instances(two)
	ctx, cancel := b.context()
	defer cancel()
	if err := r.RegisterInstance(ctx, one); err == nil {
		b.Error("Announce after Close is no error")
	}
}

func instanceRefused(b *env) {
	r := b.open()
	ctx, cancel := b.context()
	defer cancel()
	for _, spoil := range []func(*registry.InstanceRegistration){
		func(a *registry.InstanceRegistration) { a.Instance.Application = "" },
		func(a *registry.InstanceRegistration) { a.Instance.Application = "a,b" },
		func(a *registry.InstanceRegistration) { a.Revision = "" },
	} {
		a := announcement("shop", "10.0.0.1", iface)
		spoil(a)
		if err := r.RegisterInstance(ctx, a); err == nil || errors.Is(err, ctx.Err()) {
			b.Errorf("Announce(%+v): %v", a.Instance, err)
		}
	}
	b.follow(b.open(), greeter()).instances()
}
