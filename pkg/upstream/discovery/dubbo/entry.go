package dubbo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// registration reconciles one registration in a registry: a provider URL, a consumer URL, or an
// instance of an application. While there is work, its goroutine takes one step at a time:
//
//	desired is not registered  register it, with retries
//	stale is not empty         unregister each element
//
// A replacement is therefore registered before its predecessor is unregistered.
type registration struct {
	session  *session       // immutable
	presence *localInstance // immutable; the owner of an instance; nil for a URL

	// Guarded by Discovery.mu.
	desired    registrable   // nil: nothing
	before     *registration // ends once desired is registered, or this registration ends; may be nil
	begun      bool          // the registry may have desired
	registered bool          // the registry has confirmed desired
	stale      []registrable
	err        error  // of the last attempt; nil: success
	busy       bool   // the goroutine runs
	ended      bool   // desired stays nil; the session is not released yet
	logged     string // last error logged; "": none since the last success
	cancel     context.CancelFunc
	turned     chan struct{} // closed and replaced on every change
}

// registrable is an entry of a registry. Its String method identifies it. The caller does not hold
// Discovery.mu during its other methods.
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
	firstPause   = time.Second
	longestPause = 30 * time.Second
	unregisterIn = 5 * time.Second
)

// newEntry returns a registration without a desired entry. The caller holds mu, as for all
// functions for registrations except reconcileRegistration, do and the methods of registrable.
func (h *Discovery) newEntry(s *session) *registration {
	s.uses++
	return &registration{session: s, turned: make(chan struct{})}
}

// set changes the desired URL; nil: none.
func (h *Discovery) set(e *registration, want *registry.URL) {
	if want == nil {
		h.setMatter(e, nil)
		return
	}
	h.setMatter(e, registrableURL{*want})
}

// setMatter changes the desired entry; nil: none.
func (h *Discovery) setMatter(e *registration, want registrable) {
	if want != nil && e.desired != nil && want.String() == e.desired.String() {
		return
	}
	if e.begun {
		e.stale = append(e.stale, e.desired)
	}
	e.begun, e.registered = false, false
	if want != nil {
		text := want.String() // the Registry accepts Register for an existing entry
		e.stale = slices.DeleteFunc(e.stale, func(m registrable) bool { return m.String() == text })
	}
	e.desired, e.err = want, nil
	if e.cancel != nil {
		e.cancel()
	}
	h.work(e)
}

// end unregisters everything. The caller no longer uses e.
func (h *Discovery) end(e *registration) {
	h.set(e, nil)
	h.endBefore(e)
	e.ended = true
	h.work(e)
}

// endBefore ends the registration that e replaces.
func (h *Discovery) endBefore(e *registration) {
	if before := e.before; before != nil {
		e.before = nil
		h.end(before)
	}
}

// work starts the goroutine of e if it is needed and does not run.
func (h *Discovery) work(e *registration) {
	e.turn()
	if e.busy || !h.running || e.session.registry == nil {
		if e.ended && !e.busy {
			h.release(e)
		}
		return
	}
	e.busy = true
	h.tasks.Go(func() { h.reconcileRegistration(e) })
}

// release gives up the session of a registration that has ended.
func (h *Discovery) release(e *registration) {
	e.ended = false
	h.leave(e.session)
	h.forgetInstance(e)
}

func (e *registration) turn() {
	close(e.turned)
	e.turned = make(chan struct{})
}

// settled reports whether the registry is in the desired state.
func (e *registration) settled() bool {
	if e.desired == nil {
		return len(e.stale) == 0
	}
	return e.registered
}

// step is one action on the registry.
type step struct {
	what     registrable
	register bool
}

// next returns the next step; false: no step is needed.
func (e *registration) next() (step, bool) {
	switch {
	case e.desired != nil && !e.registered:
		return step{e.desired, true}, true
	case len(e.stale) > 0:
		return step{e.stale[0], false}, true
	}
	return step{}, false
}

// reconcileRegistration takes steps until none is needed.
func (h *Discovery) reconcileRegistration(e *registration) {
	pause := firstPause
	for {
		h.mu.Lock()
		s, ok := e.next()
		if !ok || h.life.Err() != nil {
			e.busy = false
			e.turn()
			if e.ended {
				h.release(e)
			}
			h.mu.Unlock()
			return
		}
		e.begun = e.begun || s.register
		ctx, cancel := context.WithCancel(h.life)
		e.cancel = cancel
		h.mu.Unlock()

		err := h.do(ctx, e, s)
		cancel()

		h.mu.Lock()
		e.cancel = nil
		wait := e.note(s, err)
		if e.registered {
			h.endBefore(e)
		}
		h.logStep(e, s, err, wait)
		turned := e.turned
		h.mu.Unlock()
		if !wait {
			pause = firstPause
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, longestPause)
		case <-turned:
			pause = firstPause
		case <-h.life.Done():
		}
		timer.Stop()
	}
}

func (h *Discovery) do(ctx context.Context, e *registration, s step) error {
	if s.register {
		return s.what.register(ctx, e.session.registry)
	}
	ctx, cancel := context.WithTimeout(ctx, unregisterIn)
	defer cancel()
	return s.what.unregister(ctx, e.session.registry)
}

// logStep logs a rejected step once per error, and the success after it. mu is held.
func (h *Discovery) logStep(e *registration, s step, err error, again bool) {
	switch {
	case h.life.Err() != nil:
	case again && e.logged != err.Error():
		e.logged = err.Error()
		h.o.Log.Warn("registry rejected a URL; retrying", logRegistry, e.session.key.String(), logURL, redact(s.what), logError, err)
	case err == nil && s.register && e.logged != "":
		e.logged = ""
		h.o.Log.Info("registry accepted a URL", logRegistry, e.session.key.String(), logURL, redact(s.what))
	}
}

// note records the result of a step, and reports whether to retry it after a backoff.
func (e *registration) note(s step, err error) (wait bool) {
	text := s.what.String()
	current := e.desired != nil && e.desired.String() == text
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
	e.turn()
	return wait
}
