package router

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// isRPC reports whether x is a call of an RPC protocol. The headers of such a call may define
// method, host and path. HTTP headers must not, or a client could choose its route.
func isRPC(x *protocol.Exchange) bool {
	switch config.Protocol(x.Meta.Protocol) {
	case config.HTTP1, config.HTTP2, "":
		return false
	default:
		return true
	}
}

// isRoutingHeader reports whether RPC protocols name the target of a call in the header called
// name. A call has each such header once.
func isRoutingHeader(name string) bool {
	switch len(name) {
	case len(xprotocol.FieldGroup):
		return protocol.EqualFold(name, xprotocol.FieldGroup)
	case len(xprotocol.FieldMethod):
		return protocol.EqualFold(name, xprotocol.FieldMethod)
	case len(xprotocol.FieldService):
		return protocol.EqualFold(name, xprotocol.FieldService) || protocol.EqualFold(name, xprotocol.FieldVersion)
	}
	return false
}

// setCall changes the call r to the service and method of path, "/service/method". If path has
// another form, it changes nothing and returns false.
func setCall(r *protocol.Request, path string) bool {
	service, method, ok := parseCall(path)
	if ok {
		setHeader(&r.Header, xprotocol.FieldService, service)
		setHeader(&r.Header, xprotocol.FieldMethod, method)
	}
	return ok
}

// parseCall returns the service and the method of a path. The service may contain slashes.
func parseCall(path string) (service, method string, ok bool) {
	slash := strings.LastIndexByte(path, '/')
	if slash <= 0 || slash == len(path)-1 {
		return "", "", false
	}
	return path[1:slash], path[slash+1:], path[0] == '/'
}

// setHeader sets a header unless it already has that value, because Weft forwards unchanged headers
// byte for byte.
func setHeader(h *protocol.Header, name, value string) {
	if h.Get(name) != value {
		h.Set(name, value)
	}
}
