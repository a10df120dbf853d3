package dubbo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// registration keeps a registry as it is to be in one matter: a provider of a service, one who
// calls it, or an instance of an application. While there is something to be done a
// goroutine of its own does it, one thing after the other:
//
//	want is not there   want.register, again after a while if it fails
//	old is not empty    unregister each
//
// So what replaces another is there before that is taken back.
type registration struct {
	session  *session       // immutable
	presence *localInstance // immutable; whose instance it is; nil: it is of a URL

	// All guarded by Hub.mu.
	desired    registrable   // nil: nothing
	before     *registration // ends once want is there, or is nothing; nil: there is none
	begun      bool          // the registry may have want
	registered bool          // the registry said that it has want
	stale      []registrable
	err        error  // of the last attempt; nil: it went well
	busy       bool   // the goroutine runs
	ended      bool   // want is nil, for good
	logged     string // the error that was logged last; "": none since it went well
	cancel     context.CancelFunc
	turned     chan struct{} // closed when any of this changes
}

// registrable is what a registry is to have. Its text tells it from others. The Hub's mu is not
// held when its methods are called.
type registrable interface {
	fmt.Stringer
	register(ctx context.Context, r registry.Registry) error
	unregister(ctx context.Context, r registry.Registry) error
}

// registrableURL is a URL that is to be registered.
type registrableURL struct{ registry.URL }

func (m registrableURL) register(ctx context.Context, r registry.Registry) error {
	return r.Register(ctx, m.URL)
}

func (m registrableURL) unregister(ctx context.Context, r registry.Registry) error {
	return r.Unregister(ctx, m.URL)
}

// How long attempts wait after one that failed, and how long taking back may take.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	unregisterIn = 5 * time.Second
)

// newEntry returns an entry that wants nothing yet. It is called with mu held, as all
// functions of entries but keep.
func (h *Discovery) newEntry(s *session) *registration {
	s.uses++
	return &registration{session: s, turned: make(chan struct{})}
}

// set changes the URL that is wanted; nil: nothing.
func (h *Discovery) set(e *registration, want *registry.URL) {
	if want == nil {
		h.setMatter(e, nil)
		return
	}
	h.setMatter(e, registrableURL{*want})
}

// setMatter changes what is wanted; nil: nothing.
func (h *Discovery) setMatter(e *registration, want registrable) {
	if want != nil && e.desired != nil && want.String() == e.desired.String() {
		return
	}
	if e.begun {
		e.stale = append(e.stale, e.desired)
	}
	e.begun, e.registered = false, false
	if want != nil {
		text := want.String() // Register does no harm to what is there
		e.stale = slices.DeleteFunc(e.stale, func(m registrable) bool { return m.String() == text })
	}
	e.desired, e.err = want, nil
	if e.cancel != nil {
		e.cancel()
	}
	h.work(e)
}

// end takes everything back; the entry is used no longer.
func (h *Discovery) end(e *registration) {
	h.set(e, nil)
	h.endBefore(e)
	e.ended = true
	h.work(e)
}

// endBefore ends the entry that e replaces.
func (h *Discovery) endBefore(e *registration) {
	if before := e.before; before != nil {
		e.before = nil
		h.end(before)
	}
}

// work starts the goroutine if there is something to be done.
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

// release gives back the session of an entry that has ended.
func (h *Discovery) release(e *registration) {
	e.ended = false
	h.leave(e.session)
	h.forgetInstance(e)
}

func (e *registration) turn() {
	close(e.turned)
	e.turned = make(chan struct{})
}

// settled reports whether the registry is as it is to be.
func (e *registration) settled() bool {
	if e.desired == nil {
		return len(e.stale) == 0
	}
	return e.registered
}

// step is a thing to be done.
type step struct {
	what     registrable
	register bool
}

// next returns what is to be done; false: nothing.
func (e *registration) next() (step, bool) {
	switch {
	case e.desired != nil && !e.registered:
		return step{e.desired, true}, true
	case len(e.stale) > 0:
		return step{e.stale[0], false}, true
	}
	return step{}, false
}

// reconcileRegistration does what is to be done, until nothing is.
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

// logStep tells of what is refused, once, and of what was and is there now. mu is held.
func (h *Discovery) logStep(e *registration, s step, err error, again bool) {
	switch {
	case h.life.Err() != nil:
	case again && e.logged != err.Error():
		e.logged = err.Error()
		h.o.Log.Warn("a registry does not take a URL, which is tried again", logRegistry, e.session.key.String(), logURL, redact(s.what), logError, err)
	case err == nil && s.register && e.logged != "":
		e.logged = ""
		h.o.Log.Info("a registry has taken a URL", logRegistry, e.session.key.String(), logURL, redact(s.what))
	}
}

// note takes in what became of a step, and returns whether it is to be tried again after
// a while.
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
		// An error, too, leaves nothing to be done: the registry has no such wish any more.
		e.stale = slices.DeleteFunc(e.stale, func(m registrable) bool { return m.String() == text })
		if e.desired == nil {
			e.err = err
		}
		if current { // it was wanted again while it was taken back
			e.registered = false
		}
	}
	e.turn()
	return wait
}
