package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
	"github.com/weft-proxy/weft/pkg/upstream"
)

var errDraining = errors.New("the server is draining")

// Apply makes the next configuration the active one. It first creates and binds everything new; on
// an error it undoes that and the previous configuration stays. Then the new one takes over, and
// removed parts drain. ctx is the lifetime of new listeners. Apply is safe for concurrent use; calls
// are serialized.
//
// If only clusters and route tables differ, the cost is that of the changed clusters and routes,
// compared by address, plus little for each other route of those tables. Where that is not possible,
// Apply applies the complete configuration.
func (s *Server) Apply(ctx context.Context, d config.Delta) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	switch {
	case s.draining.Load():
		return errDraining
	case d.Full || !s.canApplyPart(d):
		return s.applyAll(ctx, d.Next())
	}
	return s.applyPart(ctx, d)
}

// applyAll applies a complete configuration. The caller holds s.applying.
func (s *Server) applyAll(ctx context.Context, next *config.Snapshot) error {
	clusters, err := s.clusters.Prepare(next.Clusters)
	if err != nil {
		return err
	}
	clients, err := s.upstreamTLS.prepare(next.Clusters)
	if err != nil {
		clusters.Rollback()
		return err
	}
	watch, err := s.overload.Prepare(next.Overload)
	if err != nil {
		s.upstreamTLS.rollback(clients)
		clusters.Rollback()
		return err
	}
	plan, err := s.plan(ctx, next)
	if err != nil {
		s.upstreamTLS.rollback(clients)
		clusters.Rollback()
		return err
	}
	if err := s.warm(ctx, clusters); err != nil {
		plan.rollback()
		s.upstreamTLS.rollback(clients)
		clusters.Rollback()
		return err
	}
	s.upstreamTLS.commit(clients)
	clusters.Commit()
	before := s.activate(ctx, plan)
	s.activateDatagrams(plan.datagrams)
	s.running.Store(next)
	s.onDemand.NotifyWaiters(next.Routes)
	s.overload.Activate(watch)
	s.retireClusters(clusters, clients, before)
	return nil
}

// retireClusters retires the removed clusters when no exchange can reach them: neither one of the
// replaced pipelines in before, nor one of an earlier configuration. The caller holds s.applying.
func (s *Server) retireClusters(change *upstream.Change, clients *upstreamTLSTable, before []*pipeline.Pipeline) {
	earlier, ended, grace := s.previousEnded, make(chan struct{}), s.gracePeriod()
	s.previousEnded = ended
	s.tasks.Go(func() {
		awaitPipelines(before, grace)
		<-earlier
		close(ended)
		change.Retire()
		s.upstreamTLS.retire(clients)
	})
}

// warmTimeout limits how long a new configuration waits for hosts to be resolved.
const warmTimeout = 5 * time.Second

// warm waits up to warmTimeout until the hosts of new clusters are known. It returns an error if
// the server starts to drain or ctx ends first; then the caller rolls the change back.
func (s *Server) warm(ctx context.Context, clusters *upstream.Change) error {
	waiting, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	defer context.AfterFunc(s.applyCtx, cancel)()
	err := clusters.Warm(waiting)
	switch {
	case err == nil:
	case s.applyCtx.Err() != nil:
		return errDraining
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		s.o.Log.Warn("applying a configuration before all hosts are known", "error", err)
	}
	return nil
}

// StopWaiting makes Apply fail instead of waiting, now and in later calls. Call it before Drain.
func (s *Server) StopWaiting() { s.cancelApply() }

// awaitPipelines returns when no exchange uses the previous pipelines, or after grace.
func awaitPipelines(before []*pipeline.Pipeline, grace time.Duration) {
	late := time.NewTimer(grace)
	defer late.Stop()
	for _, c := range before {
		select {
		case <-c.Ended():
		case <-late.C:
			return
		}
	}
}
