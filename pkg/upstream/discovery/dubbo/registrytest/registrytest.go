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

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
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
	for _, one := range slices.Concat(contractTests(), announcements()) {
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
		{"what is registered is found as it was written", found},
		{"who subscribes first sees who registers later", foundLater},
		{"a service that nobody provides is answered, too", foundNobody},
		{"registering twice is registering once", twice},
		{"what is taken back is gone", takenBack},
		{"taking back what is not there is no error", takenBackNothing},
		{"what replaces another is there all the time", replaced},
		{"the end of a session takes back everything", closed},
		{"groups and versions are services of their own", apart},
		{"consumers are no providers", consumers},
		{"rules are told with the providers", rules},
		{"nothing is told after stop", stopped},
		{"one of two who watch the same can stop", oneStops},
		{"many at once", many},
		{"a revision that nothing was published of", noMetadata},
		{"a session that is in use is connected", connected},
		{"what is wanted of a session that is closed fails", afterClose},
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

// follower is a subscription that records snapshots.
type follower struct {
	b    *env
	stop func()

	mu      sync.Mutex
	within  bool              // guarded by mu; notify runs
	views   int               // guarded by mu
	last    registry.Snapshot // guarded by mu
	least   int               // guarded by mu; fewest providers in a snapshot since reset; -1: no snapshot yet
	changed chan struct{}     // guarded by mu; closed by the next snapshot
}

func (b *env) follow(r *Session, s registry.Service) *follower {
	f := &follower{b: b, least: -1, changed: make(chan struct{})}
	f.stop = r.Subscribe(s, f.notify)
	b.Cleanup(f.stop)
	return f
}

func (f *follower) notify(v registry.Snapshot) {
	f.mu.Lock()
	if f.within {
		f.b.Error("notify is called while it runs")
	}
	f.within = true
	f.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.within = false
	f.views++
	f.last = v
	if f.least < 0 || len(v.Providers) < f.least {
		f.least = len(v.Providers)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// until waits for a snapshot for which wanted returns true.
func (f *follower) until(what string, wanted func(registry.Snapshot) bool) registry.Snapshot {
	f.b.Helper()
	patience := time.NewTimer(Timeout)
	defer patience.Stop()
	for {
		f.mu.Lock()
		v, changed, known := f.last, f.changed, f.views > 0
		f.mu.Unlock()
		if known && wanted(v) {
			return v
		}
		select {
		case <-changed:
		case <-patience.C:
			f.b.Fatalf("%s: not within %v; known: %v, the last view: %v", what, Timeout, known, v)
		}
	}
}

// providers waits until the snapshot contains exactly these providers.
func (f *follower) providers(want ...string) registry.Snapshot {
	f.b.Helper()
	for i, text := range want {
		want[i] = f.b.url(text).String()
	}
	slices.Sort(want)
	return f.until("providers "+strings.Join(want, ", "), func(v registry.Snapshot) bool {
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

func found(b *env) {
	odd := "dubbo://[2001:db8::1]:1/" + iface + "?interface=" + iface + "&note=" + "1%262+3%25 ü/:?=>"
	r := b.open()
	b.register(r, first)
	b.register(r, odd)
	b.follow(b.open(), greeter()).providers(first, odd)
}

func foundLater(b *env) {
	f := b.follow(b.open(), greeter())
	f.providers()
	r := b.open()
	b.register(r, first)
	f.providers(first)
	b.register(r, other)
	f.providers(first, other)
}

func foundNobody(b *env) {
	b.follow(b.open(), registry.Service{Interface: "com.example.Nobody", Group: "g", Version: "1"}).providers()
}

func twice(b *env) {
	r := b.open()
	b.register(r, first)
	b.register(r, first)
	f := b.follow(b.open(), greeter())
	f.providers(first)
	b.unregister(r, first)
	f.providers()
}

func takenBack(b *env) {
	r := b.open()
	f := b.follow(b.open(), greeter())
	b.register(r, first)
	b.register(r, other)
	f.providers(first, other)
	b.unregister(r, first)
	f.providers(other)
	b.unregister(r, other)
	if v := f.providers(); b.Authoritative && !v.Authoritative {
		b.Error("the list is not authoritative although all providers unregistered")
	}
	b.register(r, first)
	f.providers(first)
}

func takenBackNothing(b *env) { b.unregister(b.open(), first) }

func replaced(b *env) {
	r := b.open()
	f := b.follow(b.open(), greeter())
	b.register(r, first)
	f.providers(first)
	f.mu.Lock()
	f.least = -1
	f.mu.Unlock()
	second := first + "&weight=7"
	b.register(r, second)
	b.unregister(r, first)
	f.providers(second)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.least == 0 {
		b.Error("there was no provider in between")
	}
}

func closed(b *env) {
	r := b.open()
	f := b.follow(b.open(), greeter())
	b.register(r, first)
	b.register(r, other)
	f.providers(first, other)
	r.End()
	f.providers()
}

func apart(b *env) {
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
		b.follow(watching, s).until("the providers of "+s.String(), func(v registry.Snapshot) bool {
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

func consumers(b *env) {
	r := b.open()
	f := b.follow(b.open(), greeter())
	b.register(r, "consumer://10.0.0.9/"+iface+"?category=consumers&interface="+iface)
	b.register(r, first)
	f.providers(first)
	b.unregister(r, "consumer://10.0.0.9/"+iface+"?category=consumers&interface="+iface)
}

func rules(b *env) {
	override := "override://0.0.0.0/" + iface + "?category=configurators&dynamic=false&enabled=true&interface=" + iface + "&timeout=5"
	condition := "condition://0.0.0.0/" + iface + "?category=routers&dynamic=false&interface=" + iface + "&rule=host = 10.0.0.9 => host = 10.0.0.1"
	r := b.open()
	f := b.follow(b.open(), greeter())
	b.register(r, first)
	b.register(r, override)
	b.register(r, condition)
	f.until("all three", func(v registry.Snapshot) bool {
		return slices.Equal(texts(v.Providers), []string{b.url(first).String()}) &&
			slices.Equal(texts(v.Configurators), []string{b.url(override).String()}) &&
			slices.Equal(texts(v.Routers), []string{b.url(condition).String()})
	})
	b.unregister(r, override)
	b.unregister(r, condition)
	f.until("the provider alone", func(v registry.Snapshot) bool {
		return len(v.Providers) == 1 && len(v.Configurators) == 0 && len(v.Routers) == 0
	})
}

func stopped(b *env) {
	watching, r := b.open(), b.open()
	f := b.follow(watching, greeter())
	witness := b.follow(watching, greeter())
	f.providers()
	f.stop()
	f.mu.Lock()
	before := f.views
	f.mu.Unlock()
	b.register(r, first)
	witness.providers(first)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.views != before {
		b.Errorf("%d views after stop", f.views-before)
	}
}

func oneStops(b *env) {
	watching, r := b.open(), b.open()
	one, two := b.follow(watching, greeter()), b.follow(watching, greeter())
	b.register(r, first)
	one.providers(first)
	two.providers(first)
	one.stop()
	b.register(r, other)
	two.providers(first, other)
	// A new subscription receives a complete snapshot.
	b.follow(watching, greeter()).providers(first, other)
}

func many(b *env) {
	const services = 100
	r, watching := b.open(), b.open()
	name := func(i int) string { return fmt.Sprintf("com.example.S%d", i) }
	text := func(i int) string {
		return fmt.Sprintf("dubbo://10.0.0.1:%d/%s?interface=%s", 20000+i, name(i), name(i))
	}
	ctx, cancel := b.context()
	defer cancel()
	errs := make([]error, services)
	followers := make([]*follower, services)
	var all sync.WaitGroup
	for i := range services {
		u := b.url(text(i))
		all.Go(func() { errs[i] = r.Register(ctx, u) })
		followers[i] = b.follow(watching, registry.Service{Interface: name(i)})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	for i, f := range followers {
		f.providers(text(i))
	}
}

func noMetadata(b *env) {
	ctx, cancel := b.context()
	defer cancel()
	if text, err := b.open().Metadata(ctx, "nobody", "0123456789abcdef"); !errors.Is(err, registry.ErrNoMetadata) {
		b.Errorf("got %q, %v; want ErrNoMetadata", text, err)
	}
}

func connected(b *env) {
	before := time.Now()
	r := b.open()
	b.register(r, first)
	s := r.State()
	if !s.Connected || s.Sessions != 1 || s.Since.Before(before) || s.Since.After(time.Now()) {
		b.Errorf("the state is %+v, want one session, connected since the test began", s)
	}
}

func afterClose(b *env) {
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
