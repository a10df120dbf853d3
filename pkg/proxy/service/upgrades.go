package service

import (
	"context"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// connectProtocol is the name of CONNECT in upgrade rules.
const connectProtocol = "connect"

// Upgrades rejects requests that may not switch to the protocol that they ask for, and CONNECT
// requests, with 403. Like Envoy, it then closes an HTTP/1.1 connection. route are the rules of the route, which take precedence over those of the listener; both
// may be nil.
func Upgrades(next protocol.Service, listener *config.UpgradeRules, route []config.UpgradeRule) protocol.Service {
	allowed := map[string]bool{}
	for _, rules := range [...][]config.UpgradeRule{listener.Rules, route} {
		for _, r := range rules {
			allowed[r.Protocol] = !r.Denied
		}
	}
	return &upgrades{next, allowed}
}

// upgrades is immutable.
type upgrades struct {
	next    protocol.Service
	allowed map[string]bool // by protocol
}

// Start implements protocol.Service.
func (u *upgrades) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Upgrade == "" && x.Request.Method != "CONNECT" || u.allowed[requestedProtocol(&x.Request)] {
		return u.next.Start(ctx, x)
	}
	x.LocalReply(403, "", "")
	if m := &x.Meta; m.Protocol == string(config.HTTP1) && m.Conn != nil && m.Conn.DownstreamConn != nil {
		m.Conn.DownstreamConn.Shed()
	}
	return nil
}

// requestedProtocol returns the protocol to which r asks to switch, as upgrade rules name it.
func requestedProtocol(r *protocol.Request) string {
	if r.Upgrade == "" {
		return connectProtocol
	}
	return strings.ToLower(r.Upgrade)
}
