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
func (s *Source) applyUpdate(ctx context.Context, f *channel, u ads.Update, now time.Time) (wrong []ads.ResourceError) {
	s.state.Checkpoint()
	wrong = s.stage(f, u, now)
	c, err := s.reconcile(ctx)
	if err == nil {
		return wrong
	}
	// Apply failed for a reason outside the resources: a port is in use, a file is missing.
	s.state.Rollback()
	if u.Type != resource.ListenerType && len(c.ActivatedListeners) > 0 {
		// The cause may be a listener that this update completes, not the update itself.
		s.state.Checkpoint()
		wrong = s.stage(f, u, now)
		for _, name := range c.ActivatedListeners {
			s.state.HoldBack(name)
		}
		if _, err := s.reconcile(ctx); err == nil {
			s.applyHeldListeners(ctx, c.ActivatedListeners)
			return wrong
		}
		s.state.Rollback()
	}
	tries := maxApplyAttempts
	s.state.PauseWarmup(true)
	wrong = s.applyBisected(ctx, f, u, now, err, &tries)
	s.state.PauseWarmup(false)
	s.state.Checkpoint()
	s.reconcileExpired(ctx) // the update may have been what the warm-up waited for
	return wrong
}

// stage stores the valid resources of an update in the state and returns the rejected ones. It
// reports the fields that this build does not know.
func (s *Source) stage(f *channel, u ads.Update, now time.Time) (wrong []ads.ResourceError) {
	staged := s.state.Stage(f.client, f.secretSource, u, now)
	for _, name := range staged.NameConflicts {
		s.nameConflicts[resourceKey{u.Type, name}] = true
	}
	for _, one := range staged.Unknown {
		s.reportUnknownFields(u.Type, one)
	}
	for _, one := range staged.AwaitedLayers {
		s.opts.Log.Error("still waiting for a runtime layer that was rejected", logResource, one.Name, logError, one.Reason)
	}
	return staged.Rejected
}

// maxApplyAttempts limits how many parts of one failed update are applied separately.
const maxApplyAttempts = 256

// applyBisected applies the parts of an update that failed as a whole with err. It tries the
// removals and the changes separately, then halves of the changes, recursively, and returns the
// resources that cannot be applied.
func (s *Source) applyBisected(ctx context.Context, f *channel, u ads.Update, now time.Time, err error, tries *int) (wrong []ads.ResourceError) {
	half := len(u.Changed) / 2
	parts := []ads.Update{{Type: u.Type, Changed: u.Changed[:half]}, {Type: u.Type, Changed: u.Changed[half:]}}
	switch {
	case *tries > 0 && len(u.Changed) > 0 && len(u.Removed) > 0:
		parts = []ads.Update{{Type: u.Type, Removed: u.Removed}, {Type: u.Type, Changed: u.Changed}}
	case len(u.Changed) <= 1 || *tries <= 0:
		s.reapplyActive(ctx)
		for _, n := range u.Changed {
			wrong = append(wrong, ads.ResourceError{Name: n.Name, Reason: err.Error()})
		}
		for _, name := range u.Removed {
			wrong = append(wrong, ads.ResourceError{Name: name, Reason: err.Error()})
		}
		return wrong
	}
	for _, part := range parts {
		*tries--
		s.state.Checkpoint()
		bad := s.stage(f, part, now)
		if _, err := s.reconcile(ctx); err != nil {
			s.state.Rollback()
			bad = s.applyBisected(ctx, f, part, now, err, tries)
		}
		wrong = append(wrong, bad...)
	}
	return wrong
}

// applyHeldListeners applies held listeners one by one. A listener that fails stays held back until
// it, or a resource it refers to, changes.
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
	if f := s.mainChannel(); f != nil {
		f.history.RecordRejection(resource.ListenerType, listener, err.Error(), time.Now())
	}
}

// reapplyActive applies the state after a rollback, which is the previous configuration. If that
// fails, the next reconcile tries again.
func (s *Source) reapplyActive(ctx context.Context) {
	s.state.Checkpoint()
	if _, err := s.reconcile(ctx); err != nil {
		s.state.Rollback()
		s.opts.Log.Error("cannot restore the previous configuration", logError, err)
	}
}

// reconcileExpired applies resources that became ready without a response: by timeout, or because a
// resource is subscribed or unsubscribed on demand. If Apply fails, it holds back the listeners
// that it activated and applies the rest. Called with the stack locked and after a checkpoint.
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
	for _, one := range c.Clusters {
		s.state.RestartWait(one.Name, now)
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
