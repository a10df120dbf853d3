// Package dubbo manages the Dubbo services that the local application provides and calls. It
// registers published services with registries, subscribes to references, and converts what
// registries report to clusters and a route table.
//
//	Publish, Subscribe, …    requests of the application                      hub.go, request.go
//	  │
//	Discovery                desired state, and reports of registries
//	  ├ session              a registry.Registry, shared by all services      session.go
//	  ├ registration         reconciles a URL or instance in a registry       entry.go
//	  ├ localInstance        the instance of an application, of Dubbo 3       presence.go
//	  ├ subscription         snapshots of a registry, and empty protection    subscription.go
//	  ├ revision             metadata of applications, of Dubbo 3             applications.go
//	  ├ plan                 snapshots -> clusters and routes                 plan
//	  ├ reconcile            applies all pending changes together             settle.go
//	  └ state file           desired state and snapshots, for the next start  state.go
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

// Bounds of the time that calls of the API wait, and that registries take to close.
const (
	answerWait = 3 * time.Second // for a response of a registry
	closeIn    = 5 * time.Second
)

var (
	errNoTLS     = errors.New("TLS is configured, but this build does not support it")
	errEnding    = errors.New("the process is shutting down")
	errNotBefore = errors.New("no response yet")
)

// Discovery publishes services, subscribes to services, and keeps clusters and routes in line with
// the registries. Its methods are safe for concurrent use. Run performs requests that were made
// before Run.
type Discovery struct {
	o     Options       // immutable
	host  string        // immutable; host of the published providers
	wake  chan struct{} // the loop has work
	ended chan struct{} // closed when Run is about to return

	life    context.Context //nolint:containedctx // of Run: immutable once running, entries end with it
	tasks   sync.WaitGroup  // registrations and sessions that end; nothing is added once Run waits
	turned  atomic.Bool     // a session has changed
	applied atomic.Uint64
	failed  atomic.Uint64
	unsaved atomic.Uint64 // failed attempts to write the state file
	fetches chan struct{} // one element for each fetch of metadata that holds a turn

	mu        sync.Mutex
	running   bool                           // guarded by mu, like all fields below
	withdrawn bool                           // nothing is published any more
	over      bool                           // no more requests: the state file has been written
	last      time.Time                      // see stamp
	sessions  map[sessionKey]*session        //
	published map[identity]*publication      //
	presences map[presenceKey]*localInstance // see presence.go
	followed  map[identity]*subscription     //
	services  map[registry.Service]*service  // with a subscription, or still applied
	dirty     map[*service]struct{}          // to be planned
	timed     map[*service]time.Time         // to be planned at that time
	starts    []*subscription                // subscriptions to start
	stops     []func()                       // functions that stop subscriptions
	notBefore time.Time                      // no change starts earlier
	progress  chan struct{}                  // closed and replaced when services were applied, or have failed
	saving    saving
	revisions map[revisionKey]*revision // of applications; see applications.go
	sweepAt   int                       // number of revisions at which the next sweep runs
}

// publication is a service that is provided on this machine.
type publication struct {
	wish     *spec
	since    time.Time
	entry    *registration            // of its URL; desires nothing in the mode RegisterInstance
	presence *localInstance           // nil: no instance registers the service
	offer    *application.ServiceInfo // element of the instance's metadata
}

// New returns a Discovery with the contents of the state file; Resources returns the clusters and
// routes restored from it. An error reports invalid configuration. New moves a state file that it
// cannot read, and logs that.
func New(o Options) (*Discovery, error) {
	fill(&o.Config)
	for i := range o.Config.Registries {
		s := &o.Config.Registries[i]
		if o.Registries[s.Type] == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].type", i), fmt.Sprintf("unknown registry type %q", clip(s.Type))}
		}
		if s.TLS != nil && o.TLS == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].tls", i), errNoTLS.Error()}
		}
	}
	host := hostToPublish(o.Config.Host)
	if strings.ContainsAny(host, " /?&@\n") {
		return nil, &FieldError{"host", fmt.Sprintf("%q (from the configuration or %s) is not a valid address", clip(host), hostVariable)}
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

// fill sets defaults in a configuration.
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

// stamp returns the current time, at least a millisecond later than the last call. URLs contain it,
// so that a new registration differs from one that is being unregistered. mu is held.
func (h *Discovery) stamp() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	if !now.After(h.last) {
		now = h.last.Add(time.Millisecond)
	}
	h.last = now
	return now
}

// poke wakes the loop.
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

// Run publishes, subscribes and applies until ctx ends, and then closes all sessions. It returns
// when all its goroutines have ended. It must be called only once. It always returns nil.
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
		h.saveNow() // even if nothing has changed: the file contains the time of the end
	}
	close(h.ended)
	h.finish()
	return nil
}

// begin opens the sessions and starts what was requested before Run.
func (h *Discovery) begin(life context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life, h.running = life, true
	for _, s := range h.sessions {
		if h.open(s); s.err != nil {
			h.o.Log.Error("cannot use a registry", logRegistry, s.key.String(), logError, s.err)
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

// finish closes the sessions, and waits for all goroutines.
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

// loop starts and stops subscriptions, and reconciles changes.
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

// follow starts and stops subscriptions. It does not hold mu, because registries may call back.
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

// Publish publishes a service of this application. It returns when the registry has it. An error
// that wraps ErrPending means that the registry does not have it yet and Weft keeps trying. Publish
// replaces an earlier publication with the same registry and service. A *FieldError reports an
// invalid request, which had no effect.
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

// Bounds of the desired state: they protect the memory of the proxy from an application that
// requests more and more.
const (
	mostWishes   = 1 << 14 // published services, and as many subscribed ones
	mostSessions = 256
)

// full returns an error if there are mostWishes services and known is false.
func full(known bool, there int) error {
	if known || there < mostWishes {
		return nil
	}
	return &FieldError{"service", fmt.Sprintf("limit of %d services reached", mostWishes)}
}

// usable returns why a session cannot be used, or nil. mu is held.
func (h *Discovery) usable(key sessionKey) error {
	if h.over {
		return errEnding
	}
	if h.sessions[key] == nil && len(h.sessions) >= mostSessions {
		return &FieldError{"registry.addr", fmt.Sprintf("limit of %d registries in use reached", mostSessions)}
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

// wait waits until a goal is met or its registration has failed, at most answerWait.
func (h *Discovery) wait(ctx context.Context, g goal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWait, errNotBefore)
	defer cancel()
	for {
		h.mu.Lock()
		met, err, turned := g.met(), g.entry.err, g.entry.turned
		if met && !g.entry.settled() {
			err = nil // the error concerns a later change
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

// waitAll waits for goals, and returns the first error.
func (h *Discovery) waitAll(ctx context.Context, goals []goal) error {
	for _, g := range goals {
		if err := h.wait(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// Unpublish reverts Publish. It returns ErrNotFound if the service is not published; any other
// error says why the registry may still have the service for a while.
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
		return fmt.Errorf("the registry may still have the service: %w", err)
	}
	return nil
}

// Subscribe subscribes to a service. It returns when the cluster and routes of the service are
// active with the providers that the registry reported. If the registry does not respond within a
// few seconds, it returns nil, and the providers follow later. A *FieldError reports an invalid
// request, which had no effect; any other error says why the service is not active, which Weft
// retries.
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

// Unsubscribe reverts Subscribe, and returns when that is active. It returns ErrNotFound if there
// is no subscription; any other error says why the change is not active, which Weft retries.
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

// inForce waits until the change number asked of a service is active, or has failed.
func (h *Discovery) inForce(ctx context.Context, s *service, asked uint64) error {
	for {
		h.mu.Lock()
		done, failed, err, progress := s.done, s.failed, s.err, h.progress
		h.mu.Unlock()
		switch {
		case done >= asked:
			return nil
		case failed >= asked:
			return fmt.Errorf("not active, Weft keeps retrying: %w", err)
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("not active yet: %w", ctx.Err())
		case <-h.ended:
			return errEnding
		}
	}
}

// UnregisterAll unregisters all published services but leaves them in the state file for the next
// start. It then waits for consumers to notice, for WithdrawWait or until ctx ends; it does not
// wait if every registry failed to confirm. Discovery publishes nothing after that.
func (h *Discovery) UnregisterAll(ctx context.Context) {
	h.mu.Lock()
	h.withdrawn = true
	entries := make([]*registration, 0, len(h.published))
	withdraw := func(e *registration) {
		for ; e != nil; e = e.before {
			if h.set(e, nil); len(e.stale) > 0 { // else it was never registered
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
