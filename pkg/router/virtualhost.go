package router

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// findVirtualHost returns the index of the virtual host for x and the text that it compares with the
// domains. For tables without derivesAuthority, this is the authority of x.
func (t *Table) findVirtualHost(x *protocol.Exchange) (n int32, key string) {
	key, ok := x.Request.Authority, true
	if name := t.config.VirtualHostHeader; name != "" {
		key, ok = virtualHostHeader(x, name)
	}
	if !ok && !t.domains.onlyCatchAll() {
		return noVirtualHost, ""
	}
	if t.config.IgnorePort {
		key, _ = splitPort(key)
	}
	return t.domains.find(key, x.Request.Scheme), key
}

// virtualHostHeader returns the first value of the request header called name. As in Envoy, "host"
// means the authority.
func virtualHostHeader(x *protocol.Exchange, name string) (string, bool) {
	switch {
	case isHost(name):
		return x.Request.Authority, true
	case name[0] == ':':
		return pseudoHeader(x, strings.ToLower(name))
	}
	return x.Request.Header.Lookup(name)
}

// onlyCatchAll reports whether d has no domain other than "*".
func (d *domains) onlyCatchAll() bool {
	return len(d.exact) == 0 && len(d.suffixes) == 0 && len(d.prefixes.virtualHosts) == 0
}
