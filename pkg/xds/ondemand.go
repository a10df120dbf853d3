package xds

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// OnDemand reports which resources requests need, for resources that are fetched on first use. It
// is safe for concurrent use.
type OnDemand interface {
	// Requested receives when TakeRequested may return names.
	Requested() <-chan struct{}
	// TakeRequested returns the names that were requested since its last call.
	TakeRequested() []string
	// InUse reports whether the named resource is in use, or was since the last call.
	InUse(name string) bool
}

// idleChecksPerTimeout is the number of idle checks per idle timeout.
const idleChecksPerTimeout = 4

// onDemandLoop is the on-demand part of the event loop. Its zero value fetches nothing on demand.
type onDemandLoop struct {
	clusters, routes <-chan struct{} // immutable; receive when names were requested
	idleTimer        *time.Timer     // runs while something is subscribed on demand
	idleTimerSet     bool            // idleTimer is set; guarded by the Source's applyMu

	unsubscribedClusters, unsubscribedRoutes atomic.Int64 // for metrics
}

// startOnDemand enables on-demand loading as configured in the bootstrap.
func (s *Source) startOnDemand() {
	n := &s.onDemand
	n.idleTimer = time.NewTimer(time.Hour)
	n.idleTimer.Stop()
	if s.state.onDemand = newOnDemandState(s.opts.Bootstrap.OnDemand); s.state.onDemand != nil {
		n.clusters, n.routes = s.opts.Clusters.Requested(), s.opts.Routes.Requested()
	}
	if s.opts.Metrics != nil {
		s.opts.Metrics.Func(metrics.XDSUnsubscribed, func() float64 { return float64(n.unsubscribedClusters.Load()) }, "cluster")
		s.opts.Metrics.Func(metrics.XDSUnsubscribed, func() float64 { return float64(n.unsubscribedRoutes.Load()) }, "route")
	}
}

// updateUnsubscribedCounts updates the counts of unsubscribed resources. tables: the set of
// referenced tables may have changed. Called with applyMu held.
func (s *Source) updateUnsubscribedCounts(tables bool) {
	if s.state.onDemand == nil {
		return
	}
	s.onDemand.unsubscribedClusters.Store(int64(s.state.references.unsubscribed))
	if tables {
		s.onDemand.unsubscribedRoutes.Store(int64(len(s.state.unsubscribedTables())))
	}
}

// subscribeRequested subscribes to the resources that requests need.
func (s *Source) subscribeRequested(ctx context.Context) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.commit()
	now := time.Now()
	s.state.checkpoint()
	began := false
	for _, name := range s.opts.Clusters.TakeRequested() {
		began = s.state.subscribeCluster(name, now) || began
	}
	for _, name := range s.opts.Routes.TakeRequested() {
		began = s.state.subscribeTable(name, now) || began
	}
	if began {
		s.reconcileOnDemand(ctx)
		s.scheduleIdleCheck()
	}
}

// unsubscribeIdle unsubscribes from resources that have been idle for the idle timeout.
func (s *Source) unsubscribeIdle(ctx context.Context) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.commit()
	s.onDemand.idleTimerSet = false
	now, l := time.Now(), s.state.onDemand
	s.state.checkpoint()
	clusters := l.clusters.idleNames(s.opts.Clusters.InUse, now, l.Idle)
	for _, name := range clusters {
		s.state.unsubscribeCluster(name)
	}
	tables := l.tables.idleNames(s.opts.Routes.InUse, now, l.Idle)
	for _, name := range tables {
		s.state.unsubscribeTable(name)
	}
	if len(clusters)+len(tables) > 0 {
		s.reconcileOnDemand(ctx)
	}
	s.scheduleIdleCheck()
}

// idleNames returns the names that have been unused for at least idle.
func (f *onDemandSet) idleNames(used func(name string) bool, now time.Time, idle time.Duration) (names []string) {
	for name, one := range f.entries {
		switch {
		case used(name):
			one.lastUsed = now
		case now.Sub(one.lastUsed) >= idle:
			names = append(names, name)
		}
	}
	return names
}

// scheduleIdleCheck sets the idle timer if anything is subscribed on demand. Called with applyMu
// held.
func (s *Source) scheduleIdleCheck() {
	l := s.state.onDemand
	if s.onDemand.idleTimerSet || len(l.clusters.entries)+len(l.tables.entries) == 0 {
		return
	}
	s.onDemand.idleTimerSet = true
	s.onDemand.idleTimer.Reset(l.Idle / idleChecksPerTimeout)
}

// reconcileOnDemand applies which resources are subscribed before it updates the subscriptions, so
// that no active cluster relies on endpoints that were dropped.
func (s *Source) reconcileOnDemand(ctx context.Context) {
	s.reconcileExpired(ctx)
	s.updateSubscriptions()
	s.updateResourceCounts()
}

// subscribeCached subscribes to the resources of the xDS cache, which were in use when it was
// saved. Called with applyMu held.
func (s *Source) subscribeCached(u ads.Update, now time.Time) {
	if s.state.onDemand == nil {
		return
	}
	kept := map[string]bool{}
	for _, n := range u.Changed {
		kept[n.Name] = true
	}
	switch u.Type {
	case resource.EndpointType:
		for name, c := range s.state.clusters {
			if c.received != nil && kept[c.received.EDSServiceName] {
				s.state.subscribeCluster(name, now)
			}
		}
	case resource.RouteType:
		for name := range kept {
			s.state.subscribeTable(name, now)
		}
	case resource.DubboRouteType:
		for name := range kept {
			s.state.subscribeTable(resource.DubboTableName(name), now)
		}
	}
	s.updateSubscriptions()
	s.scheduleIdleCheck()
}
