// Package registrytest contains the tests that every registry of Dubbo services must pass: they
// verify the contract of registry.Registry against a real registry.
package registrytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Fixture describes a registry under test.
type Fixture struct {
	Open registry.OpenFunc
	// Options returns the options for the sessions of one test. These sessions share registrations
	// with each other, but not with those of other tests.
	Options func(t *testing.T) registry.Options
	// Authoritative reports that snapshots distinguish unregistered providers from lost ones.
	Authoritative bool
}

// Run tests the registry. It runs one parallel subtest for each guarantee.
func Run(t *testing.T, fixture Fixture) {
	for _, test := range slices.Concat(contractTests(), instanceTests()) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := &env{Fixture: fixture, T: t}
			e.options = fixture.Options(t)
			test.test(e)
		})
	}
}

type contractTest struct {
	name string
	test func(*env)
}

func contractTests() []contractTest {
	return []contractTest{
		{"snapshot contains registered URLs unchanged", testRegister},
		{"subscription before registration", testSubscribeBeforeRegister},
		{"service without providers has an empty snapshot", testNoProviders},
		{"Register is idempotent", testRegisterTwice},
		{"Unregister removes the URL", testUnregister},
		{"Unregister of an unknown URL is no error", testUnregisterUnknown},
		{"replaced URL is present all the time", testReplace},
		{"Close unregisters URLs", testCloseUnregisters},
		{"groups and versions are separate services", testGroupsAndVersions},
		{"consumers are not providers", testConsumers},
		{"snapshot contains rules", testRules},
		{"no notification after stop", testStop},
		{"one of two subscriptions to a service stops", testOneOfTwoStops},
		{"many services concurrently", testManyServices},
		{"revision without metadata", testNoMetadata},
		{"session in use is connected", testConnected},
		{"Register after Close fails", testAfterClose},
	}
}

// env is the environment of one contract test.
type env struct {
	*testing.T
	Fixture
	options registry.Options
}

// open opens a session, which closes when the test ends.
func (e *env) open() *Session {
	e.Helper()
	return Open(e, e.Open, e.options)
}

func (e *env) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Timeout)
}

func (e *env) url(text string) registry.URL {
	e.Helper()
	return Parse(e, text)
}

func (e *env) register(r *Session, text string) {
	e.Helper()
	r.MustRegister(e.url(text))
}

func (e *env) unregister(r *Session, text string) {
	e.Helper()
	r.MustUnregister(e.url(text))
}

// recordingSubscriber is a subscription that records snapshots.
type recordingSubscriber struct {
	env  *env
	stop func()

	mu            sync.Mutex
	notifying     bool              // guarded by mu; notify is running
	notifications int               // guarded by mu
	last          registry.Snapshot // guarded by mu
	minProviders  int               // guarded by mu; fewest providers in a snapshot since reset; -1: no snapshot yet
	changed       chan struct{}     // guarded by mu; closed by the next snapshot
}

func (e *env) subscribe(r *Session, s registry.Service) *recordingSubscriber {
	sub := &recordingSubscriber{env: e, minProviders: -1, changed: make(chan struct{})}
	sub.stop = r.Subscribe(s, sub.notify)
	e.Cleanup(sub.stop)
	return sub
}

func (sub *recordingSubscriber) notify(snap registry.Snapshot) {
	sub.mu.Lock()
	if sub.notifying {
		sub.env.Error("notify is called while it runs")
	}
	sub.notifying = true
	sub.mu.Unlock()
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.notifying = false
	sub.notifications++
	sub.last = snap
	if sub.minProviders < 0 || len(snap.Providers) < sub.minProviders {
		sub.minProviders = len(snap.Providers)
	}
	close(sub.changed)
	sub.changed = make(chan struct{})
}

// await waits for a snapshot for which cond returns true.
func (sub *recordingSubscriber) await(label string, cond func(registry.Snapshot) bool) registry.Snapshot {
	sub.env.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	for {
		sub.mu.Lock()
		snap, changed, received := sub.last, sub.changed, sub.notifications > 0
		sub.mu.Unlock()
		if received && cond(snap) {
			return snap
		}
		select {
		case <-changed:
		case <-timer.C:
			sub.env.Fatalf("%s: not within %v; received a snapshot: %v, the last: %v", label, Timeout, received, snap)
		}
	}
}

// awaitProviders waits until the snapshot contains exactly these providers.
func (sub *recordingSubscriber) awaitProviders(want ...string) registry.Snapshot {
	sub.env.Helper()
	for i, text := range want {
		want[i] = sub.env.url(text).String()
	}
	slices.Sort(want)
	return sub.await("providers "+strings.Join(want, ", "), func(snap registry.Snapshot) bool {
		return slices.Equal(texts(snap.Providers), want)
	})
}

func texts(urls []registry.URL) []string {
	list := make([]string, 0, len(urls))
	for _, u := range urls {
		list = append(list, u.String())
	}
	slices.Sort(list)
	return list
}

const (
	iface = "com.example.Greeter"
	first = "dubbo://10.0.0.1:20880/" + iface + "?application=a&interface=" + iface + "&methods=hello"
	other = "dubbo://10.0.0.2:20880/" + iface + "?application=a&interface=" + iface + "&methods=hello"
)

func greeter() registry.Service { return registry.Service{Interface: iface} }

func testRegister(e *env) {
	escaped := "dubbo://[2001:db8::1]:1/" + iface + "?interface=" + iface + "&note=" + "1%262+3%25 ü/:?=>"
	r := e.open()
	e.register(r, first)
	e.register(r, escaped)
	e.subscribe(e.open(), greeter()).awaitProviders(first, escaped)
}

func testSubscribeBeforeRegister(e *env) {
	sub := e.subscribe(e.open(), greeter())
	sub.awaitProviders()
	r := e.open()
	e.register(r, first)
	sub.awaitProviders(first)
	e.register(r, other)
	sub.awaitProviders(first, other)
}

func testNoProviders(e *env) {
	e.subscribe(e.open(), registry.Service{Interface: "com.example.Nobody", Group: "g", Version: "1"}).awaitProviders()
}

func testRegisterTwice(e *env) {
	r := e.open()
	e.register(r, first)
	e.register(r, first)
	sub := e.subscribe(e.open(), greeter())
	sub.awaitProviders(first)
	e.unregister(r, first)
	sub.awaitProviders()
}

func testUnregister(e *env) {
	r := e.open()
	sub := e.subscribe(e.open(), greeter())
	e.register(r, first)
	e.register(r, other)
	sub.awaitProviders(first, other)
	e.unregister(r, first)
	sub.awaitProviders(other)
	e.unregister(r, other)
	if snap := sub.awaitProviders(); e.Authoritative && !snap.Authoritative {
		e.Error("the list is not authoritative although all providers unregistered")
	}
	e.register(r, first)
	sub.awaitProviders(first)
}

func testUnregisterUnknown(e *env) { e.unregister(e.open(), first) }

func testReplace(e *env) {
	r := e.open()
	sub := e.subscribe(e.open(), greeter())
	e.register(r, first)
	sub.awaitProviders(first)
	sub.mu.Lock()
	sub.minProviders = -1
	sub.mu.Unlock()
	second := first + "&weight=7"
	e.register(r, second)
	e.unregister(r, first)
	sub.awaitProviders(second)
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.minProviders == 0 {
		e.Error("a snapshot during the replacement has no provider")
	}
}

func testCloseUnregisters(e *env) {
	r := e.open()
	sub := e.subscribe(e.open(), greeter())
	e.register(r, first)
	e.register(r, other)
	sub.awaitProviders(first, other)
	r.CloseSession()
	sub.awaitProviders()
}

func testGroupsAndVersions(e *env) {
	r := e.open()
	provider := func(group, version string) string {
		text := first
		if group != "" {
			text += "&group=" + group
		}
		if version != "" {
			text += "&version=" + version
		}
		return text
	}
	all := []string{provider("", ""), provider("g", ""), provider("g", "1"), provider("h", "1")}
	for i, text := range all {
		all[i] = strings.Replace(text, "10.0.0.1", fmt.Sprintf("10.0.1.%d", i+1), 1)
		e.register(r, all[i])
	}
	consumer := e.open()
	tests := []struct {
		group, version string
		want           []string
	}{
		{"", "", all}, // every provider matches
		{"g", "", all[1:3]},
		{"", "1", all[2:]},
		{"g", "1", all[2:3]},
		{"*", "1", all[2:]},
		{"g,h", "1", all[2:]},
		{"*", "*", all},
		{"h", "2", nil},
	}
	for _, tt := range tests {
		s := registry.Service{Interface: iface, Group: tt.group, Version: tt.version}
		want := slices.Sorted(slices.Values(tt.want))
		e.subscribe(consumer, s).await("the providers of "+s.String(), func(snap registry.Snapshot) bool {
			var got []string
			for _, u := range snap.Providers {
				if s.Accepts(u) {
					got = append(got, u.String())
				}
			}
			for i := range want {
				want[i] = e.url(want[i]).String()
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
}

func testConsumers(e *env) {
	r := e.open()
	sub := e.subscribe(e.open(), greeter())
	e.register(r, "consumer://10.0.0.9/"+iface+"?category=consumers&interface="+iface)
	e.register(r, first)
	sub.awaitProviders(first)
	e.unregister(r, "consumer://10.0.0.9/"+iface+"?category=consumers&interface="+iface)
}

func testRules(e *env) {
	override := "override://0.0.0.0/" + iface + "?category=configurators&dynamic=false&enabled=true&interface=" + iface + "&timeout=5"
	condition := "condition://0.0.0.0/" + iface + "?category=routers&dynamic=false&interface=" + iface + "&rule=host = 10.0.0.9 => host = 10.0.0.1"
	r := e.open()
	sub := e.subscribe(e.open(), greeter())
	e.register(r, first)
	e.register(r, override)
	e.register(r, condition)
	sub.await("provider and both rules", func(snap registry.Snapshot) bool {
		return slices.Equal(texts(snap.Providers), []string{e.url(first).String()}) &&
			slices.Equal(texts(snap.Configurators), []string{e.url(override).String()}) &&
			slices.Equal(texts(snap.Routers), []string{e.url(condition).String()})
	})
	e.unregister(r, override)
	e.unregister(r, condition)
	sub.await("only the provider", func(snap registry.Snapshot) bool {
		return len(snap.Providers) == 1 && len(snap.Configurators) == 0 && len(snap.Routers) == 0
	})
}

func testStop(e *env) {
	consumer, r := e.open(), e.open()
	sub := e.subscribe(consumer, greeter())
	control := e.subscribe(consumer, greeter())
	sub.awaitProviders()
	sub.stop()
	sub.mu.Lock()
	before := sub.notifications
	sub.mu.Unlock()
	e.register(r, first)
	control.awaitProviders(first)
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.notifications != before {
		e.Errorf("%d notifications after stop, want 0", sub.notifications-before)
	}
}

func testOneOfTwoStops(e *env) {
	consumer, r := e.open(), e.open()
	stopped, running := e.subscribe(consumer, greeter()), e.subscribe(consumer, greeter())
	e.register(r, first)
	stopped.awaitProviders(first)
	running.awaitProviders(first)
	stopped.stop()
	e.register(r, other)
	running.awaitProviders(first, other)
	// A new subscription receives a complete snapshot.
	e.subscribe(consumer, greeter()).awaitProviders(first, other)
}

func testManyServices(e *env) {
	const services = 100
	r, consumer := e.open(), e.open()
	name := func(i int) string { return fmt.Sprintf("com.example.S%d", i) }
	text := func(i int) string {
		return fmt.Sprintf("dubbo://10.0.0.1:%d/%s?interface=%s", 20000+i, name(i), name(i))
	}
	ctx, cancel := e.context()
	defer cancel()
	errs := make([]error, services)
	subscribers := make([]*recordingSubscriber, services)
	var wg sync.WaitGroup
	for i := range services {
		u := e.url(text(i))
		wg.Go(func() { errs[i] = r.Register(ctx, u) })
		subscribers[i] = e.subscribe(consumer, registry.Service{Interface: name(i)})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		e.Fatal(err)
	}
	for i, sub := range subscribers {
		sub.awaitProviders(text(i))
	}
}

func testNoMetadata(e *env) {
	ctx, cancel := e.context()
	defer cancel()
	if text, err := e.open().Metadata(ctx, "nobody", "0123456789abcdef"); !errors.Is(err, registry.ErrNoMetadata) {
		e.Errorf("Metadata of an unknown revision = %q, %v; want ErrNoMetadata", text, err)
	}
}

func testConnected(e *env) {
	before := time.Now()
	r := e.open()
	e.register(r, first)
	s := r.State()
	if !s.Connected || s.SessionCount != 1 || s.Since.Before(before) || s.Since.After(time.Now()) {
		e.Errorf("the state is %+v, want one session, connected since the test began", s)
	}
}

func testAfterClose(e *env) {
	r := e.open()
	e.register(r, first)
	r.CloseSession()
	ctx, cancel := e.context()
	defer cancel()
	if err := r.Register(ctx, e.url(other)); err == nil {
		e.Error("Register after Close succeeded, want an error")
	}
	r.CloseSession() // the second call has no effect
}
