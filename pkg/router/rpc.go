package router

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// isRPC reports whether x is a call of an RPC protocol. Its own fields may say
// method, host and path. Those of HTTP must not: a caller would choose its route by
// sending them.
func isRPC(x *protocol.Exchange) bool {
	switch config.Protocol(x.Meta.Protocol) {
	case config.HTTP1, config.HTTP2, "":
		return false
	default:
		return true
	}
}

// isRouting reports whether name is that of a field in which RPC protocols say
// where a call goes. A call has each of them once.
func isRouting(name string) bool {
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

// setCall makes the call r one of "/service/method". A path that is not of this
// form changes nothing, and false is returned.
func setCall(r *protocol.Request, path string) bool {
	service, method, ok := parseCall(path)
	if ok {
		setField(&r.Header, xprotocol.FieldService, service)
		setField(&r.Header, xprotocol.FieldMethod, method)
	}
	return ok
}

// parseCall returns the service and the method that a path names. The service may
// have slashes.
func parseCall(path string) (service, method string, ok bool) {
	end := strings.LastIndexByte(path, '/')
	if end <= 0 || end == len(path)-1 {
		return "", "", false
	}
	return path[1:end], path[end+1:], path[0] == '/'
}

// setField sets a field, unless it says so already: a header that was not changed
// leaves byte for byte.
func setField(h *protocol.Header, name, value string) {
	if h.Get(name) != value {
		h.Set(name, value)
	}
}
