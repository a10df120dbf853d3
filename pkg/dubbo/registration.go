package dubbo

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// registration reconciles one registration in a registry: a provider URL, a consumer URL, or an
// instance of an application. While there is work, its goroutine takes one step at a time:
//
//	desired is not registered  register it, with retries
//	stale is not empty         unregister each element
//
// A replacement is therefore registered before its predecessor is unregistered. The methods are
// safe for concurrent use. They call only tasks and sessions with mu held, and the functions of
// registrationOptions without it.
type registration struct {
	session *session // immutable; end gives up the reference
	registrationOptions

	mu              sync.Mutex
	desired         registrable   // guarded by mu, like all fields below; nil: nothing
	version         int           // number of changes of desired
	confirmed       int           // highest version that the registry has confirmed
	predecessor     *registration // ends once desired is registered, or this registration ends; may be nil
	mayBeRegistered bool          // the registry may have desired
	registered      bool          // the registry has confirmed desired
	stale           []registrable
	err             error  // of the last attempt; nil: success
	reconciling     bool   // the goroutine runs
	ending          bool   // desired stays nil; the session is released when nothing is stale
	ended           bool   // the session was released
	logged          string // last error logged; "": none since the last success
	cancel          context.CancelFunc
	changed         chan struct{} // closed and replaced on every change
}

// registrationOptions are immutable.
type registrationOptions struct {
	tasks *tasks
	log   *slog.Logger

	// The goroutine of the registration calls these functions, which may be nil.
	onRegistered func(*registration) // the registry has confirmed a desired entry
	onEnd        func(*registration) // the registration has ended
}

// registrable is an entry of a registry. Its String method identifies it. The caller of its other
// methods holds no lock.
type registrable interface {
	fmt.Stringer
	register(ctx context.Context, r registry.Registry) error
	unregister(ctx context.Context, r registry.Registry) error
}

// registrableURL registers a URL.
type registrableURL struct{ registry.URL }

func (m registrableURL) register(ctx context.Context, r registry.Registry) error {
	return r.Register(ctx, m.URL)
}

func (m registrableURL) unregister(ctx context.Context, r registry.Registry) error {
	return r.Unregister(ctx, m.URL)
}

// Bounds of the backoff after a failed attempt, and the timeout to unregister.
const (
	minBackoff        = time.Second
	maxBackoff        = 30 * time.Second
	unregisterTimeout = 5 * time.Second
)

// newRegistration returns a registration without a desired entry. It takes over predecessor, which
// may be nil.
func newRegistration(s *session, predecessor *registration, o registrationOptions) *registration {
	return &registration{session: s.acquire(), registrationOptions: o, predecessor: predecessor, changed: make(chan struct{})}
}

// setURL changes the desired entry to a URL.
func (e *registration) setURL(u registry.URL) { e.set(registrableURL{u}) }

// set changes the desired entry; nil: none.
func (e *registration) set(want registrable) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setLocked(want)
}

func (e *registration) setLocked(want registrable) {
	if want != nil && e.desired != nil && want.String() == e.desired.String() {
		return
	}
	if e.cancel != nil && (want != nil || e.desired != nil) { // else the current step is needed
		e.cancel()
	}
	if e.mayBeRegistered {
		e.stale = append(e.stale, e.desired)
	}
	e.mayBeRegistered, e.registered = false, false
	if want != nil {
		text := want.String() // the Registry accepts Register for an existing entry
		e.stale = slices.DeleteFunc(e.stale, func(m registrable) bool { return m.String() == text })
	}
	e.version++
	e.desired, e.err = want, nil
	e.signalChange()
	e.startLocked()
}

// start starts the goroutine of e, if the session is open and it does not run.
func (e *registration) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.startLocked()
}

func (e *registration) startLocked() {
	if e.reconciling {
		return
	}
	if r := e.session.open(); r != nil {
		e.reconciling = e.tasks.run(func(ctx context.Context) { e.reconcile(ctx, r) })
	}
}

// end unregisters everything, and then releases the session. It reports whether that is already
// done; otherwise, onEnd follows, unless Discovery ends first.
func (e *registration) end() (ended bool) {
	e.endPredecessor()
	e.mu.Lock()
	e.setLocked(nil)
	e.ending = true
	e.startLocked()
	ended = e.endLocked()
	e.mu.Unlock()
	if ended {
		e.session.release()
	}
	return ended
}

// endLocked marks an ending registration without a goroutine as ended, and reports whether it did. The
// caller then releases the session, without mu.
func (e *registration) endLocked() bool {
	if !e.ending || e.ended || e.reconciling {
		return false
	}
	e.ended = true
	return true
}

// revive reverts end. It reports false if the registration has ended.
func (e *registration) revive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.ending = false
	return true
}

// endPredecessor ends the registration that e replaces.
func (e *registration) endPredecessor() {
	e.mu.Lock()
	before := e.predecessor
	e.predecessor = nil
	e.mu.Unlock()
	if before != nil {
		before.end()
	}
}

// unregisterAll unregisters e and its predecessors, without ending them. It returns those that the
// registry may have.
func (e *registration) unregisterAll() (some []*registration) {
	for e != nil {
		e.mu.Lock()
		e.setLocked(nil)
		if len(e.stale) > 0 {
			some = append(some, e)
		}
		next := e.predecessor
		e.mu.Unlock()
		e = next
	}
	return some
}

func (e *registration) signalChange() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// isDesired reports whether there is a desired entry.
func (e *registration) isDesired() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.desired != nil
}

// isEnding reports whether end was called and not reverted.
func (e *registration) isEnding() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ending
}

// isRegistered reports whether there is a desired entry, and the registry has confirmed it.
func (e *registration) isRegistered() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.registered
}

// errorText returns why the registry does not have the desired entry; "": it has, or nothing is
// known yet.
func (e *registration) errorText() string {
	if text := e.session.errorText(); text != "" {
		return text
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// settled reports whether the registry is in the desired state. The caller holds mu.
func (e *registration) settled() bool {
	if e.desired == nil {
		return len(e.stale) == 0
	}
	return e.registered
}

// step is one action on the registry.
type step struct {
	target   registrable
	register bool
	version  int // of target, if it is to be registered
}

// nextStep returns the next step; false: no step is needed. The caller holds mu.
func (e *registration) nextStep() (step, bool) {
	switch {
	case e.desired != nil && !e.registered:
		return step{e.desired, true, e.version}, true
	case len(e.stale) > 0:
		return step{target: e.stale[0]}, true
	}
	return step{}, false
}

// reconcile takes steps until none is needed. It is the goroutine of e.
func (e *registration) reconcile(ctx context.Context, r registry.Registry) {
	pause := minBackoff
	for {
		e.mu.Lock()
		s, ok := e.nextStep()
		if !ok || ctx.Err() != nil {
			e.stopLocked()
			return
		}
		e.mayBeRegistered = e.mayBeRegistered || s.register
		stepCtx, cancel := context.WithCancel(ctx)
		e.cancel = cancel
		e.mu.Unlock()

		err := s.run(stepCtx, r)
		cancel()

		e.mu.Lock()
		e.cancel = nil
		wait := e.note(s, err)
		if ctx.Err() == nil {
			e.logStep(s, err, wait)
		}
		registered, changed := e.registered, e.changed
		e.mu.Unlock()
		if registered {
			e.endPredecessor()
			if e.onRegistered != nil {
				e.onRegistered(e)
			}
		}
		if !wait {
			pause = minBackoff
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, maxBackoff)
		case <-changed:
			pause = minBackoff
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// stopLocked ends the goroutine, and with it an ending registration. It unlocks mu.
func (e *registration) stopLocked() {
	e.reconciling = false
	e.signalChange()
	ended := e.endLocked()
	e.mu.Unlock()
	if !ended {
		return
	}
	e.session.release()
	if e.onEnd != nil {
		e.onEnd(e)
	}
}

func (s step) run(ctx context.Context, r registry.Registry) error {
	if s.register {
		return s.target.register(ctx, r)
	}
	ctx, cancel := context.WithTimeout(ctx, unregisterTimeout)
	defer cancel()
	return s.target.unregister(ctx, r)
}

// logStep logs a rejected step once per error, and the success after it. The caller holds mu.
func (e *registration) logStep(s step, err error, again bool) {
	switch {
	case again && e.logged != err.Error():
		e.logged = err.Error()
		e.log.Warn("registry rejected a URL; retrying", logRegistry, e.session.key.String(), logURL, redact(s.target), logError, err)
	case err == nil && s.register && e.logged != "":
		e.logged = ""
		e.log.Info("registry accepted a URL", logRegistry, e.session.key.String(), logURL, redact(s.target))
	}
}

// note records the result of a step, and reports whether to retry it after a backoff. The caller
// holds mu.
func (e *registration) note(s step, err error) (wait bool) {
	text := s.target.String()
	current := e.desired != nil && e.desired.String() == text
	if s.register && err == nil {
		e.confirmed = max(e.confirmed, s.version)
	}
	switch {
	case s.register && current:
		if e.err = err; err == nil {
			e.registered = true
		}
		wait = err != nil
	case !s.register:
		// An unregistration that failed is not retried: the Registry no longer keeps the entry
		// desired.
		e.stale = slices.DeleteFunc(e.stale, func(m registrable) bool { return m.String() == text })
		if e.desired == nil {
			e.err = err
		}
		if current { // it became desired again during the step
			e.registered = false
		}
	}
	e.signalChange()
	return wait
}
