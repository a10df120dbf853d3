package upstream

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// TLS returns the TLS configuration of connections to the host, nil for none. For a removed cluster
// it returns the last configured value.
func (h *Host) TLS() *config.TLS {
	s, entry := h.cluster.state.Load(), h.Config()
	switch {
	case s == nil || entry.NoTLS:
		return nil
	case entry.TLSIndex > 0 && entry.TLSIndex <= len(s.config.AlternateTLS):
		return s.config.AlternateTLS[entry.TLSIndex-1]
	}
	return s.config.TLS
}

// SameTLS reports whether a and b have the same TLS configurations and the same use of SNI.
func SameTLS(a, b *config.Cluster) bool {
	return a.AutoSNI == b.AutoSNI && a.TLS.Equal(b.TLS) && slices.EqualFunc(a.AlternateTLS, b.AlternateTLS, (*config.TLS).Equal)
}
