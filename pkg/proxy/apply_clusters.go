package proxy

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

var errDraining = errors.New("the server is draining")

// ApplyClusters is Apply for a change of some clusters. If possible, its cost depends only on the
// changed clusters. Otherwise it calls whole for the configuration with all clusters and applies
// that.
func (s *Server) ApplyClusters(ctx context.Context, changed []*config.Cluster, whole func() *config.Snapshot) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.draining.Load() {
		return errDraining
	}
	for _, c := range changed {
		if !s.canUpdateAlone(c) {
			return s.apply(ctx, whole())
		}
	}
	change, err := s.clusters.PrepareSome(changed)
	if err != nil {
		return err
	}
	if err := s.warm(ctx, change); err != nil {
		change.Rollback()
		return err
	}
	change.Commit()
	return nil
}

// canUpdateAlone reports whether the cluster can change without the rest of the configuration. It
// cannot if its TLS settings change, because the server owns the credentials.
func (s *Server) canUpdateAlone(next *config.Cluster) bool {
	c := s.clusters.Find(next.Name)
	if c == nil {
		return next.TLS == nil && len(next.AlternateTLS) == 0
	}
	return upstream.SameTLS(c.Config(), next)
}
