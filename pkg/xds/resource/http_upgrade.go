package resource

import (
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

func (p fieldReader) readUpgrades(list []*hcmv3.HttpConnectionManager_UpgradeConfig) {
	for i, u := range list {
		at := p.index(i)
		at.checkFields(u, []string{"upgrade_type", "enabled"}, []string{"filters"})
		at.readUpgrade(u)
	}
}

// upgrade is the common part of the upgrade configs of connection managers and routes.
type upgrade interface {
	GetUpgradeType() string
	GetEnabled() *wrapperspb.BoolValue
}

// readUpgrade reads an upgrade type. WebSocket is always enabled and cannot be disabled; other
// types are ignored.
func (p fieldReader) readUpgrade(u upgrade) {
	switch {
	case !strings.EqualFold(u.GetUpgradeType(), "websocket"):
		p.key(u.GetUpgradeType()).ignore() // only WebSocket is supported
	case !boolOr(u.GetEnabled(), true):
		p.field("enabled").reject("false is not supported")
	}
}
