package rbac

import (
	"errors"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// envoyReply returns how Envoy expresses the denial err of a request.
func envoyReply(err error) protocol.EnvoyReply {
	policy := "none"
	if denied, ok := errors.AsType[*policyDenial](err); ok {
		policy = strings.Join(strings.Fields(denied.policy), "_")
	}
	return protocol.EnvoyReply{Body: "RBAC: access denied", Details: "rbac_access_denied_matched_policy[" + policy + "]"}
}
