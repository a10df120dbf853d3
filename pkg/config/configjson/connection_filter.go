package configjson

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// connectionFilterFactory returns the factory of a connection filter, or nil if name is not a
// supported connection filter.
func (r *filterReader) connectionFilterFactory(name string) *filter.ConnectionFilterFactory {
	for i := range r.capabilities.ConnectionFilters {
		if factory := &r.capabilities.ConnectionFilters[i]; strings.EqualFold(factory.Name, name) {
			return factory
		}
	}
	return nil
}

// networkFilterNames returns all network filter names that a file may contain, supported or not.
func (r *filterReader) networkFilterNames() []string {
	names := knownNetworkFilters()
	for i := range r.capabilities.ConnectionFilters {
		names = append(names, r.capabilities.ConnectionFilters[i].Name)
	}
	return names
}

// readConnectionFilter converts a connection filter and appends it to the filters of out.
func (r *filterReader) readConnectionFilter(f *networkFilterJSON, factory *filter.ConnectionFilterFactory, out *config.FilterChain) {
	if out.Proxy != nil || out.TCPProxy != nil || out.UDPProxy != nil {
		r.report.Errorf(f.Node.Get("type").Or(f.Node), "the network filter %q must precede the filter that serves the connections", factory.Name)
	}
	settings := factory.Config()
	r.decode(f.Node.MemberOrEmpty("config"), settings)
	out.ConnectionFilters = append(out.ConnectionFilters, config.Filter{Name: factory.Name, Config: settings})
}

// checkConnectionFilters reports connection filters without a filter that serves connections,
// connection filters for UDP, and observers without a TCP proxy.
func (r *listenerReader) checkConnectionFilters(j *filterChainJSON, out *config.FilterChain) {
	switch {
	case len(out.ConnectionFilters) == 0:
	case out.UDPProxy != nil:
		r.report.Errorf(j.Node.Get("filters"), "the network filter %q is for connections: a listener with the network udp has none", out.ConnectionFilters[0].Name)
	case out.Proxy == nil && out.TCPProxy == nil:
		r.report.Errorf(j.Node.Get("filters"), "the network filter %q serves no connections: expected a %q or %q after it", out.ConnectionFilters[0].Name, ProxyFilter, TCPProxyFilter)
	case out.TCPProxy == nil:
		for _, f := range out.ConnectionFilters {
			if r.filters.connectionFilterFactory(f.Name).NewObserver != nil {
				r.report.Errorf(j.Node.Get("filters"), "the network filter %q observes the bytes that a %q forwards: it requires one after it", f.Name, TCPProxyFilter)
			}
		}
	}
}
