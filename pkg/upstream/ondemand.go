package upstream

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// The hosts of a cluster may be on demand (config.OnDemand): the cluster has no hosts while nothing
// uses it. The owner of the configuration applies an unsubscribed cluster without hosts, and a
// subscribed one with hosts:
//
//	              an exchange requests hosts and waits
//	unsubscribed ─────────────────────────────────────────▶ subscribed
//	             ◀─────────────────────────────────────────
//	              OnDemandClusters.InUse stays false
//
// An exchange to a subscribed on-demand cluster costs one atomic load more than an exchange to
// another cluster.

// OnDemandClusters reports which on-demand clusters need their hosts. It is a view of its set. Safe
// for concurrent use.
type OnDemandClusters struct{ set *Set }

// OnDemand returns the on-demand clusters of the set.
func (s *Set) OnDemand() OnDemandClusters { return OnDemandClusters{s} }

// Requested returns a channel that delivers a value when TakeRequested may have names. Only one
// goroutine may receive from it.
func (d OnDemandClusters) Requested() <-chan struct{} { return d.set.env.hostRequests.Requested() }

// TakeRequested returns the names of the clusters whose hosts were requested since its last call,
// sorted. Some clusters may have hosts by now, or no longer be configured.
func (d OnDemandClusters) TakeRequested() []string { return d.set.env.hostRequests.Take() }

// InUse reports whether the cluster has an exchange in flight, or was used since the last call of
// InUse with this name.
func (d OnDemandClusters) InUse(name string) bool {
	c := d.set.Find(name)
	return c != nil && (c.onDemand.ResetUsed() || c.InFlight() > 0)
}

// RequestHosts marks the cluster as used and requests its hosts if they are not subscribed. It does
// not wait.
func (c *Cluster) RequestHosts() {
	if c.mustAwaitHosts(c.state.Load()) {
		c.env.hostRequests.Request(c.name)
	}
}

// mustAwaitHosts records that an exchange uses the cluster, and reports whether the exchange has to
// wait for hosts. s is the cluster's state, nil if it was never configured. An exchange that need
// not wait continues with s, because a newer state may have no hosts.
func (c *Cluster) mustAwaitHosts(s *state) bool {
	if s == nil || !s.onDemand {
		return false
	}
	c.onDemand.MarkUsed()
	return s.unsubscribed()
}

// unsubscribed reports whether the hosts must be requested.
func (s *state) unsubscribed() bool {
	return s.onDemand && s.config.OnDemand.Unsubscribed && !s.removed
}

// waitForHosts sends an exchange to a cluster after waiting for its hosts.
type waitForHosts struct{ *ClusterPicker }

// Serve implements protocol.BlockingService.
func (w waitForHosts) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	if err := w.Cluster.awaitHosts(ctx, w.Cluster.Breaker(w.Priority), x.EffectiveDeadline(), x.Downstream); err != nil {
		return err
	}
	return x.Serve(ctx, w.ClusterPicker)
}

// awaitHosts requests the hosts of the cluster and waits for them; the exchange is pending
// meanwhile. Errors are Faults: Overflow, ReasonOnDemandTimeout, UpstreamTimeout at the deadline
// (zero: none), or ReasonDownstreamDisconnect.
func (c *Cluster) awaitHosts(ctx context.Context, b *breaker.Breaker, deadline time.Time, downstream protocol.Downstream) error {
	if err := b.EnterPending(); err != nil {
		return err
	}
	defer b.LeavePending()
	available := c.onDemand.Wait()
	s := c.state.Load()
	if !s.unsubscribed() {
		return nil
	}
	c.env.hostRequests.Request(c.name)
	waitDeadline, timeoutReason := time.Now().Add(s.config.OnDemand.Wait), protocol.ReasonOnDemandTimeout
	if !deadline.IsZero() && deadline.Before(waitDeadline) {
		waitDeadline, timeoutReason = deadline, protocol.UpstreamTimeout
	}
	switch _, reason := wait.For(ctx, waitDeadline, downstream, available); reason {
	case protocol.ReasonNone:
		return nil
	case protocol.UpstreamTimeout:
		return protocol.Faultf(timeoutReason, "cluster %s: its hosts were requested, but did not arrive in time", c.name)
	default:
		return protocol.Faultf(reason, "while waiting for the hosts of cluster %s", c.name)
	}
}
