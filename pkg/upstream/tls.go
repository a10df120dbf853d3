package upstream

import "github.com/weft-proxy/weft/pkg/config"

// TLS returns what connections to the host are secured by, nil for none; of a
// cluster that has left the configuration, what it said last.
func (h *Host) TLS() *config.TLS {
	s := h.cluster.state.Load()
	if s == nil || h.Config().NoTLS {
		return nil
	}
	return s.config.TLS
}
