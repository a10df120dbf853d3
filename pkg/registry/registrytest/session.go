package registrytest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Timeout bounds every wait, with a margin for a busy machine.
const Timeout = 60 * time.Second

// Session is a registry session for tests. Its Must methods fail the test on an error. Only the
// goroutine of the test may call its methods, except those of Registry.
type Session struct {
	registry.Registry
	t testing.TB

	mu        sync.Mutex
	states    []registry.State // guarded by mu; states that Await has not checked yet
	last      registry.State   // guarded by mu; last state that Await has checked
	newStates chan struct{}    // signaled when states grew; capacity 1
}

// Open opens a session that closes when the test ends. It sets the option OnChange and, if it is
// nil, Log.
func Open(t testing.TB, open registry.OpenFunc, options registry.Options) *Session {
	t.Helper()
	s := &Session{t: t, newStates: make(chan struct{}, 1)}
	if options.Log == nil {
		options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	options.OnChange = s.recordState
	s.mu.Lock()
	r, err := open(options)
	s.Registry = r
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.skipToCurrent()
	t.Cleanup(s.CloseSession)
	return s
}

// recordState records the current state, so that Await sees short-lived states, too.
func (s *Session) recordState() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, s.State())
	select {
	case s.newStates <- struct{}{}:
	default:
	}
}

// advanceTo advances to the first state for which cond returns true, beginning with the last
// checked state.
func (s *Session) advanceTo(cond func(registry.State) bool) (registry.State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !cond(s.last) {
		if len(s.states) == 0 {
			return registry.State{}, false
		}
		s.last, s.states = s.states[0], s.states[1:]
	}
	return s.last, true
}

// skipToCurrent makes Await begin with the current state.
func (s *Session) skipToCurrent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states, s.last = nil, s.State()
}

// Await waits for a state for which cond returns true, and returns it. It begins with the result of
// the previous Await, or with the state at the end of a later method of Session.
func (s *Session) Await(label string, cond func(registry.State) bool) registry.State {
	s.t.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	for {
		if state, ok := s.advanceTo(cond); ok {
			return state
		}
		select {
		case <-s.newStates:
		case <-timer.C:
			s.t.Fatalf("%s: not reached; state %+v", label, s.State())
		}
	}
}

// Connected is a condition for Await.
func Connected(s registry.State) bool { return s.Connected }

// MustRegister registers a URL.
func (s *Session) MustRegister(u registry.URL) {
	s.t.Helper()
	ctx, cancel := s.withTimeout()
	defer cancel()
	if err := s.Register(ctx, u); err != nil {
		s.t.Fatalf("Register(%s): %v", u, err)
	}
	s.skipToCurrent()
}

// MustUnregister unregisters a URL.
func (s *Session) MustUnregister(u registry.URL) {
	s.t.Helper()
	ctx, cancel := s.withTimeout()
	defer cancel()
	if err := s.Unregister(ctx, u); err != nil {
		s.t.Fatalf("Unregister(%s): %v", u, err)
	}
	s.skipToCurrent()
}

// CloseSession closes the session.
func (s *Session) CloseSession() {
	ctx, cancel := s.withTimeout()
	defer cancel()
	s.Close(ctx)
}

func (s *Session) withTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Timeout)
}

// Subscriber records the snapshots of a service. Only the goroutine of the test may call its
// methods.
type Subscriber struct {
	// Stop ends the subscription. The test may call it more than once.
	Stop func()

	t         testing.TB
	snapshots chan registry.Snapshot
	last      *registry.Snapshot // the last checked snapshot; nil: none
}

// NewSubscriber subscribes until the end of the test, or Stop.
func (s *Session) NewSubscriber(service registry.Service) *Subscriber {
	sub := &Subscriber{t: s.t, snapshots: make(chan registry.Snapshot, 10_000)}
	sub.Stop = sync.OnceFunc(s.Subscribe(service, func(snap registry.Snapshot) { sub.snapshots <- snap }))
	s.t.Cleanup(sub.Stop)
	return sub
}

// Await waits for a snapshot that was not checked yet and for which cond returns true, and returns
// it.
func (sub *Subscriber) Await(label string, cond func(registry.Snapshot) bool) registry.Snapshot {
	sub.t.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	for {
		select {
		case snap := <-sub.snapshots:
			sub.last = &snap
			if cond(snap) {
				return snap
			}
		case <-timer.C:
			sub.t.Fatalf("no snapshot with %s; the last: %v", label, sub.last)
		}
	}
}

// AwaitLatest waits until cond returns true for the latest snapshot, even if it was checked: a
// registry sends no snapshot if a loss is repaired before the registry detects it.
func (sub *Subscriber) AwaitLatest(label string, cond func(registry.Snapshot) bool) {
	sub.t.Helper()
	for len(sub.snapshots) > 0 {
		snap := <-sub.snapshots
		sub.last = &snap
	}
	if sub.last == nil || !cond(*sub.last) {
		sub.Await(label, cond)
	}
}

// Never fails the test for each unchecked snapshot for which cond returns true.
func (sub *Subscriber) Never(label string, cond func(registry.Snapshot) bool) {
	sub.t.Helper()
	for len(sub.snapshots) > 0 {
		snap := <-sub.snapshots
		sub.last = &snap
		if cond(snap) {
			sub.t.Errorf("unexpected snapshot %s: %v", label, snap)
		}
	}
}

// Any is a condition that every snapshot meets.
func Any(registry.Snapshot) bool { return true }

// Empty is the condition that no provider exists.
func Empty(snap registry.Snapshot) bool { return len(snap.Providers) == 0 }

// At returns the condition that the providers are at these addresses.
func At(addresses ...string) func(registry.Snapshot) bool {
	want := slices.Sorted(slices.Values(addresses))
	return func(snap registry.Snapshot) bool {
		var found []string
		for _, u := range snap.Providers {
			found = append(found, u.Address())
		}
		slices.Sort(found)
		return slices.Equal(found, want)
	}
}

// Parse parses a URL.
func Parse(t testing.TB, text string) registry.URL {
	t.Helper()
	u, err := registry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Provider returns the URL of a provider of an interface. parameters, each as "key=value", are
// added to the usual ones.
func Provider(t testing.TB, name, address string, parameters ...string) registry.URL {
	t.Helper()
	return Parse(t, "dubbo://"+address+"/"+name+"?"+strings.Join(append(parameters, "interface="+name, "side=provider"), "&"))
}
