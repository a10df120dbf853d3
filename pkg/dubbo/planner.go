package dubbo

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/registry"
)

// planner computes the clusters and routes of services, and applies all pending changes together
// (apply.go). Only the loop calls reconcile; the methods that other goroutines call are safe for
// concurrent use. With mu held, the planner calls only wake.
type planner struct {
	input    planSource                                 // immutable
	activate func(context.Context, layers.Change) error // immutable; Options.Apply
	log      *slog.Logger                               // immutable
	wake     func()                                     // immutable; wakes the loop, which calls reconcile

	// Owned by the loop.
	dueAt     map[*service]time.Time // when each service must be planned again
	nextApply time.Time              // earliest time of the next change

	mu            mutex[rank2]
	services      map[registry.Service]*service // guarded by mu; services with subscriptions, or with active resources
	dirtyServices map[*service]struct{}         // guarded by mu; services to plan
	progress      chan struct{}                 // guarded by mu; closed and replaced after each batch, applied or failed
	appliedCount  uint64                        // guarded by mu; number of applied changes
	failureCount  uint64                        // guarded by mu; number of failed attempts to apply a change
}

// planSource provides the input of the planner. subscriber implements it.
type planSource interface {
	planInput(key registry.Service, now time.Time, awaitFirst bool) planInput
}

// service is a service that the local consumer calls. While the loop runs, only the loop writes the
// fields that planner.mu guards, except requestedChange. So the loop reads them without planner.mu.
type service struct {
	key          registry.Service // immutable
	lastUnrouted string           // owned by the loop; the last text that logUnrouted received

	// Guarded by planner.mu.
	result      *plan.Result // nil: not planned yet, or nothing subscribes
	active      resources    // the active resources, or those being applied
	mustReapply bool         // active was restored: apply it even if nothing has changed

	requestedChange uint64        // number of the last requested change
	appliedChange   uint64        // number of the last change that was applied
	failedChange    uint64        // number of the last change that could not be applied
	err             error         // of the last attempt to apply; nil: success
	backoff         time.Duration // before the next attempt; 0: the last attempt succeeded
}

// resources contains the clusters and routes of a service; the zero value: none.
type resources struct {
	clusters []*config.Cluster // the cluster of the service, then the variant clusters; see plan.Result
	routes   []*config.Route
}

// cluster returns the cluster with that name, or nil.
func (r *resources) cluster(name string) *config.Cluster {
	for _, c := range r.clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// reuseEqual replaces clusters and routes with equal values of previous, because beginApply detects
// changes by comparing pointers.
func (r *resources) reuseEqual(previous resources) {
	for i, c := range r.clusters {
		if old := previous.cluster(c.Name); old != nil && reflect.DeepEqual(c, old) {
			r.clusters[i] = old
		}
	}
	if reflect.DeepEqual(r.routes, previous.routes) {
		r.routes = previous.routes
	}
}

func newPlanner(s *settings, wake func()) *planner {
	return &planner{
		activate:      s.Apply,
		log:           s.Log,
		wake:          wake,
		dueAt:         map[*service]time.Time{},
		services:      map[registry.Service]*service{},
		dirtyServices: map[*service]struct{}{},
		progress:      make(chan struct{}),
	}
}

// pendingChange is a requested change of one service.
type pendingChange struct {
	service *service
	number  uint64
	next    resources
}

// request schedules the planning of a service for a call of the API, which passes the result to
// await.
func (p *planner) request(key registry.Service) pendingChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.services[key]
	if s == nil {
		s = &service{key: key}
		p.services[key] = s
	}
	return p.requestLocked(s)
}

func (p *planner) requestLocked(s *service) pendingChange {
	s.requestedChange++
	p.dirtyServices[s] = struct{}{}
	p.wake()
	return pendingChange{service: s, number: s.requestedChange}
}

// markDirty schedules the planning of a service whose input has changed.
func (p *planner) markDirty(key registry.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.services[key]; s != nil { // otherwise a request will plan the service
		p.dirtyServices[s] = struct{}{}
		p.wake()
	}
}

// start schedules the planning of all services.
func (p *planner) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.services {
		p.requestLocked(s)
	}
}

// await waits until a change has been applied or has failed. The error is errClosing if ended is
// closed first.
func (p *planner) await(ctx context.Context, c pendingChange, ended <-chan struct{}) error {
	s := c.service
	for {
		p.mu.Lock()
		applied, failed, err, progress := s.appliedChange, s.failedChange, s.err, p.progress
		p.mu.Unlock()
		switch {
		case applied >= c.number:
			return nil
		case failed >= c.number:
			return fmt.Errorf("not active, Weft keeps retrying: %w", err)
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("not active yet: %w", ctx.Err())
		case <-ended:
			return errClosing
		}
	}
}

const (
	idleWait         = time.Hour             // how long the loop waits when nothing is due
	unthrottledBelow = 10 * time.Millisecond // changes that are applied faster than this are not throttled
	maxThrottle      = 20 * time.Millisecond // maximum wait between two changes
)

// reconcile plans changed and due services, and applies the result. It returns the time until the
// loop must call it again, unless wake is called earlier.
func (p *planner) reconcile(ctx context.Context) time.Duration {
	now := time.Now()
	if wait := p.nextApply.Sub(now); wait > 0 {
		return wait
	}
	if batch := p.planDue(now); len(batch) > 0 {
		budget := maxApplyAttempts
		p.applyBatch(ctx, batch, &budget)
		p.mu.Lock()
		close(p.progress)
		p.progress = make(chan struct{})
		p.mu.Unlock()
		// After a slow change, wait as long as it took (at most maxThrottle), so that the next
		// change includes all snapshots that arrive meanwhile.
		if end := time.Now(); end.Sub(now) > unthrottledBelow {
			p.nextApply = end.Add(min(end.Sub(now), maxThrottle))
		}
	}
	return p.nextDue()
}

// nextDue returns the time until the next service is due.
func (p *planner) nextDue() time.Duration {
	now := time.Now()
	p.mu.Lock()
	dirty := len(p.dirtyServices) > 0
	p.mu.Unlock()
	if dirty {
		return max(0, p.nextApply.Sub(now))
	}
	wait := idleWait
	for _, at := range p.dueAt {
		wait = min(wait, at.Sub(now))
	}
	return max(0, wait)
}

// takeDue returns the changed and due services, with the changes that were requested.
func (p *planner) takeDue(now time.Time) []pendingChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, at := range p.dueAt {
		if !at.After(now) {
			p.dirtyServices[s] = struct{}{}
		}
	}
	due := make([]pendingChange, 0, len(p.dirtyServices))
	for s := range p.dirtyServices {
		due = append(due, pendingChange{service: s, number: s.requestedChange})
	}
	clear(p.dirtyServices)
	return due
}

// planDue plans changed and due services. A service without clusters waits for the first snapshot.
func (p *planner) planDue(now time.Time) []pendingChange {
	var batch []pendingChange
	for _, c := range p.takeDue(now) {
		input := p.input.planInput(c.service.key, now, c.service.active.clusters == nil)
		if !input.awaitUntil.IsZero() {
			p.dueAt[c.service] = input.awaitUntil // request and markDirty cause earlier planning
			continue
		}
		c.next = p.plan(c.service, now, &input)
		batch = append(batch, c)
	}
	slices.SortFunc(batch, func(a, b pendingChange) int { return plan.Compare(a.service.key, b.service.key) })
	return batch
}

// plan computes the next resources of a service. It records the plan.Result, and when the service
// must be planned again.
func (p *planner) plan(s *service, now time.Time, input *planInput) (next resources) {
	delete(p.dueAt, s)
	var result *plan.Result
	if len(input.snapshots) > 0 {
		input.reference.Tagged = s.result != nil && s.result.Tagged
		result = plan.Compute(input.reference, input.snapshots, now)
		if at := earlierOf(input.expiry, result.NextChange); !at.IsZero() {
			p.dueAt[s] = now.Add(at.Sub(now)) // uses the monotonic clock of now
		}
		p.logUnrouted(s, result.Unrouted)
		next = resources{append([]*config.Cluster{result.Cluster}, result.VariantClusters...), result.Routes}
		next.reuseEqual(s.active)
	}
	p.mu.Lock()
	s.result = result
	p.mu.Unlock()
	return next
}

// logUnrouted logs the groups and versions without routes, unless text is "" or the same as in the
// previous call.
func (p *planner) logUnrouted(s *service, text string) {
	if text == s.lastUnrouted {
		return
	}
	if s.lastUnrouted = text; text != "" {
		p.log.Warn("some groups or versions of a service have no routes", logService, s.key.String(), logError, text)
	}
}

func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// restore plans the services of the state file, so that resources includes them. New calls it.
func (p *planner) restore(keys []registry.Service) {
	now := time.Now()
	for _, key := range keys {
		s := &service{key: key, mustReapply: true}
		input := p.input.planInput(key, now, false)
		next := p.plan(s, now, &input)
		p.mu.Lock()
		s.active = next
		p.services[key] = s
		p.mu.Unlock()
	}
}

// reapplyRestored makes the loop apply restored services as new ones. It must be called before the
// loop runs.
func (p *planner) reapplyRestored() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.services {
		s.active, s.mustReapply = resources{}, false
	}
}

// resources returns the active clusters, sorted by name, and the route table.
func (p *planner) resources() (clusters []*config.Cluster, routes *config.RouteTable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.services {
		clusters = append(clusters, s.active.clusters...)
	}
	slices.SortFunc(clusters, func(a, b *config.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return clusters, p.routeTable()
}

// serviceStatus is the state of one service.
type serviceStatus struct {
	result *plan.Result // nil: not planned yet, or nothing subscribes
	hosts  int          // number of hosts of the service's active cluster
	err    error        // of the last attempt to apply; nil: success
}

// status returns the state of all services.
func (p *planner) status() map[registry.Service]serviceStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	statuses := make(map[registry.Service]serviceStatus, len(p.services))
	for key, s := range p.services {
		st := serviceStatus{result: s.result, err: s.err}
		if s.active.clusters != nil {
			st.hosts = len(s.active.clusters[0].Hosts)
		}
		statuses[key] = st
	}
	return statuses
}

// totals returns the numbers of applied changes and of failed attempts to apply a change.
func (p *planner) totals() (applied, failures uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.appliedCount, p.failureCount
}
