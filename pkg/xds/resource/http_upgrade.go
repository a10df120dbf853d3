package resource

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readUpgrades(list []*hcmv3.HttpConnectionManager_UpgradeConfig) *config.UpgradeRules {
	out := &config.UpgradeRules{}
	for i, u := range list {
		at := p.index(i)
		at.checkFields(u, []string{"upgrade_type", "enabled"}, []string{"filters"})
		out.Rules = append(out.Rules, at.readUpgrade(u))
	}
	return out
}

// readRouteUpgrades reads the upgrade configs of a route.
func (p fieldReader) readRouteUpgrades(list []*routev3.RouteAction_UpgradeConfig, out *config.ForwardExtras) {
	for i, u := range list {
		at := p.index(i)
		at.checkFields(u, []string{"upgrade_type", "enabled", "connect_config"}, nil)
		rule := at.readUpgrade(u)
		out.Upgrades = append(out.Upgrades, rule)
		c := u.GetConnectConfig()
		switch {
		case c == nil:
		case rule.Protocol != "connect":
			at.field("connect_config").reject("requires the upgrade_type CONNECT")
		default:
			at.field("connect_config").checkFields(c, nil, []string{"proxy_protocol_config", "allow_post"})
			out.ConnectTunnel = true
		}
	}
}

// upgrade is the common part of the upgrade configs of connection managers and routes.
type upgrade interface {
	GetUpgradeType() string
	GetEnabled() *wrapperspb.BoolValue
}

func (p fieldReader) readUpgrade(u upgrade) config.UpgradeRule {
	rule := config.UpgradeRule{Protocol: lower(u.GetUpgradeType()), Denied: !boolOr(u.GetEnabled(), true)}
	switch rule.Protocol {
	case "":
		p.field("upgrade_type").reject("is required")
	case "connect-udp":
		p.field("upgrade_type").reject("%s is not supported", u.GetUpgradeType())
	}
	return rule
}
