package configjson

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// gate finds a network filter that decides about connections; nil: it is none.
func (r *reader) gate(name string) *filter.ConnectionFilterFactory {
	for i := range r.kinds.Gates {
		if g := &r.kinds.Gates[i]; strings.EqualFold(g.Name, name) {
			return g
		}
	}
	return nil
}

// networkFilters are the names that a file may have for network filters, built or not.
func (r *reader) networkFilters() []string {
	names := knownNetworkFilters()
	for i := range r.kinds.Gates {
		names = append(names, r.kinds.Gates[i].Name)
	}
	return names
}

// readGate converts a network filter that decides about connections, of which out has
// those before it.
func (r *reader) readGate(f *networkFilterJSON, kind *filter.ConnectionFilterFactory, out *config.FilterChain) {
	if out.Proxy != nil || out.TCPProxy != nil || out.UDPProxy != nil {
		r.report.Errorf(f.Node.Get("type").Or(f.Node), "the network filter %q stands behind the one that serves connections: it would decide about none", kind.Name)
	}
	settings := kind.Config()
	r.decoder.Decode(f.Node.Member("config"), settings)
	r.checkNamed(kind.Name, f.Node.Get("config"))
	out.Gates = append(out.Gates, config.Filter{Name: kind.Name, Config: settings})
}

// checkGates refuses gates before nothing, and before datagrams, which are no
// connections, and those that watch what is carried where nothing is.
func (r *reader) checkGates(j *filterChainJSON, out *config.FilterChain) {
	switch {
	case len(out.Gates) == 0:
	case out.UDPProxy != nil:
		r.report.Errorf(j.Node.Get("filters"), "the network filter %q is for connections, and datagrams are none", out.Gates[0].Name)
	case out.Proxy == nil && out.TCPProxy == nil:
		r.report.Errorf(j.Node.Get("filters"), "%q serves no connection: expected a %q or %q behind it", out.Gates[0].Name, ProxyFilter, TCPProxyFilter)
	case out.TCPProxy == nil:
		for _, g := range out.Gates {
			if r.gate(g.Name).NewObserver != nil {
				r.report.Errorf(j.Node.Get("filters"), "the network filter %q watches what a %q carries, and there is none behind it", g.Name, TCPProxyFilter)
			}
		}
	}
}
