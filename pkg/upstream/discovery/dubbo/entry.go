package dubbo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// entry keeps a registry as it is to be in one matter: a provider of a service, one who
// calls it, or an instance of an application. While there is something to be done a
// goroutine of its own does it, one thing after the other:
//
//	want is not there   want.register, again after a while if it fails
//	old is not empty    unregister each
//
// So what replaces another is there before that is taken back.
type entry struct {
	session  *session  // immutable
	presence *presence // immutable; whose instance it is; nil: it is of a URL

	// All guarded by Hub.mu.
	want   matter // nil: nothing
	before *entry // ends once want is there, or is nothing; nil: there is none
	begun  bool   // the registry may have want
	there  bool   // the registry said that it has want
	old    []matter
	err    error  // of the last attempt; nil: it went well
	busy   bool   // the goroutine runs
	ended  bool   // want is nil, for good
	logged string // the error that was logged last; "": none since it went well
	cancel context.CancelFunc
	turned chan struct{} // closed when any of this changes
}

// matter is what a registry is to have. Its text tells it from others. The Hub's mu is not
// held when its methods are called.
type matter interface {
	fmt.Stringer
	register(ctx context.Context, r registry.Registry) error
	unregister(ctx context.Context, r registry.Registry) error
}

// urlMatter is a URL that is to be registered.
type urlMatter struct{ registry.URL }

func (m urlMatter) register(ctx context.Context, r registry.Registry) error {
	return r.Register(ctx, m.URL)
}

func (m urlMatter) unregister(ctx context.Context, r registry.Registry) error {
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
func (h *Hub) newEntry(s *session) *entry {
	s.uses++
	return &entry{session: s, turned: make(chan struct{})}
}

// set changes the URL that is wanted; nil: nothing.
func (h *Hub) set(e *entry, want *registry.URL) {
	if want == nil {
		h.setMatter(e, nil)
		return
	}
	h.setMatter(e, urlMatter{*want})
}

// setMatter changes what is wanted; nil: nothing.
func (h *Hub) setMatter(e *entry, want matter) {
	if want != nil && e.want != nil && want.String() == e.want.String() {
		return
	}
	if e.begun {
		e.old = append(e.old, e.want)
	}
	e.begun, e.there = false, false
	if want != nil {
		text := want.String() // Register does no harm to what is there
		e.old = slices.DeleteFunc(e.old, func(m matter) bool { return m.String() == text })
	}
	e.want, e.err = want, nil
	if e.cancel != nil {
		e.cancel()
	}
	h.work(e)
}

// end takes everything back; the entry is used no longer.
func (h *Hub) end(e *entry) {
	h.set(e, nil)
	h.endBefore(e)
	e.ended = true
	h.work(e)
}

// endBefore ends the entry that e replaces.
func (h *Hub) endBefore(e *entry) {
	if before := e.before; before != nil {
		e.before = nil
		h.end(before)
	}
}

// work starts the goroutine if there is something to be done.
func (h *Hub) work(e *entry) {
	e.turn()
	if e.busy || !h.running || e.session.registry == nil {
		if e.ended && !e.busy {
			h.release(e)
		}
		return
	}
	e.busy = true
	h.tasks.Go(func() { h.keep(e) })
}

// release gives back the session of an entry that has ended.
func (h *Hub) release(e *entry) {
	e.ended = false
	h.leave(e.session)
	h.vanish(e)
}

func (e *entry) turn() {
	close(e.turned)
	e.turned = make(chan struct{})
}

// settled reports whether the registry is as it is to be.
func (e *entry) settled() bool {
	if e.want == nil {
		return len(e.old) == 0
	}
	return e.there
}

// step is a thing to be done.
type step struct {
	what     matter
	register bool
}

// next returns what is to be done; false: nothing.
func (e *entry) next() (step, bool) {
	switch {
	case e.want != nil && !e.there:
		return step{e.want, true}, true
	case len(e.old) > 0:
		return step{e.old[0], false}, true
	}
	return step{}, false
}

// keep does what is to be done, until nothing is.
func (h *Hub) keep(e *entry) {
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
		if e.there {
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

func (h *Hub) do(ctx context.Context, e *entry, s step) error {
	if s.register {
		return s.what.register(ctx, e.session.registry)
	}
	ctx, cancel := context.WithTimeout(ctx, unregisterIn)
	defer cancel()
	return s.what.unregister(ctx, e.session.registry)
}

// logStep tells of what is refused, once, and of what was and is there now. mu is held.
func (h *Hub) logStep(e *entry, s step, err error, again bool) {
	switch {
	case h.life.Err() != nil:
	case again && e.logged != err.Error():
		e.logged = err.Error()
		h.o.Log.Warn("a registry does not take a URL, which is tried again", logRegistry, e.session.key.String(), logURL, shown(s.what), logError, err)
	case err == nil && s.register && e.logged != "":
		e.logged = ""
		h.o.Log.Info("a registry has taken a URL", logRegistry, e.session.key.String(), logURL, shown(s.what))
	}
}

// note takes in what became of a step, and returns whether it is to be tried again after
// a while.
func (e *entry) note(s step, err error) (wait bool) {
	text := s.what.String()
	current := e.want != nil && e.want.String() == text
	switch {
	case s.register && current:
		if e.err = err; err == nil {
			e.there = true
		}
		wait = err != nil
	case !s.register:
		// An error, too, leaves nothing to be done: the registry has no such wish any more.
		e.old = slices.DeleteFunc(e.old, func(m matter) bool { return m.String() == text })
		if e.want == nil {
			e.err = err
		}
		if current { // it was wanted again while it was taken back
			e.there = false
		}
	}
	e.turn()
	return wait
}
