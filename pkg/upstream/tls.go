package upstream

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// TLS returns what connections to the host are secured by, nil for none; of a
// cluster that has left the configuration, what it said last.
func (h *Host) TLS() *config.TLS {
	s, entry := h.cluster.state.Load(), h.Config()
	switch {
	case s == nil || entry.NoTLS:
		return nil
	case entry.TLS > 0 && entry.TLS <= len(s.config.MoreTLS):
		return s.config.MoreTLS[entry.TLS-1]
	}
	return s.config.TLS
}

// SameTLS reports whether all that hosts of a cluster may be secured by, and asked for, is
// the same.
func SameTLS(a, b *config.Cluster) bool {
	return a.RequestName == b.RequestName && a.TLS.Equal(b.TLS) && slices.EqualFunc(a.MoreTLS, b.MoreTLS, (*config.TLS).Equal)
}
