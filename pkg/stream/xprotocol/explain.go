package xprotocol

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// errorResponseSize is the number of bytes to reserve for a frame that Weft generates, such as an
// error response. Most need less.
const errorResponseSize = 512

// errorReasonAndText returns the reason and the text of the error response to the client: what
// failed, and where. The cause appears only in the log.
func (r *request) errorReasonAndText() (protocol.Reason, string) {
	x := &r.x
	reason := x.Record.Reason
	detail := ""
	if reason == protocol.ReasonNone {
		reason, detail = reasonOf(x.Response.Status), bodyText(x.Response.Body)
		if reason == protocol.NotImplemented {
			detail = fmt.Sprintf("a response with HTTP status %d cannot be sent in %s", x.Response.Status, r.c.server.traits.Name)
			x.Record.Reason, x.Record.Detail = reason, detail
		}
	}
	var b strings.Builder
	b.WriteString("weft: ")
	b.WriteString(reason.Text())
	if detail != "" {
		b.WriteString(": ")
		b.WriteString(detail)
	}
	if service := x.Request.Header.Get(codec.FieldService); service != "" {
		b.WriteString(" [")
		b.WriteString(service)
		if method := x.Request.Header.Get(codec.FieldMethod); method != "" {
			b.WriteString("." + method)
		}
		b.WriteString("]")
	}
	b.WriteString(", listener " + r.c.server.opts.Listener)
	if x.Record.TargetCluster != "" {
		b.WriteString(", cluster " + x.Record.TargetCluster)
	}
	if h := x.Record.Host(); h != nil {
		b.WriteString(", host " + h.Name())
	}
	return reason, b.String()
}

// reasonOf returns the reason closest to the HTTP status of a response that is no RPC frame and has
// no reason, such as the local reply of a filter. RPC frames carry no HTTP status.
func reasonOf(status int) protocol.Reason {
	if status < 400 { // a redirect, or a response with a body
		return protocol.NotImplemented
	}
	switch status {
	case 400:
		return protocol.MalformedRequest
	case 401:
		return protocol.Unauthenticated
	case 403:
		return protocol.ReasonDenied
	case 404:
		return protocol.ReasonNoRoute
	case 413:
		return protocol.BodyTooLarge
	case 429, 509:
		return protocol.RateLimited
	case 502:
		return protocol.NoHealthyHost
	case 503:
		return protocol.Overflow
	case 504:
		return protocol.UpstreamTimeout
	default:
		return protocol.Internal
	}
}

// bodyText returns the beginning of a body.
func bodyText(body protocol.Body) string {
	if body == nil {
		return ""
	}
	var b [256]byte
	n, _ := body.Read(b[:]) // the bytes of one read are enough
	return strings.TrimSpace(string(b[:n]))
}
