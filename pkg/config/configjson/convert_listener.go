package configjson

import (
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// readListeners converts the listeners and checks them against each other.
func (r *reader) readListeners(list []listenerJSON, chains map[string]*chainJSON, roller config.Roller) {
	names := map[string]bool{}
	addresses := map[string]string{} // of those that bind, with the name of the listener
	for i := range list {
		j := &list[i]
		l := r.listener(j, roller)
		if c := chains[l.Name]; c != nil {
			delete(chains, l.Name)
			if len(j.StreamFilters) > 0 {
				r.report.Errorf(c.Node, "the chain has no effect: listener %q has its own stream_filters", l.Name)
			}
			j.StreamFilters = append(j.StreamFilters, c.Filters...)
		}
		r.readChains(j, l)
		r.checkTimeoutFields(l)
		r.checkUDP(j, l)
		if names[l.Name] {
			r.report.Errorf(j.Node.Get("name").Or(j.Node), "duplicate listener name %q", l.Name)
		}
		names[l.Name] = true
		place := l.Address
		if l.Network == networkUDP {
			place = "udp " + place // UDP ports are separate
		}
		if other, taken := addresses[place]; taken && l.Address != "" && l.Bind && !hasEphemeralPort(l) {
			r.report.Errorf(j.Node.Get("address"), "the address is already in use by listener %q", other)
		}
		if l.Bind {
			addresses[place] = l.Name
		}
		r.snapshot.Listeners = append(r.snapshot.Listeners, l)
	}
	r.checkVirtualListeners(list)
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		c := chains[name]
		r.streamFilters(c.Filters)
		r.report.Warnf(c.Node, "no listener is named %q: the chain is not used", name)
	}
}

// checkTimeoutFields rejects trust_timeout_fields on ingress listeners: any client could occupy an
// upstream for as long as a day.
func (r *reader) checkTimeoutFields(l *config.Listener) {
	if !l.Ingress {
		return
	}
	for c := range l.Chains() {
		for _, use := range r.proxies {
			if use.proxy == c.Proxy && c.Proxy.CallerFields.OverrideTimeouts {
				r.report.Errorf(use.node.Member("extend_config").Get("trust_timeout_fields"),
					"trust_timeout_fields is not allowed: listener %q is of type ingress, and its clients are not trusted to override timeouts", l.Name)
			}
		}
	}
}

// hasEphemeralPort reports whether the system chooses the listener's port.
func hasEphemeralPort(l *config.Listener) bool {
	_, port, err := splitPort(l.Address)
	return err == nil && port == "0"
}

func (r *reader) listener(j *listenerJSON, roller config.Roller) *config.Listener {
	l := &config.Listener{
		Name:           j.Name,
		Ingress:        j.Type == "ingress",
		Network:        j.Network,
		Address:        j.Address,
		Bind:           j.Bind,
		ReusePort:      j.ReusePort,
		MaxConnections: j.MaxConnections,
		AcceptRate:     acceptRate(j.AcceptRate),
		KeepAlive:      tcpKeepAlive(j.KeepAlive),
		IdleTimeout:    j.IdleTimeout,
	}
	if l.Name == "" {
		l.Name = j.Address
	}
	r.setAddress(j, l)
	for i := range j.AccessLogs {
		r.readAccessLog(&j.AccessLogs[i], l, roller)
	}
	r.listenerFilters(j, l)
	r.originalDst(j, l)
	l.Mark = r.mark(j.Mark)
	return l
}

// setAddress sets the network and the address.
func (r *reader) setAddress(j *listenerJSON, l *config.Listener) {
	at := j.Node.Get("address")
	if at.Kind() != document.String {
		return // reported
	}
	l.Address = socketPath(l.Address)
	switch {
	case l.Network == "" && isPath(l.Address):
		l.Network = "unix"
	case l.Network == "":
		l.Network = "tcp"
	}
	switch l.Network {
	case "unix":
		if l.Address == "" {
			r.report.Errorf(at, "found \"\", expected the path of a unix socket")
		}
	default:
		address, err := listenAddress(l.Address)
		if err != nil {
			r.report.Errorf(at, "%v", err)
			return
		}
		l.Address = address
	}
}

func (r *reader) readAccessLog(j *accessLogJSON, l *config.Listener, roller config.Roller) {
	a := config.AccessLog{Path: j.Path, Format: j.Format, Rotation: roller}
	if j.Format != "" {
		r.checkTemplate(j.Node.Get("log_format"), j.Format)
	}
	if j.JSON.Exists() {
		if j.Format != "" {
			r.report.Errorf(j.Node.Get("json_format"), "json_format and log_format are mutually exclusive")
		}
		a.JSON = make([]config.LogField, 0, j.JSON.Len())
		for member := range j.JSON.All() {
			if member.Kind() != document.String {
				r.report.Expect(member, "a string with %variables%")
				continue
			}
			r.checkTemplate(member, member.Text())
			a.JSON = append(a.JSON, config.LogField{Name: member.Key(), Format: member.Text()})
		}
	}
	l.AccessLogs = append(l.AccessLogs, a)
}

// filterChain converts one chain from its network filters.
func (r *reader) filterChain(j *filterChainJSON, filters []config.Filter) *config.FilterChain {
	out := &config.FilterChain{Name: j.Name, Match: r.chainMatch(j.Match), TLS: r.listenerTLSContexts(j)}
	var proxy *proxyJSON
	var manager *table // of the connection_manager in this chain
	for i := range j.Filters {
		f := &j.Filters[i]
		at := f.Node.Get("type").Or(f.Node)
		if f.Type == "" {
			continue // reported
		}
		if f.Type == connectionManager {
			manager = r.connectionManager(f)
			continue
		}
		if gate := r.connectionFilter(f.Type); gate != nil {
			r.readConnectionFilter(f, gate, out)
			continue
		}
		kind, ok := choose(r.report, at, "network filter", f.Type, r.capabilities.NetworkFilters, r.networkFilters())
		if !ok {
			continue
		}
		fallback := kind == TCPProxyFilter && out.TCPProxy == nil && out.Proxy != nil && out.Proxy.Fallback
		if (out.Proxy != nil || out.TCPProxy != nil || out.UDPProxy != nil) && !fallback {
			r.report.Errorf(at, "only one %q or %q is allowed in a chain, except a %q after a proxy with fallback_for_unknown_protocol", ProxyFilter, TCPProxyFilter, TCPProxyFilter)
			continue
		}
		switch kind {
		case ProxyFilter:
			proxy = &proxyJSON{}
			r.decoder.Decode(f.Node.Member("config"), proxy)
			out.Proxy = r.proxy(proxy)
		case TCPProxyFilter:
			out.TCPProxy = r.tcpProxy(f.Node.Member("config"))
		case UDPProxyFilter:
			out.UDPProxy = r.udpProxy(f.Node.Member("config"))
		}
	}
	if out.Proxy != nil {
		r.setRouteTable(proxy, out.Proxy, manager)
		if out.Proxy.Fallback && out.TCPProxy == nil {
			r.report.Warnf(proxy.Node.Get("fallback_for_unknown_protocol"), "fallback_for_unknown_protocol has no effect: no %q follows, and connections of unknown protocols are closed", TCPProxyFilter)
		}
		out.Proxy.StreamFilters = filters
		r.checkALPN(j, out.Proxy)
		r.proxies = append(r.proxies, proxyNode{proxy.Node, out.Proxy})
	}
	r.checkConnectionFilters(j, out)
	if len(j.Filters) == 0 && j.Node.Get("filters").Kind() == document.Array {
		r.report.Errorf(j.Node.Get("filters"), "the list is empty: expected the network filter %q or %q", ProxyFilter, TCPProxyFilter)
	}
	return out
}
