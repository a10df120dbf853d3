package dubbo

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/registry"
)

// service is a service that the local consumer calls, with its subscriptions at all registries.
// Guarded by Discovery.mu.
type service struct {
	key     registry.Service // immutable
	sources []*subscription  // sorted by registry; none: the service is being removed
	result  *plan.Result     // nil: not planned yet

	unrouted string // last logged text; "": none

	active  resources // active, or being applied
	reapply bool      // place was restored: apply it even if nothing has changed

	requestedChange uint64        // number of changes by calls of the API
	appliedChange   uint64        // last change that is active
	failedChange    uint64        // last change that was tried and failed
	err             error         // of the last attempt to apply; nil: success
	backoff         time.Duration // backoff before the next attempt, after a failure
}

// resources contains the active resources of a service; the zero value: none.
type resources struct {
	clusters []*config.Cluster // the cluster of the service, then the variant clusters; see plan.Result
	routes   []*config.Route
}

// cluster returns the cluster with that name, or nil.
func (p *resources) cluster(name string) *config.Cluster {
	for _, c := range p.clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// reuseEqual replaces values that are equal to those in before by these, so that pointer comparisons find
// them unchanged.
func (p *resources) reuseEqual(before resources) {
	for i, c := range p.clusters {
		if old := before.cluster(c.Name); old != nil && reflect.DeepEqual(c, old) {
			p.clusters[i] = old
		}
	}
	if reflect.DeepEqual(p.routes, before.routes) {
		p.routes = before.routes
	}
}

// markDirty schedules the planning of a service, for a call of the API. mu is held.
func (h *Discovery) markDirty(s *service) {
	s.requestedChange++
	h.dirty[s] = struct{}{}
	h.wakeLoop()
}

// pendingChange is the change of one service.
type pendingChange struct {
	service *service
	number  uint64
	next    resources
}

const (
	idleWait         = time.Hour             // how long the loop waits when nothing is due
	unthrottledBelow = 10 * time.Millisecond // changes faster than this are not throttled
	maxThrottle      = 20 * time.Millisecond // maximum wait after a change
)

// reconcile plans changed and due services, and applies the result. It returns the time until the
// next work.
func (h *Discovery) reconcile(ctx context.Context) time.Duration {
	now := time.Now()
	h.mu.Lock()
	wait := h.nextApply.Sub(now)
	h.mu.Unlock()
	if wait > 0 {
		return wait
	}
	numbers := h.sessionNumbers()
	h.mu.Lock()
	batch := h.planDue(now, numbers)
	h.mu.Unlock()
	if len(batch) > 0 {
		budget := maxApplyAttempts
		h.applyBatch(ctx, batch, &budget)
		h.mu.Lock()
		close(h.progress)
		h.progress = make(chan struct{})
		// Collect what arrives during a slow change, and for a while after it, in one change.
		if end := time.Now(); end.Sub(now) > unthrottledBelow {
			h.nextApply = end.Add(min(end.Sub(now), maxThrottle))
		}
		h.mu.Unlock()
	}
	return h.nextDue()
}

// sessionNumbers returns the current session number of every registry, because snapshots of any
// registry may arrive before planning. It calls registries, so the caller must not hold mu.
func (h *Discovery) sessionNumbers() map[*session]int {
	h.mu.Lock()
	numbers := make(map[*session]int, len(h.sessions))
	for _, s := range h.sessions {
		if s.registry != nil {
			numbers[s] = 0
		}
	}
	h.mu.Unlock()
	for s := range numbers {
		numbers[s] = s.registry.State().Sessions
	}
	return numbers
}

// nextDue returns the time until the next service is due.
func (h *Discovery) nextDue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if len(h.dirty) > 0 {
		return max(0, h.nextApply.Sub(now))
	}
	wait := idleWait
	for _, at := range h.dueAt {
		wait = min(wait, at.Sub(now))
	}
	return max(0, wait)
}

// planDue plans changed and due services. mu is held.
func (h *Discovery) planDue(now time.Time, numbers map[*session]int) []pendingChange {
	for s, at := range h.dueAt {
		if !at.After(now) {
			h.dirty[s] = struct{}{}
		}
	}
	batch := make([]pendingChange, 0, len(h.dirty))
	for s := range h.dirty {
		if until := s.firstApplyDeadline(); until.After(now) {
			h.dueAt[s] = until // markDirty, queueSnapshot or that time trigger planning again
			continue
		}
		batch = append(batch, h.planService(s, now, numbers))
	}
	clear(h.dirty)
	slices.SortFunc(batch, func(a, b pendingChange) int { return plan.Compare(a.service.key, b.service.key) })
	return batch
}

// firstApplyDeadline returns how long to wait before a service is first applied: while it has no clusters,
// and no registry has sent a snapshot.
func (s *service) firstApplyDeadline() (until time.Time) {
	if s.active.clusters != nil {
		return time.Time{}
	}
	for _, source := range s.sources {
		if source.hasSnapshot() || source.pending != nil {
			return time.Time{}
		}
		if source.deadline.After(until) {
			until = source.deadline
		}
	}
	return until
}

// planService plans a service. mu is held.
func (h *Discovery) planService(s *service, now time.Time, numbers map[*session]int) pendingChange {
	a := pendingChange{service: s, number: s.requestedChange}
	delete(h.dueAt, s)
	if len(s.sources) == 0 {
		s.result = nil
		return a
	}
	var next time.Time
	wish := plan.Reference{Service: s.key, Tagged: s.result != nil && s.result.Tagged}
	lists := make([]plan.RegistrySnapshot, 0, len(s.sources))
	for _, source := range s.sources {
		if source.pending != nil {
			h.save(saveLater)
		}
		source.evaluate(now, numbers[source.session], h.options.Config.EmptyProtection)
		next = earlierOf(next, source.nextExpiry())
		if wish.Parameters == nil {
			wish.Parameters = source.spec.Service.Parameters
		}
		if wish.Consumer.Protocol == "" {
			wish.Consumer = h.consumerURL(source.spec, source.since)
		}
		lists = append(lists, plan.RegistrySnapshot{Registry: source.session.key.String(), Snapshot: source.effective()})
	}
	s.result = plan.Compute(wish, lists, now)
	if next = earlierOf(next, s.result.NextChange); !next.IsZero() {
		h.dueAt[s] = now.Add(next.Sub(now)) // immune to changes of the wall clock
	}
	h.logUnrouted(s)
	a.next = resources{append([]*config.Cluster{s.result.Cluster}, s.result.VariantClusters...), s.result.Routes}
	a.next.reuseEqual(s.active)
	return a
}

// logUnrouted logs groups and versions without routes, once per text. mu is held.
func (h *Discovery) logUnrouted(s *service) {
	if text := s.result.Unrouted; text != s.unrouted {
		if s.unrouted = text; text != "" {
			h.options.Log.Warn("some groups or versions of a service have no routes", logService, s.key.String(), logError, text)
		}
	}
}

func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// maxApplyAttempts bounds the attempts to isolate the failing services of a change.
const maxApplyAttempts = 64

// applyBatch applies a batch. If that fails, it applies each half separately, so that a failing
// service does not block others.
func (h *Discovery) applyBatch(ctx context.Context, batch []pendingChange, budget *int) {
	*budget--
	err := h.apply(ctx, batch)
	switch {
	case err == nil:
		h.markApplied(batch)
	case len(batch) == 1 || *budget <= 0 || ctx.Err() != nil:
		h.markFailed(batch, err)
	default:
		half := len(batch) / 2
		h.applyBatch(ctx, batch[:half], budget)
		h.applyBatch(ctx, batch[half:], budget)
	}
}

// apply applies a batch completely or not at all.
func (h *Discovery) apply(ctx context.Context, batch []pendingChange) error {
	h.mu.Lock()
	before := make([]resources, len(batch))
	var c Change
	routes := false
	for i := range batch {
		a := &batch[i]
		before[i] = a.service.active
		for _, old := range before[i].clusters {
			if a.next.cluster(old.Name) == nil {
				c.Removed = append(c.Removed, old.Name)
			}
		}
		for _, cluster := range a.next.clusters {
			if a.service.reapply || cluster != before[i].cluster(cluster.Name) {
				c.Clusters = append(c.Clusters, cluster)
			}
		}
		routes = routes || a.service.reapply || !sameRoutes(a.next.routes, before[i].routes)
		a.service.active = a.next
	}
	if routes {
		c.Routes = h.routeTable()
	}
	h.mu.Unlock()
	if c.Clusters == nil && c.Removed == nil && c.Routes == nil {
		return nil
	}
	slices.SortFunc(c.Clusters, func(a, b *config.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(c.Removed)
	err := h.options.Apply(ctx, c)
	if err == nil {
		h.appliedChanges.Add(1)
		return nil
	}
	h.applyFailures.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range batch {
		batch[i].service.active = before[i]
	}
	return err
}

// sameRoutes reports whether a and b are the same slice; see keep.
func sameRoutes(a, b []*config.Route) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// routeTable returns the route table of all active services. mu is held.
func (h *Discovery) routeTable() *config.RouteTable {
	ordered := make([]*service, 0, len(h.services))
	for _, s := range h.services {
		if s.active.routes != nil {
			ordered = append(ordered, s)
		}
	}
	slices.SortFunc(ordered, func(a, b *service) int { return plan.Compare(a.key, b.key) })
	routes := make([][]*config.Route, len(ordered))
	for i, s := range ordered {
		routes[i] = s.active.routes
	}
	return plan.RouteTable(routes)
}

// markApplied records that a batch is active.
func (h *Discovery) markApplied(batch []pendingChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range batch {
		s := a.service
		s.appliedChange, s.err, s.backoff, s.reapply = a.number, nil, 0, false
		if len(s.sources) == 0 && s.active.clusters == nil {
			delete(h.services, s.key)
		}
	}
}

// markFailed records why a batch is not active, and schedules a retry.
func (h *Discovery) markFailed(batch []pendingChange, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := batch[0].service.key.String()
	if more := len(batch) - 1; more > 0 {
		names = fmt.Sprintf("%s and %d more", names, more)
	}
	if h.runCtx.Err() == nil { // else the error is irrelevant
		h.options.Log.Error("cannot apply services; retrying", logServices, names, logError, err)
	}
	for _, a := range batch {
		s := a.service
		s.failedChange, s.err = a.number, err
		s.backoff = min(max(2*s.backoff, minBackoff), maxBackoff)
		h.dueAt[s] = earlierOf(h.dueAt[s], time.Now().Add(s.backoff))
	}
}

// ReapplyRestored makes Run apply the services of the state file as new ones, for a caller that could
// not start with the result of Resources. It must be called before Run.
func (h *Discovery) ReapplyRestored() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.services {
		s.active, s.reapply = resources{}, false
	}
}

// Resources returns the desired clusters and route table: the result of all changes so far, and of
// the one that is being applied. The table is never nil.
func (h *Discovery) Resources() (clusters []*config.Cluster, routes *config.RouteTable) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.services {
		clusters = append(clusters, s.active.clusters...)
	}
	slices.SortFunc(clusters, func(a, b *config.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return clusters, h.routeTable()
}
