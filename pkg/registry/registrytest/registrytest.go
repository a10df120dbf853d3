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
	// Options returns options of sessions that share registrations, but not with other tests.
	Options func(t *testing.T) registry.Options
	// Authoritative means that snapshots distinguish unregistered providers from lost ones.
	Authoritative bool
}

// Run tests the registry. It runs one parallel subtest for each guarantee.
func Run(t *testing.T, f Fixture) {
	for _, one := range slices.Concat(contractTests(), instanceTests()) {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			b := &env{Fixture: f, T: t}
			b.options = f.Options(t)
			one.test(b)
		})
	}
}

type contractTest struct {
	name string
	test func(*env)
}

func contractTests() []contractTest {
	return []contractTest{
		{"what is registered is found as it was written", testRegister},
		{"who subscribes first sees who registers later", testSubscribeBeforeRegister},
		{"a service that nobody provides is answered, too", testNoProviders},
		{"registering twice is registering once", testRegisterTwice},
		{"what is taken back is gone", testUnregister},
		{"taking back what is not there is no error", testUnregisterUnknown},
		{"what replaces another is there all the time", testReplace},
		{"the end of a session takes back everything", testCloseUnregisters},
		{"groups and versions are services of their own", testGroupsAndVersions},
		{"consumers are no providers", testConsumers},
		{"rules are told with the providers", testRules},
		{"nothing is told after stop", testStop},
		{"one of two who watch the same can stop", testOneOfTwoStops},
		{"many at once", testManyServices},
		{"a revision that nothing was published of", testNoMetadata},
		{"a session that is in use is connected", testConnected},
		{"what is wanted of a session that is closed fails", testAfterClose},
	}
}

// env is the environment of one contract test.
type env struct {
	*testing.T
	Fixture
	options registry.Options
}

// open opens a session, which closes when the test ends.
func (b *env) open() *Session {
	b.Helper()
	return Open(b, b.Open, b.options)
}

func (b *env) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Timeout)
}

func (b *env) url(text string) registry.URL {
	b.Helper()
	return Parse(b, text)
}

func (b *env) register(r *Session, text string) {
	b.Helper()
	r.MustRegister(b.url(text))
}

func (b *env) unregister(r *Session, text string) {
	b.Helper()
	r.MustUnregister(b.url(text))
}

// recordingSubscriber is a subscription that records snapshots.
type recordingSubscriber struct {
	env  *env
	stop func()

	mu           sync.Mutex
	notifying    bool              // guarded by mu; notify runs
	notified     int               // guarded by mu
	last         registry.Snapshot // guarded by mu
	minProviders int               // guarded by mu; fewest providers in a snapshot since reset; -1: no snapshot yet
	changed      chan struct{}     // guarded by mu; closed by the next snapshot
}

func (b *env) subscribe(r *Session, s registry.Service) *recordingSubscriber {
	f := &recordingSubscriber{env: b, minProviders: -1, changed: make(chan struct{})}
	f.stop = r.Subscribe(s, f.notify)
	b.Cleanup(f.stop)
	return f
}

func (f *recordingSubscriber) notify(v registry.Snapshot) {
	f.mu.Lock()
	if f.notifying {
		f.env.Error("notify is called while it runs")
	}
	f.notifying = true
	f.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notifying = false
	f.notified++
	f.last = v
	if f.minProviders < 0 || len(v.Providers) < f.minProviders {
		f.minProviders = len(v.Providers)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits for a snapshot for which wanted returns true.
func (f *recordingSubscriber) await(what string, wanted func(registry.Snapshot) bool) registry.Snapshot {
	f.env.Helper()
	patience := time.NewTimer(Timeout)
	defer patience.Stop()
	for {
		f.mu.Lock()
		v, changed, known := f.last, f.changed, f.notified > 0
		f.mu.Unlock()
		if known && wanted(v) {
			return v
		}
		select {
		case <-changed:
		case <-patience.C:
			f.env.Fatalf("%s: not within %v; known: %v, the last view: %v", what, Timeout, known, v)
		}
	}
}

// awaitProviders waits until the snapshot contains exactly these providers.
func (f *recordingSubscriber) awaitProviders(want ...string) registry.Snapshot {
	f.env.Helper()
	for i, text := range want {
		want[i] = f.env.url(text).String()
	}
	slices.Sort(want)
	return f.await("providers "+strings.Join(want, ", "), func(v registry.Snapshot) bool {
		return slices.Equal(texts(v.Providers), want)
	})
}

func texts(urls []registry.URL) []string {
	all := make([]string, 0, len(urls))
	for _, u := range urls {
		all = append(all, u.String())
	}
	slices.Sort(all)
	return all
}

const (
	iface = "com.example.Greeter"
	first = "dubbo://10.0.0.1:20880/" + iface + "?application=a&interface=" + iface + "&methods=hello"
	other = "dubbo://10.0.0.2:20880/" + iface + "?application=a&interface=" + iface + "&methods=hello"
)

func greeter() registry.Service { return registry.Service{Interface: iface} }

func testRegister(b *env) {
	odd := "dubbo://[2001:db8::1]:1/" + iface + "?interface=" + iface + "&note=" + "1%262+3%25 ü/:?=>"
	r := b.open()
	b.register(r, first)
	b.register(r, odd)
	b.subscribe(b.open(), greeter()).awaitProviders(first, odd)
}

func testSubscribeBeforeRegister(b *env) {
	f := b.subscribe(b.open(), greeter())
	f.awaitProviders()
	r := b.open()
	b.register(r, first)
	f.awaitProviders(first)
	b.register(r, other)
	f.awaitProviders(first, other)
}

func testNoProviders(b *env) {
	b.subscribe(b.open(), registry.Service{Interface: "com.example.Nobody", Group: "g", Version: "1"}).awaitProviders()
}

func testRegisterTwice(b *env) {
	r := b.open()
	b.register(r, first)
	b.register(r, first)
	f := b.subscribe(b.open(), greeter())
	f.awaitProviders(first)
	b.unregister(r, first)
	f.awaitProviders()
}

func testUnregister(b *env) {
	r := b.open()
	f := b.subscribe(b.open(), greeter())
	b.register(r, first)
	b.register(r, other)
	f.awaitProviders(first, other)
	b.unregister(r, first)
	f.awaitProviders(other)
	b.unregister(r, other)
	if v := f.awaitProviders(); b.Authoritative && !v.Authoritative {
		b.Error("the list is not authoritative although all providers unregistered")
	}
	b.register(r, first)
	f.awaitProviders(first)
}

func testUnregisterUnknown(b *env) { b.unregister(b.open(), first) }

func testReplace(b *env) {
	r := b.open()
	f := b.subscribe(b.open(), greeter())
	b.register(r, first)
	f.awaitProviders(first)
	f.mu.Lock()
	f.minProviders = -1
	f.mu.Unlock()
	second := first + "&weight=7"
	b.register(r, second)
	b.unregister(r, first)
	f.awaitProviders(second)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.minProviders == 0 {
		b.Error("there was no provider in between")
	}
}

func testCloseUnregisters(b *env) {
	r := b.open()
	f := b.subscribe(b.open(), greeter())
	b.register(r, first)
	b.register(r, other)
	f.awaitProviders(first, other)
	r.End()
	f.awaitProviders()
}

func testGroupsAndVersions(b *env) {
	r := b.open()
	in := func(group, version string) string {
		text := first
		if group != "" {
			text += "&group=" + group
		}
		if version != "" {
			text += "&version=" + version
		}
		return text
	}
	all := []string{in("", ""), in("g", ""), in("g", "1"), in("h", "1")}
	for i, text := range all {
		all[i] = strings.Replace(text, "10.0.0.1", fmt.Sprintf("10.0.1.%d", i+1), 1)
		b.register(r, all[i])
	}
	watching := b.open()
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
		b.subscribe(watching, s).await("the providers of "+s.String(), func(v registry.Snapshot) bool {
			var got []string
			for _, u := range v.Providers {
				if s.Accepts(u) {
					got = append(got, u.String())
				}
			}
			for i := range want {
				want[i] = b.url(want[i]).String()
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
}

func testConsumers(b *env) {
	r := b.open()
	f := b.subscribe(b.open(), greeter())
	b.register(r, "consumer://10.0.0.9/"+iface+"?category=consumers&interface="+iface)
	b.register(r, first)
	f.awaitProviders(first)
	b.unregister(r, "consumer://10.0.0.9/"+iface+"?category=consumers&interface="+iface)
}

func testRules(b *env) {
	override := "override://0.0.0.0/" + iface + "?category=configurators&dynamic=false&enabled=true&interface=" + iface + "&timeout=5"
	condition := "condition://0.0.0.0/" + iface + "?category=routers&dynamic=false&interface=" + iface + "&rule=host = 10.0.0.9 => host = 10.0.0.1"
	r := b.open()
	f := b.subscribe(b.open(), greeter())
	b.register(r, first)
	b.register(r, override)
	b.register(r, condition)
	f.await("all three", func(v registry.Snapshot) bool {
		return slices.Equal(texts(v.Providers), []string{b.url(first).String()}) &&
			slices.Equal(texts(v.Configurators), []string{b.url(override).String()}) &&
			slices.Equal(texts(v.Routers), []string{b.url(condition).String()})
	})
	b.unregister(r, override)
	b.unregister(r, condition)
	f.await("the provider alone", func(v registry.Snapshot) bool {
		return len(v.Providers) == 1 && len(v.Configurators) == 0 && len(v.Routers) == 0
	})
}

func testStop(b *env) {
	watching, r := b.open(), b.open()
	f := b.subscribe(watching, greeter())
	witness := b.subscribe(watching, greeter())
	f.awaitProviders()
	f.stop()
	f.mu.Lock()
	before := f.notified
	f.mu.Unlock()
	b.register(r, first)
	witness.awaitProviders(first)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notified != before {
		b.Errorf("%d views after stop", f.notified-before)
	}
}

func testOneOfTwoStops(b *env) {
	watching, r := b.open(), b.open()
	one, two := b.subscribe(watching, greeter()), b.subscribe(watching, greeter())
	b.register(r, first)
	one.awaitProviders(first)
	two.awaitProviders(first)
	one.stop()
	b.register(r, other)
	two.awaitProviders(first, other)
	// A new subscription receives a complete snapshot.
	b.subscribe(watching, greeter()).awaitProviders(first, other)
}

func testManyServices(b *env) {
	const services = 100
	r, watching := b.open(), b.open()
	name := func(i int) string { return fmt.Sprintf("com.example.S%d", i) }
	text := func(i int) string {
		return fmt.Sprintf("dubbo://10.0.0.1:%d/%s?interface=%s", 20000+i, name(i), name(i))
	}
	ctx, cancel := b.context()
	defer cancel()
	errs := make([]error, services)
	followers := make([]*recordingSubscriber, services)
	var all sync.WaitGroup
	for i := range services {
		u := b.url(text(i))
		all.Go(func() { errs[i] = r.Register(ctx, u) })
		followers[i] = b.subscribe(watching, registry.Service{Interface: name(i)})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	for i, f := range followers {
		f.awaitProviders(text(i))
	}
}

func testNoMetadata(b *env) {
	ctx, cancel := b.context()
	defer cancel()
	if text, err := b.open().Metadata(ctx, "nobody", "0123456789abcdef"); !errors.Is(err, registry.ErrNoMetadata) {
		b.Errorf("got %q, %v; want ErrNoMetadata", text, err)
	}
}

func testConnected(b *env) {
	before := time.Now()
	r := b.open()
	b.register(r, first)
	s := r.State()
	if !s.Connected || s.Sessions != 1 || s.Since.Before(before) || s.Since.After(time.Now()) {
		b.Errorf("the state is %+v, want one session, connected since the test began", s)
	}
}

func testAfterClose(b *env) {
	r := b.open()
	b.register(r, first)
	r.End()
	ctx, cancel := b.context()
	defer cancel()
	if err := r.Register(ctx, b.url(other)); err == nil {
		b.Error("Register after Close is no error")
	}
	r.End() // the second call has no effect
}
