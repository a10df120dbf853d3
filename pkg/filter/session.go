package filter

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Session is a connection whose bytes are carried to a host of a cluster, whatever they
// mean. But for Traffic, which grows, it does not change.
type Session struct {
	Cluster *config.Cluster // nil: there is none of the name
	Host    *config.Host    // nil: none could be connected to
	Reason  protocol.Reason // why not

	Caller, Called *protocol.TLS // of the caller's connection, and of the host's; nil: plaintext

	Traffic network.RelayCounters // out: to the host
}

// SessionObserver is told of a session that begins: its host is connected to, or none could be. What
// it returns is called when it has ended. Neither waits for anything. Safe for concurrent
// use.
type SessionObserver func(s *Session) (ended func())
