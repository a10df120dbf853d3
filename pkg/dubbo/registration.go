package dubbo

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// registration reconciles one registration in a registry: a provider URL, a consumer URL, or an
// instance of an application. While there is work, its goroutine takes one step at a time:
//
//	desiredEntry is not registered  register it, with retries
//	staleEntries is not empty       unregister each element
//
// A new desired entry is therefore registered before the old one is unregistered. The methods are
// safe for concurrent use. With mu held, they call only tasks and sessions. They call onRegistered
// and onEnd without mu.
type registration struct {
	session *session // immutable; released when the registration has ended
	registrationOptions

	mu               mutex[rank2]
	desiredEntry     registrable        // guarded by mu, like all fields below; nil: no entry
	version          int                // how often desiredEntry was set
	confirmedVersion int                // highest version that the registry has confirmed
	predecessor      *registration      // the registration that this one replaces; nil: none
	mayBeRegistered  bool               // the registry may have desiredEntry
	registered       bool               // the registry has confirmed desiredEntry
	staleEntries     []registrable      // previous entries to unregister
	err              error              // of the last attempt; nil: success, or no attempt since desiredEntry was set
	reconciling      bool               // the goroutine runs
	ending           bool               // end was called: release the session when staleEntries is empty
	ended            bool               // the session was released
	loggedError      string             // last error logged; "": none since the last success
	cancel           context.CancelFunc // cancels the current step; nil: no step runs
	changed          chan struct{}      // closed and replaced on every change
}

// registrationOptions are immutable.
type registrationOptions struct {
	tasks *tasks
	log   *slog.Logger

	// The goroutine of the registration calls these functions, which may be nil.
	onRegistered func(*registration) // after a step, if the registry has the desired entry
	onEnd        func(*registration) // when the registration has ended after a call of end
}

// registrable is an entry of a registry. Its String method identifies it: entries with equal texts
// are the same entry. The caller of register and unregister holds no lock of this package.
type registrable interface {
	fmt.Stringer
	register(ctx context.Context, r registry.Registry) error
	unregister(ctx context.Context, r registry.Registry) error
}

// registrableURL registers a URL.
type registrableURL struct{ registry.URL }

func (u registrableURL) register(ctx context.Context, r registry.Registry) error {
	return r.Register(ctx, u.URL)
}

func (u registrableURL) unregister(ctx context.Context, r registry.Registry) error {
	return r.Unregister(ctx, u.URL)
}

// Bounds of the backoff after a failed attempt, and the timeout to unregister.
const (
	minBackoff        = time.Second
	maxBackoff        = 30 * time.Second
	unregisterTimeout = 5 * time.Second
)

// newRegistration returns a registration without a desired entry. The registration ends
// predecessor, which may be nil, when its own entry is registered or when it ends itself.
func newRegistration(s *session, predecessor *registration, o registrationOptions) *registration {
	return &registration{session: s.acquire(), registrationOptions: o, predecessor: predecessor, changed: make(chan struct{})}
}

// setURL changes the desired entry to a URL.
func (reg *registration) setURL(u registry.URL) { reg.set(registrableURL{u}) }

// set changes the desired entry; nil: none.
func (reg *registration) set(entry registrable) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.setLocked(entry)
}

func (reg *registration) setLocked(entry registrable) {
	if entry != nil && reg.desiredEntry != nil && entry.String() == reg.desiredEntry.String() {
		return
	}
	if reg.cancel != nil && (entry != nil || reg.desiredEntry != nil) { // desiredEntry changes: the current step is obsolete
		reg.cancel()
	}
	if reg.mayBeRegistered {
		reg.staleEntries = append(reg.staleEntries, reg.desiredEntry)
	}
	reg.mayBeRegistered, reg.registered = false, false
	if entry != nil {
		text := entry.String() // a stale entry may stay registered: Registry.Register accepts it
		reg.staleEntries = slices.DeleteFunc(reg.staleEntries, func(r registrable) bool { return r.String() == text })
	}
	reg.version++
	reg.desiredEntry, reg.err = entry, nil
	reg.signalChange()
	reg.startLocked()
}

// start starts the goroutine of reg, if the session is open and the goroutine does not run.
func (reg *registration) start() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.startLocked()
}

func (reg *registration) startLocked() {
	if reg.reconciling {
		return
	}
	if r := reg.session.openRegistry(); r != nil {
		reg.reconciling = reg.tasks.run(func(ctx context.Context) { reg.reconcile(ctx, r) })
	}
}

// end makes the registration unregister everything and then release the session. It reports whether
// the registration has already ended. Otherwise the goroutine calls onEnd when the registration has
// ended, unless Discovery ends first.
func (reg *registration) end() (ended bool) {
	reg.endPredecessor()
	reg.mu.Lock()
	reg.setLocked(nil)
	reg.ending = true
	reg.startLocked()
	ended = reg.endLocked()
	reg.mu.Unlock()
	if ended {
		reg.session.release()
	}
	return ended
}

// endLocked marks an ending registration without a goroutine as ended, and reports whether it did.
// The caller then releases the session, without mu.
func (reg *registration) endLocked() bool {
	if !reg.ending || reg.ended || reg.reconciling {
		return false
	}
	reg.ended = true
	return true
}

// revive reverts end. It reports false if the registration has ended.
func (reg *registration) revive() bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.ended {
		return false
	}
	reg.ending = false
	return true
}

// endPredecessor ends the registration that reg replaces.
func (reg *registration) endPredecessor() {
	reg.mu.Lock()
	predecessor := reg.predecessor
	reg.predecessor = nil
	reg.mu.Unlock()
	if predecessor != nil {
		predecessor.end()
	}
}

// unregisterAll makes reg and its predecessors unregister their entries, without ending them. It
// returns those whose entries the registry may have.
func (reg *registration) unregisterAll() (registrations []*registration) {
	for reg != nil {
		reg.mu.Lock()
		reg.setLocked(nil)
		if len(reg.staleEntries) > 0 {
			registrations = append(registrations, reg)
		}
		next := reg.predecessor
		reg.mu.Unlock()
		reg = next
	}
	return registrations
}

func (reg *registration) signalChange() {
	close(reg.changed)
	reg.changed = make(chan struct{})
}

// isDesired reports whether there is a desired entry.
func (reg *registration) isDesired() bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.desiredEntry != nil
}

// isEnding reports whether end was called and not reverted.
func (reg *registration) isEnding() bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.ending
}

// isRegistered reports whether there is a desired entry, and the registry has confirmed it.
func (reg *registration) isRegistered() bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.registered
}

// errorText returns why the registry does not have the desired entry, or "" if there is no error.
func (reg *registration) errorText() string {
	if text := reg.session.errorText(); text != "" {
		return text
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.err == nil {
		return ""
	}
	return reg.err.Error()
}

// isReconciled reports whether the registry is in the desired state. The caller holds mu.
func (reg *registration) isReconciled() bool {
	if reg.desiredEntry == nil {
		return len(reg.staleEntries) == 0
	}
	return reg.registered
}

// step is one action on the registry.
type step struct {
	target   registrable
	register bool
	version  int // version of target; only if register is true
}

// nextStep returns the next step; false: no step is needed. The caller holds mu.
func (reg *registration) nextStep() (step, bool) {
	switch {
	case reg.desiredEntry != nil && !reg.registered:
		return step{reg.desiredEntry, true, reg.version}, true
	case len(reg.staleEntries) > 0:
		return step{target: reg.staleEntries[0]}, true
	}
	return step{}, false
}

// reconcile takes steps until none is needed. It runs in the goroutine of reg.
func (reg *registration) reconcile(ctx context.Context, r registry.Registry) {
	backoff := minBackoff
	for {
		reg.mu.Lock()
		s, ok := reg.nextStep()
		if !ok || ctx.Err() != nil {
			reg.stopLocked()
			return
		}
		reg.mayBeRegistered = reg.mayBeRegistered || s.register
		stepCtx, cancel := context.WithCancel(ctx)
		reg.cancel = cancel
		reg.mu.Unlock()

		err := s.run(stepCtx, r)
		cancel()

		reg.mu.Lock()
		reg.cancel = nil
		retry := reg.recordResult(s, err)
		if ctx.Err() == nil {
			reg.logStep(s, err, retry)
		}
		registered, changed := reg.registered, reg.changed
		reg.mu.Unlock()
		if registered {
			reg.endPredecessor()
			if reg.onRegistered != nil {
				reg.onRegistered(reg)
			}
		}
		if !retry {
			backoff = minBackoff
			continue
		}
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
			backoff = min(2*backoff, maxBackoff)
		case <-changed:
			backoff = minBackoff
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// stopLocked records that the goroutine stops, and ends an ending registration. It unlocks mu.
func (reg *registration) stopLocked() {
	reg.reconciling = false
	reg.signalChange()
	ended := reg.endLocked()
	reg.mu.Unlock()
	if !ended {
		return
	}
	reg.session.release()
	if reg.onEnd != nil {
		reg.onEnd(reg)
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
func (reg *registration) logStep(s step, err error, retry bool) {
	switch {
	case retry && reg.loggedError != err.Error():
		reg.loggedError = err.Error()
		reg.log.Warn("registry rejected a URL; retrying", logRegistry, reg.session.key.String(), logURL, redact(s.target), logError, err)
	case err == nil && s.register && reg.loggedError != "":
		reg.loggedError = ""
		reg.log.Info("registry accepted a URL", logRegistry, reg.session.key.String(), logURL, redact(s.target))
	}
}

// recordResult records the result of a step, and reports whether to retry it after a backoff. The
// caller holds mu.
func (reg *registration) recordResult(s step, err error) (retry bool) {
	text := s.target.String()
	current := reg.desiredEntry != nil && reg.desiredEntry.String() == text
	if s.register && err == nil {
		reg.confirmedVersion = max(reg.confirmedVersion, s.version)
	}
	switch {
	case s.register && current:
		if reg.err = err; err == nil {
			reg.registered = true
		}
		retry = err != nil
	case !s.register:
		// A failed unregistration is not retried: after Unregister, the Registry does not register
		// the entry in another session.
		reg.staleEntries = slices.DeleteFunc(reg.staleEntries, func(r registrable) bool { return r.String() == text })
		if reg.desiredEntry == nil {
			reg.err = err
		}
		if current { // target became desired again during the step
			reg.registered = false
		}
	}
	reg.signalChange()
	return retry
}
