package http1

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// statusUpgradeRequired is the response to an HTTP version that the listener does not serve (RFC
// 9110 15.5.22).
const statusUpgradeRequired = 426

// acceptable returns an error for a well-formed request that the listener must reject. status is
// the response status; 0 means that of err's Reason. acceptable sets c.unrouted for a request that
// gets a 404 and keeps the connection open.
func (c *downstreamConn) acceptable(accept *config.HTTP1Accept) (status int, err error) {
	req := &c.x.Request
	old := c.framing.Minor == 0
	switch {
	case accept.KnownMethodsOnly && !isEnvoyMethod(req.Method):
		return 0, protocol.Faultf(protocol.MalformedRequest, "the listener does not allow the method")
	case accept.RejectHTTP10 && old:
		return statusUpgradeRequired, protocol.Faultf(protocol.VersionNotSupported, "the listener does not serve HTTP/1.0")
	}
	c.unrouted = accept.RejectAbsoluteForm && req.Scheme != ""
	if old && req.Authority == "" {
		req.Authority = accept.DefaultHost
	}
	if accept.RejectMissingHost && old && req.Authority == "" {
		return 0, protocol.Faultf(protocol.MalformedRequest, "missing Host")
	}
	return 0, nil
}

// respond calls the service, unless the listener does not serve the target.
func (c *downstreamConn) respond(ctx context.Context) error {
	if c.unrouted {
		return protocol.Faultf(protocol.ReasonNoRoute, "the listener does not serve targets in absolute form")
	}
	return c.x.Serve(ctx, c.s.o.Service)
}

// isEnvoyMethod reports whether Envoy's HTTP/1 parser knows the method (allow_custom_methods allows
// others).
func isEnvoyMethod(method string) bool {
	switch method {
	case "ACL", "BIND", "CHECKOUT", "CONNECT", "COPY", "DELETE", "GET", "HEAD", "LINK", "LOCK", "MERGE",
		"MKACTIVITY", "MKCALENDAR", "MKCOL", "MOVE", "MSEARCH", "NOTIFY", "OPTIONS", "PATCH", "POST", "PROPFIND",
		"PROPPATCH", "PURGE", "PUT", "QUERY", "REBIND", "REPORT", "SEARCH", "SOURCE", "SUBSCRIBE", "TRACE", "UNBIND",
		"UNLINK", "UNLOCK", "UNSUBSCRIBE":
		return true
	}
	return false
}
