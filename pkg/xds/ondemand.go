package xds

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// OnDemand is where exchanges come for what is left with the control plane until it is
// used. Safe for concurrent use.
type OnDemand interface {
	// Requested receives when Take may have something.
	Requested() <-chan struct{}
	// TakeRequested returns the names of what was asked for since it was called last.
	TakeRequested() []string
	// InUse reports whether what has a name is being used, or was since this was called
	// last.
	InUse(name string) bool
}

// idleChecksPerTimeout is how often it is looked, in the time after which something is dropped,
// whether it is used.
const idleChecksPerTimeout = 4

// onDemandLoop is what a Source needs to leave resources with the control plane. The zero value
// leaves nothing there.
type onDemandLoop struct {
	clusters, routes <-chan struct{} // immutable; receive when some were asked for
	idleTimer        *time.Timer     // set while something is awake
	idleTimerSet     bool            // it is set; guarded by the Source's work

	unsubscribedClusters, unsubscribedRoutes atomic.Int64 // for metrics
}

// startOnDemand has the Source leave with the control plane what its bootstrap says.
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

// updateUnsubscribedCounts has the numbers of those that are asleep be right again; tables: other tables
// may be than before. s.work is held.
func (s *Source) updateUnsubscribedCounts(tables bool) {
	if s.state.onDemand == nil {
		return
	}
	s.onDemand.unsubscribedClusters.Store(int64(s.state.references.unsubscribed))
	if tables {
		s.onDemand.unsubscribedRoutes.Store(int64(len(s.state.unsubscribedTables())))
	}
}

// subscribeRequested asks for what exchanges have come for.
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

// unsubscribeIdle drops what nobody has used for long enough.
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

// idleNames are those that were not used for a time.
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

// scheduleIdleCheck has doze called, if anything is awake. s.work is held.
func (s *Source) scheduleIdleCheck() {
	l := s.state.onDemand
	if s.onDemand.idleTimerSet || len(l.clusters.entries)+len(l.tables.entries) == 0 {
		return
	}
	s.onDemand.idleTimerSet = true
	s.onDemand.idleTimer.Reset(l.Idle / idleChecksPerTimeout)
}

// reconcileOnDemand puts in force who is asleep and who is not, and then asks for what is wanted
// now, so that nobody is without hosts who thinks that they are there.
func (s *Source) reconcileOnDemand(ctx context.Context) {
	s.reconcileExpired(ctx)
	s.updateSubscriptions()
	s.updateResourceCounts()
}

// subscribeCached asks for what has been kept on disk: that was in use. s.work is held.
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
