package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/chainmatch"
)

type exchange = protocol.Exchange

// Ranks of listeners for a query, worst first.
const (
	noMatch       = iota
	matchCatchAll // the listener accepts all redirected connections
	matchPort     // the listener is bound to the port, at every address or for a query without an address
	matchVirtual  // the listener is virtual, for the port at every address; it gets connections from other listeners
	matchExact    // the listener has exactly the address
)

// findListener finds the listener for q. If there is none, it returns nil and sets EndReason.
func (res *Result) findListener(c *config.Snapshot, q *Query) *config.Listener {
	chosen, reason := chooseListener(c.Listeners, q)
	for _, l := range c.Listeners {
		if l == chosen {
			res.Listener = &Selected{l.Name, reason}
			continue
		}
		if q.Listener == "" || chosen == nil {
			res.OtherListeners = append(res.OtherListeners, Alternative{l.Name, []string{listenerMismatch(l, q)}})
		}
	}
	if chosen == nil {
		res.EndReason = reason
	}
	return chosen
}

// unknownListener returns an error text for an unknown name. It suggests a similar known name if
// there is one.
func unknownListener(listeners []*config.Listener, name string) string {
	names := make([]string, len(listeners))
	for i, l := range listeners {
		names[i] = l.Name
	}
	text := fmt.Sprintf("listener %q is not defined", name)
	if suggestion := document.Suggest(name, names); suggestion != "" {
		text += fmt.Sprintf("; did you mean %q?", suggestion)
	}
	return text
}

// chooseListener returns the listener for q, or nil, and the reason.
func chooseListener(listeners []*config.Listener, q *Query) (*config.Listener, string) {
	if q.Listener != "" {
		for _, l := range listeners {
			if l.Name == q.Listener {
				return l, "the query names it"
			}
		}
		return nil, unknownListener(listeners, q.Listener)
	}
	var best *config.Listener
	rank, bestReason := noMatch, ""
	for _, l := range listeners {
		if r, reason := rankListener(l, q); r > rank {
			best, rank, bestReason = l, r, reason
		}
	}
	if best != nil {
		return best, bestReason
	}
	var candidates []*config.Listener
	for _, l := range listeners {
		if acceptsProtocol(l, q.Protocol) {
			candidates = append(candidates, l)
		}
	}
	switch len(candidates) {
	case 0:
		return nil, fmt.Sprintf("no listener speaks %s", q.Protocol)
	case 1:
		return candidates[0], fmt.Sprintf("it is the only listener that speaks %s", q.Protocol)
	}
	return nil, fmt.Sprintf("%d listeners speak %s and none matches %s: name the listener in the query", len(candidates), q.Protocol, destinationText(q))
}

// rankListener returns the rank of l for the destination of q, and the reason.
func rankListener(l *config.Listener, q *Query) (rank int, reason string) {
	addr, dst := addressOf(l), q.Destination
	switch {
	case l.Network != "tcp" || dst.Port() == 0:
		return noMatch, ""
	case addr == dst && l.Bind:
		return matchExact, "it is bound to " + l.Address
	case addr == dst:
		return matchExact, "connections to " + l.Address + " are handed to it"
	case addr.Port() == dst.Port() && !l.Bind && addr.Addr().IsUnspecified():
		return matchVirtual, "connections to port " + strconv.Itoa(int(addr.Port())) + " are handed to it"
	case addr.Port() == dst.Port() && l.Bind && (addr.Addr().IsUnspecified() || !dst.Addr().IsValid()):
		return matchPort, "it is bound to " + l.Address
	case l.Bind && l.OriginalDst != "" && !l.Ingress:
		return matchCatchAll, "no listener matches " + destinationText(q) + ", and it accepts redirected connections"
	}
	return noMatch, ""
}

// listenerMismatch describes why l is not chosen.
func listenerMismatch(l *config.Listener, q *Query) string {
	switch rank, reason := rankListener(l, q); {
	case q.Listener != "":
		return "the query names another listener; this one is at " + l.Address
	case rank == matchCatchAll:
		return "it accepts only redirected connections that no other listener matches"
	case rank == noMatch && q.Destination.Port() != 0:
		return fmt.Sprintf("it is at %s, and the connection goes to %s", l.Address, destinationText(q))
	case rank == noMatch && !acceptsProtocol(l, q.Protocol):
		return fmt.Sprintf("it does not speak %s", q.Protocol)
	case rank == noMatch:
		return "it is at " + l.Address
	default:
		return reason + ", but another listener takes precedence"
	}
}

// destinationText describes the destination of the connection, as far as it is known.
func destinationText(q *Query) string {
	switch dst := q.Destination; {
	case dst.Port() == 0:
		return "an unknown address"
	case !dst.Addr().IsValid():
		return "port " + strconv.Itoa(int(dst.Port()))
	default:
		return dst.String()
	}
}

// addressOf returns the address of a listener; it is not valid if l has no IP address.
func addressOf(l *config.Listener) netip.AddrPort {
	address := l.Address
	if strings.HasPrefix(address, ":") {
		address = "0.0.0.0" + address
	}
	addr, _ := netip.ParseAddrPort(address) // fails for a path or a name
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// acceptsProtocol reports whether a chain of l accepts requests of protocol p.
func acceptsProtocol(l *config.Listener, p config.Protocol) bool {
	for fc := range l.Chains() {
		if fc.Proxy != nil && downstreamProtocol(fc.Proxy, p) != "" {
			return true
		}
	}
	return false
}

// downstreamProtocol returns the protocol in which proxy accepts a request of protocol p: p itself,
// or the other version of HTTP. It returns "" if there is none.
func downstreamProtocol(proxy *config.Proxy, p config.Protocol) config.Protocol {
	for _, d := range proxy.Downstream {
		switch {
		case d.Accepts(p), d == config.Auto && p.CanSendAs(proxy.Upstream):
			return p
		case isHTTP(d) && isHTTP(p):
			return d
		}
	}
	return ""
}

// findChain finds the filter chain for q. If there is none, it returns nil and sets EndReason.
func (res *Result) findChain(l *config.Listener, q *Query) *config.FilterChain {
	c := connectionOf(l, q)
	matches := make([]config.ChainMatch, len(l.FilterChains))
	for i, fc := range l.FilterChains {
		matches[i] = fc.Match
	}
	m, err := chainmatch.Compile(matches)
	if err != nil {
		res.EndReason = err.Error() // cannot happen with a valid configuration
		return nil
	}
	var chosen *config.FilterChain
	reason := "it matches all connections"
	if at := m.Match(&c); at >= 0 {
		chosen = l.FilterChains[at]
		if text := chosen.Match.String(); text != "" {
			reason = "the connection matches " + text
		}
	} else if chosen = l.DefaultChain; chosen != nil {
		reason = "it is the default for connections that no other filter chain matches"
	}
	for fc := range l.Chains() {
		if fc == chosen {
			res.Chain = &Selected{chainName(l, fc), reason}
			continue
		}
		other := Alternative{chainName(l, fc), chainmatch.Mismatches(&fc.Match, &c)}
		switch {
		case fc == l.DefaultChain:
			other.Reasons = []string{"another filter chain matches the connection"}
		case len(other.Reasons) == 0:
			other.Reasons = []string{"its criteria match, but another filter chain is more specific"}
		}
		res.OtherChains = append(res.OtherChains, other)
	}
	if chosen == nil {
		res.EndReason = "no filter chain matches the connection: Weft closes it"
	}
	return chosen
}

// connectionOf returns the properties of q's connection at l.
func connectionOf(l *config.Listener, q *Query) chainmatch.Connection {
	addr, dst := addressOf(l), q.Destination
	if ip := addr.Addr(); !dst.Addr().IsValid() && ip.IsValid() && !ip.IsUnspecified() {
		dst = netip.AddrPortFrom(ip, dst.Port())
	}
	if dst.Port() == 0 || l.OriginalDst == "" && l.Bind {
		dst = netip.AddrPortFrom(dst.Addr(), addr.Port())
	}
	c := chainmatch.Connection{Destination: dst, Source: q.Source, DirectSource: q.Source.Addr(), Transport: config.RawBuffer, Protocols: q.ALPN}
	if q.TLS {
		c.Transport, c.ServerName = config.TransportTLS, q.ServerName
	}
	return c
}

// chainName returns the name of fc, or a text that stands for it if fc has none.
func chainName(l *config.Listener, fc *config.FilterChain) string {
	if fc == l.DefaultChain {
		return cmp.Or(fc.Name, "(default)")
	}
	return cmp.Or(fc.Name, fc.Match.String(), "(all)")
}

// chainProtocol returns the protocol with which the chain serves the request, or "" if the chain
// relays bytes. If it can do neither, ok is false and EndReason is set.
func (res *Result) chainProtocol(fc *config.FilterChain, q *Query) (p config.Protocol, ok bool) {
	if fc.Proxy != nil {
		p = downstreamProtocol(fc.Proxy, q.Protocol)
	}
	switch {
	case p != "":
		return p, true
	case fc.TCPProxy != nil && (fc.Proxy == nil || fc.Proxy.Fallback):
		return "", true
	case fc.Proxy == nil:
		res.EndReason = "the filter chain accepts only UDP datagrams"
		return "", false
	}
	res.EndReason = fmt.Sprintf("the filter chain speaks %v, not %s", fc.Proxy.Downstream, q.Protocol)
	return "", false
}

// findRelayCluster sets the cluster to which a chain that relays bytes sends the connection.
func (res *Result) findRelayCluster(t *config.TCPProxy, upstreams Upstreams, q *Query) {
	name := t.Cluster
	for i := range t.Routes {
		r := &t.Routes[i]
		if inRanges(q.Source, r.SourceAddrs, r.SourcePorts) && inRanges(q.Destination, r.DestinationAddrs, r.DestinationPorts) {
			name = r.Cluster
			break
		}
	}
	if name == "" && len(t.WeightedClusters) > 0 {
		total := 0.0
		for _, w := range t.WeightedClusters {
			total += float64(w.Weight)
		}
		for _, w := range t.WeightedClusters {
			res.RelayedTo = append(res.RelayedTo, describeCluster(upstreams, w.Cluster, 100*float64(w.Weight)/total, nil, nil))
		}
		return
	}
	if name == "" {
		res.EndReason = "no route of tcp_proxy matches the connection: Weft closes it"
		return
	}
	res.RelayedTo = []Cluster{describeCluster(upstreams, name, 100, nil, nil)}
}

// inRanges reports whether a is in one of the address ranges and in one of the port ranges. An
// empty list contains everything.
func inRanges(a netip.AddrPort, addrs []netip.Prefix, ports []config.PortRange) bool {
	return (len(addrs) == 0 || slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Contains(a.Addr()) })) &&
		(len(ports) == 0 || slices.ContainsFunc(ports, func(r config.PortRange) bool { return r.First <= a.Port() && a.Port() <= r.Last }))
}
