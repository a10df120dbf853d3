package configjson

import (
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// OriginalDstFilter is the listener filter that is equivalent to use_original_dst.
const OriginalDstFilter = "original_dst"

// originalDst sets the redirection of a listener: that of the key, else that of a listener filter,
// which is redirect.
func (r *reader) originalDst(j *listenerJSON, l *config.Listener) {
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
func (r *reader) originalDstMode(at document.Node) config.OriginalDstMode {
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

// mark parses a socket mark: a number, or a string such as "0x77".
func (r *reader) mark(at document.Node) int {
	if kind := at.Kind(); kind != document.Number && kind != document.String {
		return 0 // absent, or reported
	}
	n, err := strconv.ParseUint(at.Text(), 0, 32)
	if err != nil {
		r.report.Errorf(at, "found %s, expected a number from 0 to %d, or a string with such a number", at.Found(), uint32(math.MaxUint32))
		return 0
	}
	return int(n)
}

// checkVirtualListeners runs after all listeners are converted. It checks the virtual listeners, which do
// not bind, against the others; list contains their sources.
func (r *reader) checkVirtualListeners(list []listenerJSON) {
	fed := false
	for _, l := range r.snapshot.Listeners {
		fed = fed || l.OriginalDst != ""
	}
	names := map[netip.AddrPort]string{}
	for i, l := range r.snapshot.Listeners {
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

// readOriginalDst converts the settings of a ClusterOriginalDst. It runs last, after the other keys
// have set the hosts.
func (r *reader) readOriginalDst(j *clusterJSON, c *config.Cluster) {
	c.Mark = r.mark(j.Mark)
	policy := j.Node.Get("lb_type")
	if c.Type != config.ClusterOriginalDst {
		if c.LBPolicy == config.LBOriginalDst {
			r.report.Errorf(policy, "%s requires a cluster of type %s", config.LBOriginalDst, config.ClusterOriginalDst)
		}
		for _, key := range []string{"original_dst_lb_config", "cleanup_interval"} {
			if at := j.Node.Get(key); at.Exists() {
				r.report.Warnf(at, "%s has no effect on a cluster of type %s", key, j.Type)
			}
		}
		return
	}
	if policy.Exists() && c.LBPolicy != config.LBOriginalDst && c.LBPolicy != "" {
		r.report.Errorf(policy, "a cluster of type %s has no host to select: expected %s", c.Type, config.LBOriginalDst)
	}
	c.LBPolicy = config.LBOriginalDst
	if len(j.Hosts) > 0 {
		r.report.Errorf(j.Node.Get("hosts"), "hosts is not allowed in a cluster of type %s: its hosts are the original destinations of connections", c.Type)
	}
	for _, key := range []string{"health_check", "outlier_detection", "lbconfig", "common_lb_config", "lb_subset_config", "slow_start", "locality_weights"} {
		if at := j.Node.Get(key); at.Exists() && !at.IsDisabled() {
			r.report.Warnf(at, "%s has no effect on a cluster of type %s, which has no host to select", key, c.Type)
		}
	}
	c.HealthCheck, c.OutlierDetection, c.Subsets, c.LocalityWeights = nil, nil, config.Subsets{}, nil
	if at := j.Node.Get("connection_pool").Get("warm"); at.Exists() {
		r.report.Warnf(at, "warm has no effect on a cluster of type %s: its hosts are not known before requests arrive", c.Type)
		c.Pool.WarmProtocol = ""
	}
	o := &j.OriginalDst
	c.OriginalDst = config.OriginalDst{Port: o.Port, CleanupInterval: j.CleanupInterval}
	switch at := o.Node.Get("header_name"); {
	case o.UseHeader && o.HeaderName == "":
		r.report.Errorf(at, "found \"\", expected a header name")
	case o.UseHeader:
		c.OriginalDst.Header = strings.ToLower(o.HeaderName)
	case at.Exists():
		r.report.Warnf(at, "header_name has no effect without use_header")
	}
}
