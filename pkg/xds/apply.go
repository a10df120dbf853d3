package xds

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// applyUpdate applies the valid resources of an update and returns the rejected ones.
func (s *Source) applyUpdate(ctx context.Context, ch *channel, u ads.Update, now time.Time) (rejected []ads.ResourceError) {
	s.state.Checkpoint()
	rejected = s.stage(ch, u, now)
	c, err := s.reconcile(ctx)
	if err == nil {
		return rejected
	}
	// Apply failed for a reason outside the resources, such as a port in use or a missing file.
	s.state.Rollback()
	if u.Type != resource.ListenerType && len(c.ActivatedListeners) > 0 {
		// The cause may be a listener that this update completes, not the update itself.
		s.state.Checkpoint()
		rejected = s.stage(ch, u, now)
		for _, name := range c.ActivatedListeners {
			s.state.HoldBack(name)
		}
		if _, err := s.reconcile(ctx); err == nil {
			s.applyHeldListeners(ctx, c.ActivatedListeners)
			return rejected
		}
		s.state.Rollback()
	}
	attempts := maxApplyAttempts
	s.state.PauseWarmup(true)
	rejected = s.applyBisected(ctx, ch, u, now, err, &attempts)
	s.state.PauseWarmup(false)
	s.state.Checkpoint()
	s.reconcileExpired(ctx) // ends the warm-up if only PauseWarmup kept it from ending
	return rejected
}

// stage stores the valid resources of an update in the state and returns the rejected ones. It
// reports the fields that this build does not know.
func (s *Source) stage(ch *channel, u ads.Update, now time.Time) (rejected []ads.ResourceError) {
	staged := s.state.Stage(ch.client, ch.secretSource, u, now)
	for _, c := range staged.NameConflicts {
		s.nameConflicts[resourceKey{u.Type, c.Rejected}] = resourceKey{c.Type, c.Name}
	}
	for _, unknown := range staged.Unknown {
		s.reportUnknownFields(u.Type, unknown)
	}
	for _, layer := range staged.AwaitedLayers {
		s.opts.Log.Error("still waiting for a runtime layer that was rejected", logResource, layer.Name, logError, layer.Reason)
	}
	return staged.Rejected
}

// maxApplyAttempts limits how many parts of one failed update are applied separately.
const maxApplyAttempts = 256

// applyBisected applies the parts of an update that failed with err. It tries the removals and the
// changes separately, then halves of the changes, recursively. After maxApplyAttempts it no
// longer splits a part that fails, but rejects the whole part. It returns the rejected resources.
func (s *Source) applyBisected(ctx context.Context, ch *channel, u ads.Update, now time.Time, err error, attempts *int) (rejected []ads.ResourceError) {
	half := len(u.Changed) / 2
	parts := []ads.Update{{Type: u.Type, Changed: u.Changed[:half]}, {Type: u.Type, Changed: u.Changed[half:]}}
	switch {
	case *attempts > 0 && len(u.Changed) > 0 && len(u.Removed) > 0:
		parts = []ads.Update{{Type: u.Type, Removed: u.Removed}, {Type: u.Type, Changed: u.Changed}}
	case len(u.Changed) <= 1 || *attempts <= 0:
		s.reapplyActive(ctx)
		for _, r := range u.Changed {
			rejected = append(rejected, ads.ResourceError{Name: r.Name, Reason: err.Error()})
		}
		for _, name := range u.Removed {
			rejected = append(rejected, ads.ResourceError{Name: name, Reason: err.Error()})
		}
		return rejected
	}
	for _, part := range parts {
		*attempts--
		s.state.Checkpoint()
		partRejected := s.stage(ch, part, now)
		if _, err := s.reconcile(ctx); err != nil {
			s.state.Rollback()
			partRejected = s.applyBisected(ctx, ch, part, now, err, attempts)
		}
		rejected = append(rejected, partRejected...)
	}
	return rejected
}

// applyHeldListeners applies held listeners one by one. A listener that fails stays held back until
// the listener, or a resource that the listener refers to, changes.
func (s *Source) applyHeldListeners(ctx context.Context, names []string) {
	for _, name := range names {
		s.state.Checkpoint()
		s.state.Release(name)
		if _, err := s.reconcile(ctx); err != nil {
			s.state.Rollback()
			s.reapplyActive(ctx)
			s.opts.Log.Error("cannot apply listener", logResource, name, logReason, err)
			s.recordRejection(name, err)
		}
	}
}

// recordRejection records that a listener could not be applied.
func (s *Source) recordRejection(listener string, err error) {
	if ch := s.channelOf(resource.ListenerType); ch != nil {
		ch.history.RecordRejection(resource.ListenerType, listener, err.Error(), time.Now())
	}
}

// reapplyActive applies the previous configuration after a rollback. If that fails, the next
// reconcile tries again.
func (s *Source) reapplyActive(ctx context.Context) {
	s.state.Checkpoint()
	if _, err := s.reconcile(ctx); err != nil {
		s.state.Rollback()
		s.opts.Log.Error("cannot restore the previous configuration", logError, err)
	}
}

// reconcileExpired applies resources that became ready without a response: by timeout, or because a
// resource is subscribed or unsubscribed on demand. If Apply fails, reconcileExpired holds back the
// new listeners, restarts the waits of the changed clusters and applies the rest. The caller holds
// the lock of the stack and has called Checkpoint.
func (s *Source) reconcileExpired(ctx context.Context) {
	c, err := s.reconcile(ctx)
	if err == nil {
		return
	}
	s.state.Rollback()
	for _, name := range c.ActivatedListeners {
		s.state.HoldBack(name)
	}
	now := time.Now()
	for _, cluster := range c.Clusters {
		s.state.RestartWait(cluster.Name, now)
	}
	s.opts.Log.Error("cannot apply resources that finished warming", logError, err)
	s.reapplyActive(ctx)
	s.applyHeldListeners(ctx, c.ActivatedListeners)
}

// reconcile applies the resources that are complete. It returns the change even if applying it
// fails.
func (s *Source) reconcile(ctx context.Context) (state.Change, error) {
	now := time.Now()
	c, next := s.state.Reconcile(now)
	s.deadlineTimer.Stop()
	if !next.IsZero() {
		s.deadlineTimer.Reset(next.Sub(now))
	}
	if c.IsEmpty() {
		return c, nil
	}
	if c.ListenersChanged || len(c.RemovedClusters) > 0 {
		return c, s.stack.Apply(ctx, config.Delta{Full: true})
	}
	return c, s.stack.Apply(ctx, config.Delta{Clusters: s.withoutOmitted(c.Clusters), Routes: c.Tables})
}
