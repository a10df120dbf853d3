package proxy

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

var errDraining = errors.New("the server is draining")

// ApplyClusters is Apply where nothing but some clusters is new or changed. Where it can
// be, its cost is theirs, however many others there are; else whole is asked for the
// configuration with all of them, and that is applied.
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

// canUpdateAlone reports whether a cluster differs from that of its name in what clusters keep
// for themselves only: credentials are the server's.
func (s *Server) canUpdateAlone(next *config.Cluster) bool {
	c := s.clusters.Find(next.Name)
	if c == nil {
		return next.TLS == nil && len(next.MoreTLS) == 0
	}
	return upstream.SameTLS(c.Config(), next)
}
