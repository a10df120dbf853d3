package proxy

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/pkg/config"
)

var errDraining = errors.New("the server is draining")

// ApplyClusters is Apply for a configuration that differs from the one in force in
// nothing but some clusters, which are new or changed. Where it can be, its cost is
// theirs, however many others there are.
func (s *Server) ApplyClusters(ctx context.Context, next *config.Snapshot, changed []*config.Cluster) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.draining.Load() {
		return errDraining
	}
	for _, c := range changed {
		if !s.amends(c) {
			return s.apply(ctx, next)
		}
	}
	change, err := s.clusters.PrepareSome(changed)
	if err != nil {
		return err
	}
	s.warm(ctx, change)
	change.Commit()
	s.running.Store(next)
	return nil
}

// amends reports whether a cluster differs from that of its name in what clusters keep
// for themselves only: credentials are the server's.
func (s *Server) amends(next *config.Cluster) bool {
	c := s.clusters.Find(next.Name)
	if c == nil {
		return next.TLS == nil
	}
	return c.TLS().Equal(next.TLS)
}
