package dubbo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/layers"
)

// maxApplyAttempts bounds the attempts to isolate the failing services of a change.
const maxApplyAttempts = 64

// applyBatch applies a batch. If that fails, it applies each half separately, so that a failing
// service does not block others. budget is the number of attempts left.
func (p *planner) applyBatch(ctx context.Context, batch []pendingChange, budget *int) {
	*budget--
	err := p.apply(ctx, batch)
	switch {
	case err == nil:
		p.markApplied(batch)
	case len(batch) == 1 || *budget <= 0 || ctx.Err() != nil:
		p.markFailed(ctx, batch, err)
	default:
		half := len(batch) / 2
		p.applyBatch(ctx, batch[:half], budget)
		p.applyBatch(ctx, batch[half:], budget)
	}
}

// apply applies a batch completely or not at all.
func (p *planner) apply(ctx context.Context, batch []pendingChange) error {
	before := make([]resources, len(batch))
	for i, a := range batch {
		before[i] = a.service.active
	}
	c := p.beginApply(batch)
	if c.Clusters == nil && c.Removed == nil && c.Routes == nil {
		return nil
	}
	err := p.activate(ctx, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.appliedCount++
		return nil
	}
	p.failureCount++
	for i := range batch {
		batch[i].service.active = before[i]
	}
	return err
}

// beginApply makes the next resources of a batch the active ones, and returns the change for
// activate.
func (p *planner) beginApply(batch []pendingChange) (c layers.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	routesChanged := false
	for i := range batch {
		a := &batch[i]
		before := a.service.active
		for _, old := range before.clusters {
			if a.next.cluster(old.Name) == nil {
				c.Removed = append(c.Removed, old.Name)
			}
		}
		for _, cluster := range a.next.clusters {
			if a.service.mustReapply || cluster != before.cluster(cluster.Name) {
				c.Clusters = append(c.Clusters, cluster)
			}
		}
		routesChanged = routesChanged || a.service.mustReapply || !sameRoutes(a.next.routes, before.routes)
		a.service.active = a.next
	}
	if routesChanged {
		c.Routes = p.routeTable()
	}
	slices.SortFunc(c.Clusters, func(a, b *config.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(c.Removed)
	return c
}

// sameRoutes reports whether a and b are the same slice; see reuseEqual.
func sameRoutes(a, b []*config.Route) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// routeTable returns the route table of all active services. The caller holds mu.
func (p *planner) routeTable() *config.RouteTable {
	ordered := make([]*service, 0, len(p.services))
	for _, s := range p.services {
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

// markApplied records that a batch is active. It drops services to which nothing subscribes.
func (p *planner) markApplied(batch []pendingChange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range batch {
		s := a.service
		s.appliedChange, s.err, s.backoff, s.mustReapply = a.number, nil, 0, false
		if s.active.clusters == nil && s.requestedChange == a.number {
			delete(p.services, s.key)
			delete(p.dirtyServices, s)
		}
	}
}

// markFailed records why a batch is not active, and schedules a retry.
func (p *planner) markFailed(ctx context.Context, batch []pendingChange, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := batch[0].service.key.String()
	if more := len(batch) - 1; more > 0 {
		names = fmt.Sprintf("%s and %d more", names, more)
	}
	if ctx.Err() == nil { // otherwise the process shuts down, which causes errors
		p.log.Error("cannot apply services; retrying", logServices, names, logError, err)
	}
	for _, a := range batch {
		s := a.service
		s.failedChange, s.err = a.number, err
		s.backoff = min(max(2*s.backoff, minBackoff), maxBackoff)
		p.dueAt[s] = earlierOf(p.dueAt[s], time.Now().Add(s.backoff))
	}
}
