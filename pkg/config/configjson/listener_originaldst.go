package configjson

import (
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// OriginalDstFilter is the listener filter that is equivalent to use_original_dst.
const OriginalDstFilter = "original_dst"

// originalDstFilterJSON is the listener filter "original_dst".
type originalDstFilterJSON struct {
	Node            document.Node          `key:"."`
	Type            config.OriginalDstMode `key:"type" doc:"How connections are redirected: redirect is REDIRECT or DNAT, tproxy is TPROXY. It must not contradict use_original_dst. Absent: the value of use_original_dst, or redirect." enum:"redirect|tproxy" emptyisabsent:"true" example:"\"tproxy\""`
	FallbackToLocal bool                   `key:"fallback_to_local" doc:"Passes connections without a listener for their address to the listener of the port on 127.0.0.1 instead of 0.0.0.0." unsupported:"fallback_to_local" example:"true"`
}

// readOriginalDst sets the redirection mode of a listener: the value of use_original_dst, or the
// type of the listener filter original_dst, which readListenerFilters stored in l.
func (r *listenerReader) readOriginalDst(j *listenerJSON, l *config.Listener) {
	node := j.OriginalDst
	if !node.Exists() {
		node = j.Node.Get("listener_filters")
	} else {
		l.OriginalDst = r.mergeOriginalDstMode(j, r.parseOriginalDstMode(node))
	}
	switch {
	case l.OriginalDst == "":
	case l.Network != "tcp":
		r.report.Errorf(node, "connections of the network %q cannot be redirected: expected the network \"tcp\"", l.Network)
	case !l.Bind:
		r.report.Warnf(node, "use_original_dst has no effect with bind_port false: the listener receives connections from other listeners")
		l.OriginalDst = ""
	}
}

// mergeOriginalDstMode returns the mode of a listener whose use_original_dst has the given mode.
// With true, the filter's type is the mode; it reports a type that contradicts "redirect" or
// "tproxy".
func (r *listenerReader) mergeOriginalDstMode(j *listenerJSON, mode config.OriginalDstMode) config.OriginalDstMode {
	for i := range j.ListenerFilter {
		f := &j.ListenerFilter[i]
		if mode == "" || !strings.EqualFold(f.Type, OriginalDstFilter) {
			continue
		}
		node := f.Node.Get("config").Get("type")
		filterMode := config.OriginalDstMode(strings.ToLower(node.Text()))
		switch {
		case filterMode != config.OriginalDstRedirect && filterMode != config.OriginalDstTProxy: // absent, or reported
		case j.OriginalDst.Kind() == document.Bool:
			mode = filterMode
		case filterMode != mode:
			r.report.Errorf(node, "the type %q contradicts use_original_dst, which is %q", filterMode, mode)
		}
	}
	return mode
}

// parseOriginalDstMode parses true, false, "redirect" or "tproxy".
func (r *listenerReader) parseOriginalDstMode(node document.Node) config.OriginalDstMode {
	if node.Kind() == document.Bool {
		if node.IsDisabled() {
			return ""
		}
		return config.OriginalDstRedirect
	}
	for _, mode := range []config.OriginalDstMode{config.OriginalDstRedirect, config.OriginalDstTProxy} {
		if strings.EqualFold(node.Text(), string(mode)) {
			return mode
		}
	}
	if node.Kind() == document.String && node.Text() != "" {
		r.report.Errorf(node, "found %q, expected true, %q or %q", node.Text(), config.OriginalDstRedirect, config.OriginalDstTProxy)
	}
	return ""
}

// checkVirtualListeners runs after all listeners are converted. It checks the virtual listeners,
// which do not bind, against the other listeners; list contains the JSON structs of all listeners.
func (r *listenerReader) checkVirtualListeners(list []listenerJSON) {
	hasRedirect := false
	for _, l := range r.out {
		hasRedirect = hasRedirect || l.OriginalDst != ""
	}
	names := map[netip.AddrPort]string{}
	for i, l := range r.out {
		node := list[i].Node.Get("bind_port")
		if l.Bind || !node.Exists() {
			continue
		}
		for _, key := range []string{"reuseport", "mark", "accept_rate", "tcp_keepalive"} {
			if node := list[i].Node.Get(key); node.Exists() {
				r.report.Warnf(node, "%s has no effect on a listener with bind_port false: set it on the listener that accepts the connections", key)
			}
		}
		address, err := netip.ParseAddrPort(addWildcardHost(l.Address))
		switch {
		case !hasRedirect:
			r.report.Warnf(node, "the listener has bind_port false and receives no connections: no other listener has use_original_dst")
		case l.Network != "tcp" || err != nil || address.Port() == 0:
			r.report.Warnf(node, "the listener has bind_port false and receives no connections: its address %q is not an ip:port", l.Address)
		case names[address] != "":
			r.report.Errorf(list[i].Node.Get("address"), "the address is already in use by listener %q, which has bind_port false too", names[address])
		}
		names[address] = l.Name
	}
}

// addWildcardHost adds 0.0.0.0 to an address without an IP.
func addWildcardHost(address string) string {
	if strings.HasPrefix(address, ":") {
		return netip.IPv4Unspecified().String() + address
	}
	return address
}
