// Package dubbo owns the Dubbo services that the local application provides and calls:
// what was asked for is published to registries and followed there, and becomes clusters
// and a route table.
//
//	Publish, Subscribe, …    what the application asks for                 hub.go, request.go
//	  │
//	Hub                      what is wanted, of whom, and what is known
//	  ├ session              a registry.Registry, shared by all services   session.go
//	  ├ entry                a URL or instance in a registry, kept there   entry.go
//	  ├ presence             what is published by an instance, of Dubbo 3  presence.go
//	  ├ subscription         what a registry says, and what is believed    subscription.go
//	  ├ revision             what applications provide, of Dubbo 3         applications.go
//	  ├ plan                 what is known -> clusters and routes          plan
//	  ├ settle               one change of all that is new                 settle.go
//	  └ state file           what is wanted, for the next start            state.go
//	  │ Apply
//	the server
package dubbo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/application"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// How long calls of the API wait, and registries may take to end.
const (
	answerWait = 3 * time.Second // for a registry to answer
	closeIn    = 5 * time.Second
)

var (
	errNoTLS     = errors.New("TLS is configured, and not built")
	errEnding    = errors.New("the process is ending")
	errNotBefore = errors.New("no answer yet")
)

// Discovery publishes and follows services, and keeps clusters and routes as registries say.
// Its methods may be called at once. What is asked for before Run is done by Run, and
// waited for.
type Discovery struct {
	o     Options       // immutable
	host  string        // immutable; what is published
	wake  chan struct{} // there is something for the loop
	ended chan struct{} // closed when Run is about to return

	life    context.Context //nolint:containedctx // of Run: immutable once running, entries end with it
	tasks   sync.WaitGroup  // entries and sessions that end; nothing is added once Run waits
	turned  atomic.Bool     // a session has changed
	applied atomic.Uint64
	failed  atomic.Uint64
	unsaved atomic.Uint64 // attempts to write the state file that failed
	fetches chan struct{} // one for each fetch of metadata that has its turn

	mu        sync.Mutex
	running   bool                           // guarded by mu, as all that follows
	withdrawn bool                           // nothing is published any more
	over      bool                           // nothing is asked for any more: what was is in the state file
	last      time.Time                      // see stamp
	sessions  map[sessionKey]*session        //
	published map[identity]*publication      //
	presences map[presenceKey]*localInstance // see presence.go
	followed  map[identity]*subscription     //
	services  map[registry.Service]*service  // those with a subscription, or still in force
	dirty     map[*service]struct{}          // to be planned
	timed     map[*service]time.Time         // to be planned then
	starts    []*subscription                // to be begun
	stops     []func()                       // to be called
	notBefore time.Time                      // no change is begun before
	progress  chan struct{}                  // closed when services have come into force, or have not
	saving    saving
	revisions map[revisionKey]*revision // of applications; see applications.go
	sweepAt   int                       // how many of them there are to be before some are forgotten
}

// publication is a service that is provided here.
type publication struct {
	wish     *spec
	since    time.Time
	entry    *registration            // of its URL; wants nothing if it is published by the instance alone
	presence *localInstance           // nil: it is not published by an instance
	offer    *application.ServiceInfo // of the presence's metadata
}

// New returns a Hub that knows what the state file says: Overlay has what is to be in
// force from the beginning. An error is one of the configuration; a state file that
// cannot be read is put aside and logged.
func New(o Options) (*Discovery, error) {
	fill(&o.Config)
	for i := range o.Config.Registries {
		s := &o.Config.Registries[i]
		if o.Registries[s.Type] == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].type", i), fmt.Sprintf("%q is not known", clip(s.Type))}
		}
		if s.TLS != nil && o.TLS == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].tls", i), errNoTLS.Error()}
		}
	}
	host := hostToPublish(o.Config.Host)
	if strings.ContainsAny(host, " /?&@\n") {
		return nil, &FieldError{"host", fmt.Sprintf("%q (of the configuration, or of %s) is no address", clip(host), hostVariable)}
	}
	h := &Discovery{
		o:         o,
		host:      host,
		wake:      make(chan struct{}, 1),
		ended:     make(chan struct{}),
		sessions:  map[sessionKey]*session{},
		published: map[identity]*publication{},
		presences: map[presenceKey]*localInstance{},
		followed:  map[identity]*subscription{},
		services:  map[registry.Service]*service{},
		dirty:     map[*service]struct{}{},
		timed:     map[*service]time.Time{},
		progress:  make(chan struct{}),
		revisions: map[revisionKey]*revision{},
		fetches:   make(chan struct{}, mostFetches),
	}
	h.saving.wake = make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restore()
	return h, nil
}

// fill completes a configuration by the defaults.
func fill(c *config.DubboRegistry) {
	usual := config.DefaultDubboRegistry()
	if c.Application == "" {
		c.Application = usual.Application
	}
	if c.EmptyAfter == 0 {
		c.EmptyAfter = usual.EmptyAfter
	}
	if c.WithdrawWait == 0 {
		c.WithdrawWait = usual.WithdrawWait
	}
}

// stamp returns the time, later each time by a millisecond at least: it is in URLs, so
// that what is registered again is told from what is just being taken back. mu is held.
func (h *Discovery) stamp() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	if !now.After(h.last) {
		now = h.last.Add(time.Millisecond)
	}
	h.last = now
	return now
}

// poke has the loop look what there is to do.
func (h *Discovery) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *Discovery) sessionChanged() {
	h.turned.Store(true)
	h.poke()
}

// Run publishes, follows and applies until ctx ends, and then ends all sessions. It
// returns when all that it started has ended. It is called once. The error is always nil.
func (h *Discovery) Run(ctx context.Context) error {
	life, end := context.WithCancel(ctx)
	defer end()
	h.begin(life)
	var saver sync.WaitGroup
	saver.Go(func() { h.saver(life) })
	h.loop(life)
	saver.Wait()
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	if h.o.Config.StateFile != "" {
		h.saveNow() // also if nothing is new: it has the time of the end
	}
	close(h.ended)
	h.finish()
	return nil
}

// begin opens the sessions and starts what was asked for before.
func (h *Discovery) begin(life context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life, h.running = life, true
	for _, s := range h.sessions {
		if h.open(s); s.err != nil {
			h.o.Log.Error("a registry cannot be used", logRegistry, s.key.String(), logError, s.err)
		}
	}
	for _, p := range h.published {
		h.work(p.entry)
	}
	for _, p := range h.presences {
		h.work(p.entry)
	}
	for _, s := range h.followed {
		h.work(s.consumer)
	}
	for _, s := range h.services {
		h.markDirty(s)
	}
}

// finish ends the sessions, and waits for all that has been started.
func (h *Discovery) finish() {
	h.mu.Lock()
	h.running = false
	stops := h.stops
	h.stops = nil
	for _, s := range h.followed {
		if s.stop != nil {
			stops = append(stops, s.stop)
		}
	}
	for _, s := range h.sessions {
		if r := s.registry; r != nil {
			h.tasks.Go(func() { closeRegistry(r) })
		}
	}
	h.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	h.tasks.Wait()
}

// loop begins and ends subscriptions, and settles what has changed.
func (h *Discovery) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-timer.C:
		}
		if h.turned.Swap(false) {
			h.logSessions()
		}
		h.follow()
		timer.Reset(h.reconcile(ctx))
	}
}

// follow begins and ends subscriptions. Registries may call back meanwhile: mu is not
// held.
func (h *Discovery) follow() {
	h.mu.Lock()
	starts, stops := h.starts, h.stops
	h.starts, h.stops = nil, nil
	h.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	for _, s := range starts {
		h.mu.Lock()
		r, over := s.session.registry, s.over
		h.mu.Unlock()
		if r == nil || over {
			continue
		}
		stop := r.Subscribe(s.wish.id.service, func(v registry.Snapshot) { h.onSnapshot(s, v) })
		h.mu.Lock()
		s.stop = stop
		over = s.over
		h.mu.Unlock()
		if over {
			stop()
		}
	}
}

// Publish makes a service known as provided here. It returns when the registry has it;
// with an error that is ErrPending the registry could not be told yet, and will be. What
// was published before with the same registry and service is replaced. A *FieldError
// says what is wrong with the request, of which nothing was done.
func (h *Discovery) Publish(ctx context.Context, r Request) error {
	w, err := h.read(r, opPublish)
	if err != nil {
		return err
	}
	h.mu.Lock()
	err = full(h.published[w.id] != nil, len(h.published))
	if err == nil {
		err = h.usable(w.session)
	}
	if err != nil {
		h.mu.Unlock()
		return err
	}
	p := h.published[w.id]
	if p == nil || p.wish.session != w.session {
		old := p
		p = &publication{since: h.stamp(), entry: h.newEntry(h.session(w.session))}
		if old != nil { // with other credentials
			p.entry.before, p.presence = old.entry, old.presence
		}
		h.published[w.id] = p
	}
	if p.wish == nil || !reflect.DeepEqual(p.wish.Request, w.Request) {
		h.save(saveSoon)
	}
	p.wish = w
	if !h.withdrawn {
		h.publish(p)
	}
	goals, ending := p.goals(), h.withdrawn
	h.mu.Unlock()
	if ending {
		return fmt.Errorf("%w: %w", ErrPending, errEnding)
	}
	if err := h.waitAll(ctx, goals); err != nil {
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return nil
}

// Bounds of what may be asked for at a time: a local application that asks for ever more
// is told so before it costs the proxy its memory.
const (
	mostWishes   = 1 << 14 // services that are published, and as many that are subscribed to
	mostSessions = 256
)

// full returns an error if there is no room for a wish more.
func full(known bool, there int) error {
	if known || there < mostWishes {
		return nil
	}
	return &FieldError{"service", fmt.Sprintf("there are %d already, and may be no more", mostWishes)}
}

// usable returns what is wrong with the registry of a session that is not open yet; nil:
// nothing that would show now. mu is held.
func (h *Discovery) usable(key sessionKey) error {
	if h.over {
		return errEnding
	}
	if h.sessions[key] == nil && len(h.sessions) >= mostSessions {
		return &FieldError{"registry.addr", fmt.Sprintf("there are %d registries in use already, and may be no more", mostSessions)}
	}
	if !h.running {
		return nil
	}
	s := h.session(key)
	if s.err == nil {
		return nil
	}
	if s.uses == 0 {
		delete(h.sessions, key)
	}
	return &FieldError{"registry.addr", s.err.Error()}
}

// wait waits until a goal is met, or its entry has failed, for answerWait at most.
func (h *Discovery) wait(ctx context.Context, g goal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWait, errNotBefore)
	defer cancel()
	for {
		h.mu.Lock()
		met, err, turned := g.met(), g.entry.err, g.entry.turned
		if met && !g.entry.settled() {
			err = nil // it is of what others want
		}
		h.mu.Unlock()
		if met || err != nil {
			return err
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.ended:
			return errEnding
		}
	}
}

// waitAll waits for goals, and returns why the first is not met that is not.
func (h *Discovery) waitAll(ctx context.Context, goals []goal) error {
	for _, g := range goals {
		if err := h.wait(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// Unpublish takes back Publish. It is ErrNotFound if there is nothing to be taken back; any
// other error says why the registry may still have the service for a while.
func (h *Discovery) Unpublish(ctx context.Context, r Request) error {
	w, err := h.read(r, opRemove)
	if err != nil {
		return err
	}
	h.mu.Lock()
	p := h.published[w.id]
	if h.over {
		h.mu.Unlock()
		return errEnding
	}
	if p == nil {
		h.mu.Unlock()
		return fmt.Errorf("%s at %s: %w", w.id.service, w.session, ErrNotFound)
	}
	delete(h.published, w.id)
	goals := []goal{{p.entry, p.entry.settled}}
	if p.presence != nil {
		goals = append(goals, h.leaveInstance(p))
	}
	h.end(p.entry)
	h.save(saveSoon)
	h.mu.Unlock()
	if err := h.waitAll(ctx, goals); err != nil {
		return fmt.Errorf("the registry may still have it: %w", err)
	}
	return nil
}

// Subscribe follows a service. It returns when its cluster and routes are in force, with
// the providers that the registry named, or after a few seconds without an answer of the
// registry: then without an error, and the providers come when it answers. A *FieldError
// says what is wrong with the request, of which nothing was done; any other error says
// why it is not in force, which is tried again.
func (h *Discovery) Subscribe(ctx context.Context, r Request) error {
	w, err := h.read(r, opSubscribe)
	if err != nil {
		return err
	}
	h.mu.Lock()
	err = full(h.followed[w.id] != nil, len(h.followed))
	if err == nil {
		err = h.usable(w.session)
	}
	if err != nil {
		h.mu.Unlock()
		return err
	}
	s := h.subscribe(w)
	h.markDirty(s.service)
	asked := s.service.asked
	h.mu.Unlock()
	return h.inForce(ctx, s.service, asked)
}

// Unsubscribe takes back Subscribe, and returns when that is in force. It is ErrNotFound if
// there is nothing to be taken back; any other error says why it is not in force, which is
// tried again.
func (h *Discovery) Unsubscribe(ctx context.Context, r Request) error {
	w, err := h.read(r, opRemove)
	if err != nil {
		return err
	}
	h.mu.Lock()
	s := h.followed[w.id]
	if h.over {
		h.mu.Unlock()
		return errEnding
	}
	if s == nil {
		h.mu.Unlock()
		return fmt.Errorf("%s at %s: %w", w.id.service, w.session, ErrNotFound)
	}
	h.unsubscribe(s)
	h.save(saveSoon)
	h.markDirty(s.service)
	asked := s.service.asked
	h.mu.Unlock()
	return h.inForce(ctx, s.service, asked)
}

// inForce waits until what was asked of a service is in force, or has failed.
func (h *Discovery) inForce(ctx context.Context, s *service, asked uint64) error {
	for {
		h.mu.Lock()
		done, failed, err, progress := s.done, s.failed, s.err, h.progress
		h.mu.Unlock()
		switch {
		case done >= asked:
			return nil
		case failed >= asked:
			return fmt.Errorf("not in force, which is tried again: %w", err)
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("not in force yet: %w", ctx.Err())
		case <-h.ended:
			return errEnding
		}
	}
}

// UnregisterAll takes back what is published, without forgetting it for the next start, and
// waits for callers to notice, as the configuration says, or until ctx ends; not if no
// registry could be told. Nothing is published after that.
func (h *Discovery) UnregisterAll(ctx context.Context) {
	h.mu.Lock()
	h.withdrawn = true
	entries := make([]*registration, 0, len(h.published))
	withdraw := func(e *registration) {
		for ; e != nil; e = e.before {
			if h.set(e, nil); len(e.stale) > 0 { // else it has never been there
				entries = append(entries, e)
			}
		}
	}
	for _, p := range h.presences {
		withdraw(p.entry)
	}
	for _, p := range h.published {
		withdraw(p.entry)
	}
	h.mu.Unlock()
	if len(entries) == 0 {
		return
	}
	answer, cancel := context.WithTimeoutCause(ctx, answerWait, errNotBefore)
	defer cancel()
	var errs []error
	for _, e := range entries {
		if err := h.wait(answer, goal{e, e.settled}); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		h.o.Log.Warn("services may still be published", logServices, len(errs), logError, errs[0])
	}
	if len(errs) == len(entries) {
		return
	}
	timer := time.NewTimer(h.o.Config.WithdrawWait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
