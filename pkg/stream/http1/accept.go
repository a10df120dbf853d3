package http1

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// statusUpgradeRequired is the response to an HTTP version that the listener does not serve (RFC
// 9110 15.5.22).
const statusUpgradeRequired = 426

// checkAccept returns an error for a well-formed request that the listener must reject. status is
// the response status; 0 means the status of err's Reason. checkAccept sets c.targetNotServed for a
// request that gets a 404 and keeps the connection open. It sets the authority of an HTTP/1.0
// request without Host to accept.DefaultHost.
func (c *downstreamConn) checkAccept(accept *config.HTTP1Accept) (status int, err error) {
	req := &c.x.Request
	isHTTP10 := c.framing.Minor == 0
	switch {
	case accept.KnownMethodsOnly && !isEnvoyMethod(req.Method):
		return 0, protocol.Faultf(protocol.MalformedRequest, "the listener does not allow the method")
	case accept.RejectHTTP10 && isHTTP10:
		return statusUpgradeRequired, protocol.Faultf(protocol.VersionNotSupported, "the listener does not serve HTTP/1.0")
	}
	c.targetNotServed = accept.RejectAbsoluteForm && req.Scheme != ""
	if isHTTP10 && req.Authority == "" {
		req.Authority = accept.DefaultHost
	}
	if accept.RejectMissingHost && isHTTP10 && req.Authority == "" {
		return 0, protocol.Faultf(protocol.MalformedRequest, "missing Host").WithEnvoyReply(missingHost)
	}
	return 0, nil
}

// callService calls the service, unless the listener does not serve the target.
func (c *downstreamConn) callService(ctx context.Context) error {
	if c.targetNotServed {
		return protocol.Faultf(protocol.ReasonNoRoute, "the listener does not serve targets in absolute form").WithEnvoyReply(absolutePath)
	}
	return c.x.Serve(ctx, c.server.opts.Service)
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

//nolint:gochecknoglobals // constants
var (
	missingHost  = protocol.EnvoyReply{Status: 400, Details: "missing_host_header", Flag: protocol.NoEnvoyFlag}
	absolutePath = protocol.EnvoyReply{Status: 404, Details: "absolute_path_rejected", Flag: protocol.NoEnvoyFlag}
)
