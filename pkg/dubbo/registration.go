package dubbo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
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
	instance *localInstance // immutable; the owner of an instance; nil for a URL

	// Guarded by Discovery.mu.
	desired         registrable   // nil: nothing
	predecessor     *registration // ends once desired is registered, or this registration ends; may be nil
	mayBeRegistered bool          // the registry may have desired
	registered      bool          // the registry has confirmed desired
	stale           []registrable
	err             error  // of the last attempt; nil: success
	reconciling     bool   // the goroutine runs
	releasePending  bool   // desired stays nil; the session is not released yet
	logged          string // last error logged; "": none since the last success
	cancel          context.CancelFunc
	changed         chan struct{} // closed and replaced on every change
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
	minBackoff        = time.Second
	maxBackoff        = 30 * time.Second
	unregisterTimeout = 5 * time.Second
)

// newRegistration returns a registration without a desired entry. The caller holds mu, as for all
// functions for registrations except reconcileRegistration, do and the methods of registrable.
func (h *Discovery) newRegistration(s *session) *registration {
	s.uses++
	return &registration{session: s, changed: make(chan struct{})}
}

// set changes the desired URL; nil: none.
func (h *Discovery) set(e *registration, want *registry.URL) {
	if want == nil {
		h.setDesired(e, nil)
		return
	}
	h.setDesired(e, registrableURL{*want})
}

// setDesired changes the desired entry; nil: none.
func (h *Discovery) setDesired(e *registration, want registrable) {
	if want != nil && e.desired != nil && want.String() == e.desired.String() {
		return
	}
	if e.mayBeRegistered {
		e.stale = append(e.stale, e.desired)
	}
	e.mayBeRegistered, e.registered = false, false
	if want != nil {
		text := want.String() // the Registry accepts Register for an existing entry
		e.stale = slices.DeleteFunc(e.stale, func(m registrable) bool { return m.String() == text })
	}
	e.desired, e.err = want, nil
	if e.cancel != nil {
		e.cancel()
	}
	h.startReconcile(e)
}

// endRegistration unregisters everything. The caller no longer uses e.
func (h *Discovery) endRegistration(e *registration) {
	h.set(e, nil)
	h.endPredecessor(e)
	e.releasePending = true
	h.startReconcile(e)
}

// endPredecessor ends the registration that e replaces.
func (h *Discovery) endPredecessor(e *registration) {
	if before := e.predecessor; before != nil {
		e.predecessor = nil
		h.endRegistration(before)
	}
}

// endReplaced ends what e replaces, now that the registry has e: its predecessor and, if e is the
// current registration of an instance, the predecessors of the URLs of members that are registered
// only by the instance.
func (h *Discovery) endReplaced(e *registration) {
	h.endPredecessor(e)
	if e.instance == nil || e.instance.registration != e {
		return
	}
	for _, p := range e.instance.members {
		if p.urlRegistration.desired == nil {
			h.endPredecessor(p.urlRegistration)
		}
	}
}

// startReconcile starts the goroutine of e if it is needed and does not run.
func (h *Discovery) startReconcile(e *registration) {
	e.signalChange()
	if e.reconciling || !h.running || e.session.registry == nil {
		if e.releasePending && !e.reconciling {
			h.releaseRegistration(e)
		}
		return
	}
	e.reconciling = true
	h.tasks.Go(func() { h.reconcileRegistration(e) })
}

// releaseRegistration gives up the session of a registration that has ended.
func (h *Discovery) releaseRegistration(e *registration) {
	e.releasePending = false
	h.releaseSession(e.session)
	h.dropInstance(e)
}

func (e *registration) signalChange() {
	close(e.changed)
	e.changed = make(chan struct{})
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
	target   registrable
	register bool
}

// nextStep returns the next step; false: no step is needed.
func (e *registration) nextStep() (step, bool) {
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
	pause := minBackoff
	for {
		h.mu.Lock()
		s, ok := e.nextStep()
		if !ok || h.runCtx.Err() != nil {
			e.reconciling = false
			e.signalChange()
			if e.releasePending {
				h.releaseRegistration(e)
			}
			h.mu.Unlock()
			return
		}
		e.mayBeRegistered = e.mayBeRegistered || s.register
		ctx, cancel := context.WithCancel(h.runCtx)
		e.cancel = cancel
		h.mu.Unlock()

		err := h.runStep(ctx, e, s)
		cancel()

		h.mu.Lock()
		e.cancel = nil
		wait := e.note(s, err)
		if e.registered {
			h.endReplaced(e)
		}
		h.logStep(e, s, err, wait)
		turned := e.changed
		h.mu.Unlock()
		if !wait {
			pause = minBackoff
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, maxBackoff)
		case <-turned:
			pause = minBackoff
		case <-h.runCtx.Done():
		}
		timer.Stop()
	}
}

func (h *Discovery) runStep(ctx context.Context, e *registration, s step) error {
	if s.register {
		return s.target.register(ctx, e.session.registry)
	}
	ctx, cancel := context.WithTimeout(ctx, unregisterTimeout)
	defer cancel()
	return s.target.unregister(ctx, e.session.registry)
}

// logStep logs a rejected step once per error, and the success after it. mu is held.
func (h *Discovery) logStep(e *registration, s step, err error, again bool) {
	switch {
	case h.runCtx.Err() != nil:
	case again && e.logged != err.Error():
		e.logged = err.Error()
		h.options.Log.Warn("registry rejected a URL; retrying", logRegistry, e.session.key.String(), logURL, redact(s.target), logError, err)
	case err == nil && s.register && e.logged != "":
		e.logged = ""
		h.options.Log.Info("registry accepted a URL", logRegistry, e.session.key.String(), logURL, redact(s.target))
	}
}

// note records the result of a step, and reports whether to retry it after a backoff.
func (e *registration) note(s step, err error) (wait bool) {
	text := s.target.String()
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
	e.signalChange()
	return wait
}
