package xds

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/xds/ads"
)

// OnDemand reports which resources requests need, for resources that are fetched on first use. It
// is safe for concurrent use.
type OnDemand interface {
	// Requested returns a channel that receives a value when TakeRequested may return names.
	Requested() <-chan struct{}
	// TakeRequested returns the names that were requested since its last call.
	TakeRequested() []string
	// InUse reports whether the named resource is in use, or has been used since the last call for
	// this name.
	InUse(name string) bool
}

// idleChecksPerTimeout is the number of idle checks per idle timeout.
const idleChecksPerTimeout = 4

// onDemandLoop is the part of the event loop that fetches resources on demand. The zero value
// fetches none.
type onDemandLoop struct {
	clusters, routes <-chan struct{} // immutable; receive a value when requests need names
	idleTimer        *time.Timer     // runs while an on-demand resource is pending or subscribed
	idleTimerSet     bool            // idleTimer is set; guarded by the Source's stack

	unsubscribedClusters, unsubscribedRoutes atomic.Int64 // for metrics
}

// onDemandEnabled reports whether resources are fetched on first use.
func (s *Source) onDemandEnabled() bool { return s.opts.Bootstrap.OnDemand.Idle > 0 }

// startOnDemand enables on-demand loading, if the bootstrap configures it, and registers its
// metrics.
func (s *Source) startOnDemand() {
	o := &s.onDemand
	o.idleTimer = time.NewTimer(time.Hour)
	o.idleTimer.Stop()
	if s.onDemandEnabled() {
		o.clusters, o.routes = s.opts.Clusters.Requested(), s.opts.Routes.Requested()
	}
	if s.opts.Metrics != nil {
		s.opts.Metrics.Func(metrics.XDSUnsubscribed, func() float64 { return float64(o.unsubscribedClusters.Load()) }, "cluster")
		s.opts.Metrics.Func(metrics.XDSUnsubscribed, func() float64 { return float64(o.unsubscribedRoutes.Load()) }, "route")
	}
}

// updateUnsubscribedCounts updates the counts of unsubscribed resources. tablesChanged means that
// the set of referenced tables may have changed. The caller holds the lock of the stack.
func (s *Source) updateUnsubscribedCounts(tablesChanged bool) {
	if !s.onDemandEnabled() {
		return
	}
	s.onDemand.unsubscribedClusters.Store(int64(s.state.UnsubscribedClusters()))
	if tablesChanged {
		s.onDemand.unsubscribedRoutes.Store(int64(s.state.UnsubscribedTables()))
	}
}

// subscribeRequested subscribes to the resources that requests need.
func (s *Source) subscribeRequested(ctx context.Context) {
	s.stack.Lock()
	defer s.stack.Unlock()
	defer s.state.Checkpoint()
	now := time.Now()
	s.state.Checkpoint()
	subscribed := false
	for _, name := range s.opts.Clusters.TakeRequested() {
		subscribed = s.state.SubscribeCluster(name, now) || subscribed
	}
	for _, name := range s.opts.Routes.TakeRequested() {
		subscribed = s.state.SubscribeTable(name, now) || subscribed
	}
	if subscribed {
		s.reconcileOnDemand(ctx)
		s.scheduleIdleCheck()
	}
}

// unsubscribeIdle unsubscribes from the resources that have been idle for the idle timeout.
func (s *Source) unsubscribeIdle(ctx context.Context, now time.Time) {
	s.stack.Lock()
	defer s.stack.Unlock()
	defer s.state.Checkpoint()
	s.onDemand.idleTimerSet = false
	s.state.Checkpoint()
	if s.state.UnsubscribeIdle(s.opts.Clusters.InUse, s.opts.Routes.InUse, now) {
		s.reconcileOnDemand(ctx)
	}
	s.scheduleIdleCheck()
}

// scheduleIdleCheck sets the idle timer, unless the timer is set or no on-demand resource is
// pending or subscribed. The caller holds the lock of the stack.
func (s *Source) scheduleIdleCheck() {
	if s.onDemand.idleTimerSet || !s.state.HasOnDemand() {
		return
	}
	s.onDemand.idleTimerSet = true
	s.onDemand.idleTimer.Reset(s.opts.Bootstrap.OnDemand.Idle / idleChecksPerTimeout)
}

// reconcileOnDemand applies the new set of subscribed resources, then updates the subscriptions.
// This order ensures that no active cluster uses endpoints that were dropped.
func (s *Source) reconcileOnDemand(ctx context.Context) {
	s.reconcileExpired(ctx)
	s.updateSubscriptions()
	s.updateResourceCounts()
}

// subscribeCached subscribes to resources of the xDS cache, which an earlier process received on
// demand. The caller holds the lock of the stack.
func (s *Source) subscribeCached(u ads.Update, now time.Time) {
	if !s.onDemandEnabled() {
		return
	}
	s.state.SubscribeCached(u, now)
	s.updateSubscriptions()
	s.scheduleIdleCheck()
}
