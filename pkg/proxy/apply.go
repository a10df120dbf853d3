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

// Apply makes the next configuration the active one. First it builds the new parts and binds the
// new addresses. On an error it releases them, and the previous configuration stays active. Then it
// activates the next configuration and drains removed parts. New listeners pass ctx to the handlers
// of their connections. If ctx ends while Apply waits for hosts, Apply fails. Apply is safe for
// concurrent use; it serializes concurrent calls.
//
// If only clusters and route tables differ, the cost is proportional to the changed clusters and
// routes, plus a small cost for each other route of the changed tables: Apply compares routes by
// pointer. If a partial change is not possible, Apply applies the complete configuration.
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
	overload, err := s.overload.Prepare(next.Overload)
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
	previous := s.activate(ctx, plan)
	s.activateDatagrams(plan.datagrams)
	s.running.Store(next)
	s.onDemand.NotifyWaiters(next.Routes)
	s.overload.Activate(overload)
	s.drainRemovedClusters(clusters, clients, previous)
	return nil
}

// drainRemovedClusters drains the removed clusters when the exchanges of the previous pipelines and
// of earlier configurations have ended, or after the grace period. The caller holds s.applying.
func (s *Server) drainRemovedClusters(change *upstream.Change, clients *upstreamTLSTable, previous []*pipeline.Pipeline) {
	earlierEnded, ended, grace := s.previousEnded, make(chan struct{}), s.gracePeriod()
	s.previousEnded = ended
	s.tasks.Go(func() {
		awaitPipelines(previous, grace)
		<-earlierEnded
		close(ended)
		change.DrainRemoved()
		s.upstreamTLS.closePrevious(clients)
	})
}

// warmTimeout limits how long a new configuration waits for the discovery of hosts.
const warmTimeout = 5 * time.Second

// warm waits up to warmTimeout for the first discovery of hosts of new and changed clusters. It
// returns an error if StopWaiting is called or ctx ends first; then the caller rolls the change
// back.
func (s *Server) warm(ctx context.Context, clusters *upstream.Change) error {
	warmCtx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	defer context.AfterFunc(s.applyCtx, cancel)()
	err := clusters.Warm(warmCtx)
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

// StopWaiting makes Apply fail instead of waiting, now and in later calls.
// Drain calls it; call it earlier to abort an Apply that is waiting.
func (s *Server) StopWaiting() { s.cancelApply() }

// awaitPipelines returns when no exchange uses the previous pipelines, or after grace.
func awaitPipelines(previous []*pipeline.Pipeline, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, p := range previous {
		select {
		case <-p.Ended():
		case <-timer.C:
			return
		}
	}
}
