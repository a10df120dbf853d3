// Package dubbo manages the Dubbo services that the local application provides and calls. It
// registers published services with registries, subscribes to references, and converts what
// registries report to clusters and a route table.
//
//	Publish, Subscribe, …    requests of the application                      discovery.go, request.go
//	  │
//	Discovery                desired state, and reports of registries
//	  ├ session              a registry.Registry, shared by all services      session.go
//	  ├ registration         reconciles a URL or instance in a registry       registration.go
//	  ├ localInstance        the instance of an application, of Dubbo 3       instance.go
//	  ├ subscription         snapshots of a registry, and empty protection    subscription.go
//	  ├ revision             metadata of applications, of Dubbo 3             applications.go
//	  ├ plan                 snapshots -> clusters and routes                 plan
//	  ├ reconcile            applies all pending changes together             reconcile.go
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
	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Bounds of the time that calls of the API wait, and that registries take to close.
const (
	registryTimeout = 3 * time.Second // for a response of a registry
	closeTimeout    = 5 * time.Second
)

var (
	errNoTLS      = errors.New("TLS is configured, but this build does not support it")
	errClosing    = errors.New("the process is shutting down")
	errNoResponse = errors.New("no response yet")
)

// Discovery publishes services, subscribes to services, and keeps clusters and routes in line with
// the registries. Its methods are safe for concurrent use. Run performs requests that were made
// before Run.
type Discovery struct {
	options Options       // immutable
	host    string        // immutable; host of the published providers
	wake    chan struct{} // the loop has work
	ended   chan struct{} // closed when Run is about to return

	runCtx          context.Context //nolint:containedctx // of Run: immutable once running, entries end with it
	tasks           sync.WaitGroup  // registrations and sessions that end; nothing is added once Run waits
	sessionsChanged atomic.Bool     // a session has changed
	appliedChanges  atomic.Uint64
	applyFailures   atomic.Uint64
	saveFailures    atomic.Uint64 // failed attempts to write the state file
	fetchSlots      chan struct{} // one element for each fetch of metadata that holds a turn

	mu            sync.Mutex
	running       bool                           // guarded by mu, like all fields below
	withdrawn     bool                           // nothing is published any more
	closed        bool                           // no more requests: the state file has been written
	lastStamp     time.Time                      // see stamp
	sessions      map[sessionKey]*session        //
	published     map[identity]*publication      //
	instances     map[instanceKey]*localInstance // see instance.go
	subscriptions map[identity]*subscription     //
	services      map[registry.Service]*service  // with a subscription, or still applied
	dirty         map[*service]struct{}          // to be planned
	dueAt         map[*service]time.Time         // to be planned at that time
	pendingStarts []*subscription                // subscriptions to start
	pendingStops  []func()                       // functions that stop subscriptions
	nextApply     time.Time                      // no change starts earlier
	progress      chan struct{}                  // closed and replaced when services were applied, or have failed
	saveSchedule  saveSchedule
	revisions     map[revisionKey]*revision // of applications; see applications.go
	sweepAt       int                       // number of revisions at which the next sweep runs
}

// publication is a service that is provided on this machine.
type publication struct {
	spec            *spec
	since           time.Time
	urlRegistration *registration            // of its URL; desires nothing in the mode RegisterInstance
	instance        *localInstance           // nil: no instance registers the service
	serviceInfo     *application.ServiceInfo // element of the instance's metadata
}

// New returns a Discovery with the contents of the state file; Resources returns the clusters and
// routes restored from it. An error reports invalid configuration. New moves a state file that it
// cannot read, and logs that.
func New(o Options) (*Discovery, error) {
	setDefaults(&o.Config)
	for i := range o.Config.Registries {
		s := &o.Config.Registries[i]
		if o.Registries[s.Type] == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].type", i), fmt.Sprintf("unknown registry type %q", truncate(s.Type))}
		}
		if s.TLS != nil && o.TLS == nil {
			return nil, &FieldError{fmt.Sprintf("registries[%d].tls", i), errNoTLS.Error()}
		}
	}
	host := hostToPublish(o.Config.Host)
	if strings.ContainsAny(host, " /?&@\n") {
		return nil, &FieldError{"host", fmt.Sprintf("%q (from the configuration or %s) is not a valid address", truncate(host), hostVariable)}
	}
	h := &Discovery{
		options:       o,
		host:          host,
		wake:          make(chan struct{}, 1),
		ended:         make(chan struct{}),
		sessions:      map[sessionKey]*session{},
		published:     map[identity]*publication{},
		instances:     map[instanceKey]*localInstance{},
		subscriptions: map[identity]*subscription{},
		services:      map[registry.Service]*service{},
		dirty:         map[*service]struct{}{},
		dueAt:         map[*service]time.Time{},
		progress:      make(chan struct{}),
		revisions:     map[revisionKey]*revision{},
		fetchSlots:    make(chan struct{}, maxConcurrentFetches),
	}
	h.saveSchedule.wake = make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restore()
	return h, nil
}

// setDefaults sets defaults in a configuration.
func setDefaults(c *config.DubboRegistry) {
	usual := config.DefaultDubboRegistry()
	if c.Application == "" {
		c.Application = usual.Application
	}
	if c.EmptyProtection == 0 {
		c.EmptyProtection = usual.EmptyProtection
	}
	if c.UnregisterWait == 0 {
		c.UnregisterWait = usual.UnregisterWait
	}
}

// stamp returns the current time, at least a millisecond later than the last call. URLs contain it,
// so that a new registration differs from one that is being unregistered. mu is held.
func (h *Discovery) stamp() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	if !now.After(h.lastStamp) {
		now = h.lastStamp.Add(time.Millisecond)
	}
	h.lastStamp = now
	return now
}

// wakeLoop wakes the loop.
func (h *Discovery) wakeLoop() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *Discovery) sessionChanged() {
	h.sessionsChanged.Store(true)
	h.wakeLoop()
}

// Run publishes, subscribes and applies until ctx ends, and then closes all sessions. It returns
// when all its goroutines have ended. It must be called only once. It always returns nil.
func (h *Discovery) Run(ctx context.Context) error {
	life, end := context.WithCancel(ctx)
	defer end()
	h.begin(life)
	var saver sync.WaitGroup
	saver.Go(func() { h.saveLoop(life) })
	h.loop(life)
	saver.Wait()
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	if h.options.Config.StateFile != "" {
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
	h.runCtx, h.running = life, true
	for _, s := range h.sessions {
		if h.openRegistry(s); s.err != nil {
			h.options.Log.Error("cannot use a registry", logRegistry, s.key.String(), logError, s.err)
		}
	}
	for _, p := range h.published {
		h.startReconcile(p.urlRegistration)
	}
	for _, p := range h.instances {
		h.startReconcile(p.registration)
	}
	for _, s := range h.subscriptions {
		h.startReconcile(s.consumer)
	}
	for _, s := range h.services {
		h.markDirty(s)
	}
}

// finish closes the sessions, and waits for all goroutines.
func (h *Discovery) finish() {
	h.mu.Lock()
	h.running = false
	stops := h.pendingStops
	h.pendingStops = nil
	for _, s := range h.subscriptions {
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
		if h.sessionsChanged.Swap(false) {
			h.logSessions()
		}
		h.updateSubscriptions()
		timer.Reset(h.reconcile(ctx))
	}
}

// updateSubscriptions starts and stops subscriptions. It does not hold mu, because registries may call back.
func (h *Discovery) updateSubscriptions() {
	h.mu.Lock()
	starts, stops := h.pendingStarts, h.pendingStops
	h.pendingStarts, h.pendingStops = nil, nil
	h.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	for _, s := range starts {
		h.mu.Lock()
		r, over := s.session.registry, s.ended
		h.mu.Unlock()
		if r == nil || over {
			continue
		}
		stop := r.Subscribe(s.spec.id.service, func(v registry.Snapshot) { h.onSnapshot(s, v) })
		h.mu.Lock()
		s.stop = stop
		over = s.ended
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
	w, err := h.validate(r, opPublish)
	if err != nil {
		return err
	}
	h.mu.Lock()
	err = checkCapacity(h.published[w.id] != nil, len(h.published))
	if err == nil {
		err = h.checkSession(w.session)
	}
	if err != nil {
		h.mu.Unlock()
		return err
	}
	p := h.published[w.id]
	if p == nil || p.spec.session != w.session {
		old := p
		p = &publication{since: h.stamp(), urlRegistration: h.newRegistration(h.openSession(w.session))}
		if old != nil { // with other credentials
			p.urlRegistration.predecessor, p.instance = old.urlRegistration, old.instance
		}
		h.published[w.id] = p
	}
	if p.spec == nil || !reflect.DeepEqual(p.spec.Request, w.Request) {
		h.save(saveSoon)
	}
	p.spec = w
	if !h.withdrawn {
		h.publish(p)
	}
	goals, ending := p.goals(), h.withdrawn
	h.mu.Unlock()
	if ending {
		return fmt.Errorf("%w: %w", ErrPending, errClosing)
	}
	if err := h.awaitGoals(ctx, goals); err != nil {
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return nil
}

// Bounds of the desired state: they protect the memory of the proxy from an application that
// requests more and more.
const (
	maxServices = 1 << 14 // published services, and as many subscribed ones
	maxSessions = 256
)

// checkCapacity returns an error if there are maxServices services and known is false.
func checkCapacity(known bool, there int) error {
	if known || there < maxServices {
		return nil
	}
	return &FieldError{"service", fmt.Sprintf("limit of %d services reached", maxServices)}
}

// checkSession returns why a session cannot be used, or nil. mu is held.
func (h *Discovery) checkSession(key sessionKey) error {
	if h.closed {
		return errClosing
	}
	if h.sessions[key] == nil && len(h.sessions) >= maxSessions {
		return &FieldError{"registry.addr", fmt.Sprintf("limit of %d registries in use reached", maxSessions)}
	}
	if !h.running {
		return nil
	}
	s := h.openSession(key)
	if s.err == nil {
		return nil
	}
	if s.uses == 0 {
		delete(h.sessions, key)
	}
	return &FieldError{"registry.addr", s.err.Error()}
}

// awaitGoal waits until a goal is met or its registration has failed, at most registryTimeout.
func (h *Discovery) awaitGoal(ctx context.Context, g goal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, registryTimeout, errNoResponse)
	defer cancel()
	for {
		h.mu.Lock()
		met, err, turned := g.met(), g.registration.err, g.registration.changed
		if met && !g.registration.settled() {
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
			return errClosing
		}
	}
}

// awaitGoals waits for goals, and returns the first error.
func (h *Discovery) awaitGoals(ctx context.Context, goals []goal) error {
	for _, g := range goals {
		if err := h.awaitGoal(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// Unpublish reverts Publish. It returns ErrNotFound if the service is not published; any other
// error says why the registry may still have the service for a while.
func (h *Discovery) Unpublish(ctx context.Context, r Request) error {
	w, err := h.validate(r, opRemove)
	if err != nil {
		return err
	}
	h.mu.Lock()
	p := h.published[w.id]
	if h.closed {
		h.mu.Unlock()
		return errClosing
	}
	if p == nil {
		h.mu.Unlock()
		return fmt.Errorf("%s at %s: %w", w.id.service, w.session, ErrNotFound)
	}
	delete(h.published, w.id)
	goals := []goal{{p.urlRegistration, p.urlRegistration.settled}}
	if p.instance != nil {
		goals = append(goals, h.leaveInstance(p))
	}
	h.endRegistration(p.urlRegistration)
	h.save(saveSoon)
	h.mu.Unlock()
	if err := h.awaitGoals(ctx, goals); err != nil {
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
	w, err := h.validate(r, opSubscribe)
	if err != nil {
		return err
	}
	h.mu.Lock()
	err = checkCapacity(h.subscriptions[w.id] != nil, len(h.subscriptions))
	if err == nil {
		err = h.checkSession(w.session)
	}
	if err != nil {
		h.mu.Unlock()
		return err
	}
	s := h.subscribe(w)
	h.markDirty(s.service)
	asked := s.service.requestedChange
	h.mu.Unlock()
	return h.inForce(ctx, s.service, asked)
}

// Unsubscribe reverts Subscribe, and returns when that is active. It returns ErrNotFound if there
// is no subscription; any other error says why the change is not active, which Weft retries.
func (h *Discovery) Unsubscribe(ctx context.Context, r Request) error {
	w, err := h.validate(r, opRemove)
	if err != nil {
		return err
	}
	h.mu.Lock()
	s := h.subscriptions[w.id]
	if h.closed {
		h.mu.Unlock()
		return errClosing
	}
	if s == nil {
		h.mu.Unlock()
		return fmt.Errorf("%s at %s: %w", w.id.service, w.session, ErrNotFound)
	}
	h.unsubscribe(s)
	h.save(saveSoon)
	h.markDirty(s.service)
	asked := s.service.requestedChange
	h.mu.Unlock()
	return h.inForce(ctx, s.service, asked)
}

// inForce waits until the change number asked of a service is active, or has failed.
func (h *Discovery) inForce(ctx context.Context, s *service, asked uint64) error {
	for {
		h.mu.Lock()
		done, failed, err, progress := s.appliedChange, s.failedChange, s.err, h.progress
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
			return errClosing
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
		for ; e != nil; e = e.predecessor {
			if h.set(e, nil); len(e.stale) > 0 { // else it was never registered
				entries = append(entries, e)
			}
		}
	}
	for _, p := range h.instances {
		withdraw(p.registration)
	}
	for _, p := range h.published {
		withdraw(p.urlRegistration)
	}
	h.mu.Unlock()
	if len(entries) == 0 {
		return
	}
	answer, cancel := context.WithTimeoutCause(ctx, registryTimeout, errNoResponse)
	defer cancel()
	var errs []error
	for _, e := range entries {
		if err := h.awaitGoal(answer, goal{e, e.settled}); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		h.options.Log.Warn("services may still be published", logServices, len(errs), logError, errs[0])
	}
	if len(errs) == len(entries) {
		return
	}
	timer := time.NewTimer(h.options.Config.UnregisterWait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
