package configjson

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/router/chainmatch"
)

// The listener filters that inspect the first bytes of connections.
const (
	TLSInspectorFilter  = "tls_inspector"
	HTTPInspectorFilter = "http_inspector"
)

// readChains converts the filter chains of a listener and checks them against each other.
func (r *reader) readChains(j *listenerJSON, l *config.Listener) {
	at := j.Node.Get("filter_chains")
	if at.Kind() != document.Array {
		return // reported
	}
	if len(j.FilterChains) == 0 {
		r.report.Errorf(at, "the list is empty: a listener needs at least one filter chain")
	}
	filters := r.streamFilters(j.StreamFilters)
	for i := range j.FilterChains {
		l.FilterChains = append(l.FilterChains, r.filterChain(&j.FilterChains[i], filters))
	}
	if j.DefaultChain.Exists() {
		r.defaultChain(j, l, filters)
	}
	r.readPlaintextInspector(j, l)
	r.checkFilters(j, l)
	r.checkChains(j, l)
}

// defaultChain converts the chain of the connections that match no other chain.
func (r *reader) defaultChain(j *listenerJSON, l *config.Listener, filters []config.Filter) {
	var c filterChainJSON
	if !r.decoder.Decode(j.DefaultChain, &c) {
		return
	}
	l.DefaultChain = r.filterChain(&c, filters)
	switch {
	case l.DefaultChain.UDPProxy != nil && l.Network != networkUDP:
		r.report.Errorf(c.Node.Get("filters"), "the network filter %q requires a listener with the network udp", UDPProxyFilter)
	case c.Match != nil:
		r.report.Errorf(c.Match.Node, "match is not allowed in default_filter_chain, which serves connections that match no other chain")
	case len(j.FilterChains) == 1 && j.FilterChains[0].Match == nil:
		r.report.Warnf(j.DefaultChain, "default_filter_chain has no effect: the other chain has no match and serves all connections")
	}
}

// checkFilters reports stream filters of a listener without HTTP or RPC requests.
func (r *reader) checkFilters(j *listenerJSON, l *config.Listener) {
	if len(j.StreamFilters) == 0 {
		return
	}
	for c := range l.Chains() {
		if c.Proxy != nil {
			return
		}
	}
	r.report.Errorf(j.StreamFilters[0].Node, "stream_filters process requests: they require the network filter %q", ProxyFilter)
}

// checkChains reports chains with the same match, and sets InspectTimeout if the matches need
// inspection.
func (r *reader) checkChains(j *listenerJSON, l *config.Listener) {
	names := map[string]bool{}
	for c := range l.Chains() {
		if c.Name != "" && names[c.Name] {
			r.report.Errorf(j.Node.Get("filter_chains"), "duplicate filter chain name %q", c.Name)
		}
		names[c.Name] = true
	}
	matches := make([]config.ChainMatch, len(l.FilterChains))
	for i, c := range l.FilterChains {
		matches[i] = c.Match
	}
	m, err := chainmatch.Compile(matches)
	var conflict *chainmatch.ConflictError
	switch {
	case errors.As(err, &conflict):
		r.report.Errorf(j.FilterChains[conflict.Second].Node, "%s and this chain match the same connections: %s",
			chainName(l, conflict.First), conflict.On)
		return
	case err != nil:
		r.report.Errorf(j.Node.Get("filter_chains"), "%v", err)
		return
	}
	if m.Needs() != 0 {
		l.InspectTimeout = j.FiltersTimeout
	}
	r.checkInspectors(j, l, m.Needs())
}

// chainName returns the name of a filter chain for messages.
func chainName(l *config.Listener, at int) string {
	if name := l.FilterChains[at].Name; name != "" {
		return strconv.Quote(name)
	}
	return fmt.Sprintf("filter_chains[%d]", at)
}

// checkInspectors warns of listener filters without effect. Weft inspects what the matches need
// even without them.
func (r *reader) checkInspectors(j *listenerJSON, l *config.Listener, needs chainmatch.Needs) {
	for i := range j.ListenerFilter {
		f := &j.ListenerFilter[i]
		switch {
		case strings.EqualFold(f.Type, TLSInspectorFilter) && needs&chainmatch.NeedTLS == 0:
			r.report.Warnf(f.Node, "%s has no effect: no filter chain matches server_names, transport_protocol or application_protocols", TLSInspectorFilter)
		case strings.EqualFold(f.Type, HTTPInspectorFilter) && needs&chainmatch.NeedHTTP == 0:
			r.report.Warnf(f.Node, "%s has no effect: no filter chain matches the application_protocols http/1.0, http/1.1 or h2c", HTTPInspectorFilter)
		}
	}
	if at := j.Node.Get("listener_filters_timeout"); at.Exists() && l.ProxyProtocol == nil && needs == 0 {
		r.report.Warnf(at, "listener_filters_timeout has no effect: no listener filter and no match waits for data")
	}
}

// chainMatch converts a match; nil matches all connections.
func (r *reader) chainMatch(j *chainMatchJSON) config.ChainMatch {
	if j == nil {
		return config.ChainMatch{}
	}
	m := config.ChainMatch{
		DestinationPort:      j.DestinationPort,
		DestinationRanges:    r.cidrRanges(j.PrefixRanges),
		TransportProtocol:    config.TransportProtocol(j.TransportProtocol),
		ApplicationProtocols: j.ApplicationProtocols,
		DirectSourceRanges:   r.cidrRanges(j.DirectSourceRanges),
		SourceRanges:         r.cidrRanges(j.SourceRanges),
		SourcePorts:          j.SourcePorts,
	}
	if j.SourceType != "ANY" {
		m.SourceType = config.SourceType(j.SourceType)
	}
	for n := range j.Node.Get("server_names").All() {
		if name, ok := serverName(n.Text()); ok {
			m.ServerNames = append(m.ServerNames, name)
		} else if n.Kind() == document.String {
			r.report.Errorf(n, "found %q, expected a name, or \"*.\" followed by a name", n.Text())
		}
	}
	if slices.Contains(j.ApplicationProtocols, "") {
		r.report.Errorf(j.Node.Get("application_protocols"), "found \"\", expected a protocol name")
	}
	return m
}

// serverName normalizes a name of server_names.
func serverName(text string) (name string, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(text, "."))
	return name, hostName(strings.TrimPrefix(name, "*."))
}

// cidrRanges parses address ranges: "10.0.0.0/8", "10.1.2.3", or objects.
func (r *reader) cidrRanges(list []document.Node) []netip.Prefix {
	return r.ranges(list, func(n document.Node) (string, bool) {
		var j cidrRangeJSON
		ok := r.decoder.Decode(n, &j)
		return j.Address + "/" + strconv.Itoa(j.Length), ok
	})
}
