package configjson

import (
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// OriginalDstFilter is the listener filter that is equivalent to use_original_dst.
const OriginalDstFilter = "original_dst"

// originalDstFilterJSON is the listener filter "original_dst", which has no settings.
type originalDstFilterJSON struct {
	Node document.Node `key:"."`
}

// originalDst sets the redirection of a listener: that of the key, else that of a listener filter,
// which is redirect.
func (r *listenerReader) originalDst(j *listenerJSON, l *config.Listener) {
	at := j.OriginalDst
	if !at.Exists() {
		at = j.Node.Get("listener_filters")
	} else {
		l.OriginalDst = r.originalDstMode(at)
	}
	switch {
	case l.OriginalDst == "":
	case l.Network != "tcp":
		r.report.Errorf(at, "connections of the network %q cannot be redirected: expected the network \"tcp\"", l.Network)
	case !l.Bind:
		r.report.Warnf(at, "use_original_dst has no effect with bind_port false: the listener receives connections from other listeners")
		l.OriginalDst = ""
	}
}

// originalDstMode parses true, false, "redirect" or "tproxy".
func (r *listenerReader) originalDstMode(at document.Node) config.OriginalDstMode {
	if at.Kind() == document.Bool {
		if at.IsDisabled() {
			return ""
		}
		return config.OriginalDstRedirect
	}
	for _, how := range []config.OriginalDstMode{config.OriginalDstRedirect, config.OriginalDstTProxy} {
		if strings.EqualFold(at.Text(), string(how)) {
			return how
		}
	}
	if at.Kind() == document.String && at.Text() != "" {
		r.report.Errorf(at, "found %q, expected true, %q or %q", at.Text(), config.OriginalDstRedirect, config.OriginalDstTProxy)
	}
	return ""
}

// checkVirtualListeners runs after all listeners are converted. It checks the virtual listeners, which do
// not bind, against the others; list contains their sources.
func (r *listenerReader) checkVirtualListeners(list []listenerJSON) {
	fed := false
	for _, l := range r.out {
		fed = fed || l.OriginalDst != ""
	}
	names := map[netip.AddrPort]string{}
	for i, l := range r.out {
		at := list[i].Node.Get("bind_port")
		if l.Bind || !at.Exists() {
			continue
		}
		for _, key := range []string{"reuseport", "mark", "accept_rate", "tcp_keepalive"} {
			if at := list[i].Node.Get(key); at.Exists() {
				r.report.Warnf(at, "%s has no effect on a listener with bind_port false: set it on the listener that accepts the connections", key)
			}
		}
		address, err := netip.ParseAddrPort(withWildcardHost(l.Address))
		switch {
		case !fed:
			r.report.Warnf(at, "the listener has bind_port false and receives no connections: no other listener has use_original_dst")
		case l.Network != "tcp" || err != nil || address.Port() == 0:
			r.report.Warnf(at, "the listener has bind_port false and receives no connections: its address %q is not an ip:port", l.Address)
		case names[address] != "":
			r.report.Errorf(list[i].Node.Get("address"), "the address is already in use by listener %q, which has bind_port false too", names[address])
		}
		names[address] = l.Name
	}
}

// withWildcardHost adds 0.0.0.0 to an address without an IP.
func withWildcardHost(address string) string {
	if strings.HasPrefix(address, ":") {
		return netip.IPv4Unspecified().String() + address
	}
	return address
}
