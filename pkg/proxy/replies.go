package proxy

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// envoyReplies returns the local replies that c selects; nil: those of docs/errors.md.
func envoyReplies(c *config.Replies) *protocol.EnvoyReplies {
	if !c.Envoy {
		return nil
	}
	return new(protocol.EnvoyReplies)
}
