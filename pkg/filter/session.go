package filter

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Session is a connection whose bytes Weft relays to a host of a cluster without interpreting
// them. Only the counters in Traffic change.
type Session struct {
	Cluster *config.Cluster // nil: the configured cluster does not exist
	Host    *config.Host    // nil: Weft could not connect to a host
	Reason  protocol.Reason // why Host is nil

	DownstreamTLS, UpstreamTLS *protocol.TLS // TLS of the client's connection, and of the host's; nil: plaintext

	Traffic network.RelayCounters // Out counts bytes to the host
}

// SessionObserver observes sessions. Weft calls it when a session begins: when the host of the
// session is connected, or when Weft could not connect to a host. Weft calls onEnd when the session
// has ended. A SessionObserver must be safe for concurrent use. Neither function may block.
type SessionObserver func(s *Session) (onEnd func())
