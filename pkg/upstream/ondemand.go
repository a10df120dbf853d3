package upstream

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// The hosts of a cluster may be on demand (config.OnDemand): they are not there while
// nobody uses it. Who keeps them so gives the set a configuration that is asleep, and one
// that is awake with the hosts:
//
//	          an exchange comes: it asks, and waits
//	asleep ─────────────────────────────────────────▶ awake
//	       ◀─────────────────────────────────────────
//	          Demand.Used has said for long that nobody does
//
// Exchanges that come to one that is awake pay for a load.

// OnDemandClusters is how whoever keeps the hosts of clusters on demand learns of which they are
// needed. It is a view of its set. Safe for concurrent use.
type OnDemandClusters struct{ set *Set }

// Demand returns the demand for the set's clusters.
func (s *Set) Demand() OnDemandClusters { return OnDemandClusters{s} }

// Requested receives when Take may have something. It is one receiver's.
func (d OnDemandClusters) Requested() <-chan struct{} { return d.set.env.desk.Asked() }

// TakeRequested returns the names of the clusters whose hosts were asked for since it was called
// last, in order. Some may have hosts by now, or not be configured any more.
func (d OnDemandClusters) TakeRequested() []string { return d.set.env.desk.Take() }

// Used reports whether an exchange is in a cluster, or has come since it was called last.
func (d OnDemandClusters) Used(name string) bool {
	c := d.set.Find(name)
	return c != nil && (c.onDemand.Used() || c.InFlight() > 0)
}

// RequestHosts notes that the hosts are looked at, and asks for them if they are not there. It does
// not wait.
func (c *Cluster) RequestHosts() {
	if c.mustWait(c.state.Load()) {
		c.env.desk.Ask(c.name)
	}
}

// mustWait notes that an exchange has come to s, nil for a cluster that never was configured,
// and reports whether it has to wait for hosts. An exchange goes on by the state that was
// asked about: the next one may be asleep.
func (c *Cluster) mustWait(s *state) bool {
	if s == nil || !s.demand {
		return false
	}
	c.onDemand.Use()
	return s.unsubscribed()
}

// unsubscribed reports whether hosts are to be asked for.
func (s *state) unsubscribed() bool { return s.demand && s.config.OnDemand.Asleep && !s.removed }

// waitForHosts goes into a cluster whose hosts have to be waited for.
type waitForHosts struct{ *ClusterPicker }

// Serve is protocol.Service's.
func (l waitForHosts) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	if err := l.Cluster.Breaker(l.Priority).awaitHosts(ctx, x.EffectiveDeadline(), x.Caller); err != nil {
		return err
	}
	return l.ClusterPicker.Serve(ctx, x)
}

// awaitHosts asks for the hosts of the cluster and waits until they are there, as one of
// those who wait for a connection. Errors are Faults: Overflow, NotSupplied,
// UpstreamTimeout at the deadline (zero: there is none), or DownstreamGone.
func (b *Breaker) awaitHosts(ctx context.Context, deadline time.Time, caller protocol.Downstream) error {
	if err := b.enterPending(); err != nil {
		return err
	}
	defer b.pending.Add(-1)
	c := b.cluster
	come := c.onDemand.Wait()
	s := c.state.Load()
	if !s.unsubscribed() {
		return nil
	}
	c.env.desk.Ask(c.name)
	until, late := time.Now().Add(s.config.OnDemand.Wait), protocol.ReasonOnDemandTimeout
	if !deadline.IsZero() && deadline.Before(until) {
		until, late = deadline, protocol.UpstreamTimeout
	}
	switch _, why := await(ctx, until, caller, come); why {
	case protocol.ReasonNone:
		return nil
	case protocol.UpstreamTimeout:
		return protocol.Faultf(late, "cluster %s: its hosts were asked for, and have not come", c.name)
	default:
		return protocol.Faultf(why, "while the hosts of cluster %s were waited for", c.name)
	}
}
