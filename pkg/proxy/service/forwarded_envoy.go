package service

import (
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// forwardedPort tells the upstream the port to which the client connected.
const forwardedPort = "X-Forwarded-Port"

// setEnvoyHeaders applies the rules of f.envoy that do not depend on the trust in the client. It
// runs after setForwardedHeaders.
func (f *forwarded) setEnvoyHeaders(x *protocol.Exchange) {
	h := &x.Request.Header
	mergeForwardedFor(h)
	removeInvalidReferer(h)
	if f.envoy.ForwardedPort {
		f.setForwardedPort(x)
	}
	if f.envoy.Scheme != "" {
		x.Request.Scheme = f.envoy.Scheme
		h.Set(forwardedProto, f.envoy.Scheme)
	}
}

// setForwardedPort sets X-Forwarded-Port. Like X-Forwarded-Proto, it replaces the header of clients
// that are not trusted.
func (f *forwarded) setForwardedPort(x *protocol.Exchange) {
	local := x.Meta.Conn.Local
	if !local.IsValid() {
		return // unix socket
	}
	h := &x.Request.Header
	if _, ok := h.Lookup(forwardedPort); !ok || f.protoMode == config.ForwardedProtoSet {
		h.Set(forwardedPort, strconv.Itoa(int(local.Port())))
	}
}

// mergeForwardedFor merges several X-Forwarded-For headers into one.
func mergeForwardedFor(h *protocol.Header) {
	if count, _ := forwardedAddress(h); count > 1 {
		h.Set(forwardedFor, joinValues(h, forwardedFor, ","))
	}
}

// removeInvalidReferer merges several Referer headers into one, and removes it if its value is not
// valid, as Envoy does.
func removeInvalidReferer(h *protocol.Header) {
	const referer = "referer"
	if _, ok := h.Lookup(referer); !ok {
		return
	}
	value := joinValues(h, referer, ",")
	if !isReferer(value) {
		h.Del(referer)
		return
	}
	h.Set(referer, value)
}

// isReferer reports whether text is a URL with a host, or a path, without user information and a
// fragment.
func isReferer(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	if strings.HasPrefix(text, "/") {
		return true
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme == "" {
		return false
	}
	host := rest
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		host = rest[:end]
	}
	return host != "" && !strings.ContainsAny(host, "@_") && protocol.IsAuthority(host)
}
