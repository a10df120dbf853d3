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

// How well a listener matches a query, the best last.
const (
	noMatch       = iota
	matchCatchAll // it accepts all redirected connections
	matchPort     // bound to the port at every address, or the query has no address
	matchVirtual  // like bound, for a virtual listener that gets connections from others
	matchExact    // it has exactly the address
)

// findListener finds the listener for q. If there is none, it returns nil and sets End.
func (a *Answer) findListener(c *config.Snapshot, q *Query) *config.Listener {
	chosen, why := chooseListener(c.Listeners, q)
	for _, l := range c.Listeners {
		if l == chosen {
			a.Listener = &Selected{l.Name, why}
			continue
		}
		if q.Listener == "" || chosen == nil {
			a.OtherListeners = append(a.OtherListeners, Other{l.Name, []string{whyNotListener(l, q)}})
		}
	}
	if chosen == nil {
		a.End = why
	}
	return chosen
}

// unknownListener returns an error text for an unknown name, with the nearest known name.
func unknownListener(all []*config.Listener, name string) string {
	names := make([]string, len(all))
	for i, l := range all {
		names[i] = l.Name
	}
	text := fmt.Sprintf("listener %q is not defined", name)
	if near := document.Suggest(name, names); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

// chooseListener returns the listener and the reason, or nil and why there is none.
func chooseListener(all []*config.Listener, q *Query) (*config.Listener, string) {
	if q.Listener != "" {
		for _, l := range all {
			if l.Name == q.Listener {
				return l, "the query names it"
			}
		}
		return nil, unknownListener(all, q.Listener)
	}
	var best *config.Listener
	rank, reason := noMatch, ""
	for _, l := range all {
		if r, why := rankListener(l, q); r > rank {
			best, rank, reason = l, r, why
		}
	}
	if best != nil {
		return best, reason
	}
	var speaking []*config.Listener
	for _, l := range all {
		if acceptsProtocol(l, q.Protocol) {
			speaking = append(speaking, l)
		}
	}
	switch len(speaking) {
	case 0:
		return nil, fmt.Sprintf("no listener speaks %s", q.Protocol)
	case 1:
		return speaking[0], fmt.Sprintf("it is the only listener that speaks %s", q.Protocol)
	}
	return nil, fmt.Sprintf("%d listeners speak %s and none matches %s: name the listener in the query", len(speaking), q.Protocol, destination(q))
}

// rankListener returns how well l matches the destination of q, and why.
func rankListener(l *config.Listener, q *Query) (rank int, why string) {
	at, to := addressOf(l), q.Destination
	switch {
	case l.Network != "tcp" || to.Port() == 0:
		return noMatch, ""
	case at == to && l.Bind:
		return matchExact, "it is bound to " + l.Address
	case at == to:
		return matchExact, "connections to " + l.Address + " are handed to it"
	case at.Port() == to.Port() && !l.Bind && at.Addr().IsUnspecified():
		return matchVirtual, "connections to port " + strconv.Itoa(int(at.Port())) + " are handed to it"
	case at.Port() == to.Port() && l.Bind && (at.Addr().IsUnspecified() || !to.Addr().IsValid()):
		return matchPort, "it is bound to " + l.Address
	case l.Bind && l.OriginalDst != "" && !l.Ingress:
		return matchCatchAll, "no listener matches " + destination(q) + ", and it accepts redirected connections"
	}
	return noMatch, ""
}

// whyNotListener says why l is not chosen.
func whyNotListener(l *config.Listener, q *Query) string {
	switch rank, why := rankListener(l, q); {
	case q.Listener != "":
		return "the query names another listener; this one is at " + l.Address
	case rank == matchCatchAll:
		return "it accepts only redirected connections that no other listener matches"
	case rank == noMatch && q.Destination.Port() != 0:
		return fmt.Sprintf("it is at %s, and the connection goes to %s", l.Address, destination(q))
	case rank == noMatch && !acceptsProtocol(l, q.Protocol):
		return fmt.Sprintf("it does not speak %s", q.Protocol)
	case rank == noMatch:
		return "it is at " + l.Address
	default:
		return why + ", but another listener takes precedence"
	}
}

// destination describes the destination of the connection, as far as it is known.
func destination(q *Query) string {
	switch to := q.Destination; {
	case to.Port() == 0:
		return "an unknown address"
	case !to.Addr().IsValid():
		return "port " + strconv.Itoa(int(to.Port()))
	default:
		return to.String()
	}
}

// addressOf returns the address of a listener; it is not valid if l has no IP address.
func addressOf(l *config.Listener) netip.AddrPort {
	text := l.Address
	if strings.HasPrefix(text, ":") {
		text = "0.0.0.0" + text
	}
	at, _ := netip.ParseAddrPort(text) // fails for a path or a name
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
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

// downstreamProtocol returns the protocol in which the proxy receives requests like those of p, or
// "".
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

// findChain finds the filter chain for q. If there is none, it returns nil and sets End.
func (a *Answer) findChain(l *config.Listener, q *Query) *config.FilterChain {
	c := connectionOf(l, q)
	matches := make([]config.ChainMatch, len(l.FilterChains))
	for i, fc := range l.FilterChains {
		matches[i] = fc.Match
	}
	m, err := chainmatch.Compile(matches)
	if err != nil {
		a.End = err.Error() // cannot happen with a valid configuration
		return nil
	}
	var chosen *config.FilterChain
	why := "it matches all connections"
	if at := m.Match(&c); at >= 0 {
		chosen = l.FilterChains[at]
		if text := chosen.Match.String(); text != "" {
			why = "the connection matches " + text
		}
	} else if chosen = l.DefaultChain; chosen != nil {
		why = "it is the default for connections that no other filter chain matches"
	}
	for fc := range l.Chains() {
		if fc == chosen {
			a.Chain = &Selected{chainName(l, fc), why}
			continue
		}
		other := Other{chainName(l, fc), chainmatch.Mismatches(&fc.Match, &c)}
		switch {
		case fc == l.DefaultChain:
			other.Why = []string{"another filter chain matches the connection"}
		case len(other.Why) == 0:
			other.Why = []string{"its criteria match, but another filter chain is more specific"}
		}
		a.OtherChains = append(a.OtherChains, other)
	}
	if chosen == nil {
		a.End = "no filter chain matches the connection: Weft closes it"
	}
	return chosen
}

// connectionOf returns the properties of q's connection that l would know.
func connectionOf(l *config.Listener, q *Query) chainmatch.Connection {
	at, to := addressOf(l), q.Destination
	if ip := at.Addr(); !to.Addr().IsValid() && ip.IsValid() && !ip.IsUnspecified() {
		to = netip.AddrPortFrom(ip, to.Port())
	}
	if to.Port() == 0 || l.OriginalDst == "" && l.Bind {
		to = netip.AddrPortFrom(to.Addr(), at.Port())
	}
	c := chainmatch.Connection{Destination: to, Source: q.Source, DirectSource: q.Source.Addr(), Transport: config.RawBuffer, Protocols: q.ALPN}
	if q.TLS {
		c.Transport, c.ServerName = config.TransportTLS, q.ServerName
	}
	return c
}

// chainName returns a name that distinguishes fc from the other chains of l.
func chainName(l *config.Listener, fc *config.FilterChain) string {
	if fc == l.DefaultChain {
		return cmp.Or(fc.Name, "(default)")
	}
	return cmp.Or(fc.Name, fc.Match.String(), "(all)")
}

// chainProtocol returns the protocol with which the chain serves the request, or "" if the chain
// relays bytes. If it can do neither, ok is false and End is set.
func (a *Answer) chainProtocol(fc *config.FilterChain, q *Query) (p config.Protocol, ok bool) {
	if fc.Proxy != nil {
		p = downstreamProtocol(fc.Proxy, q.Protocol)
	}
	switch {
	case p != "":
		return p, true
	case fc.TCPProxy != nil && (fc.Proxy == nil || fc.Proxy.Fallback):
		return "", true
	case fc.Proxy == nil:
		a.End = "the filter chain accepts only UDP datagrams"
		return "", false
	}
	a.End = fmt.Sprintf("the filter chain speaks %v, not %s", fc.Proxy.Downstream, q.Protocol)
	return "", false
}

// relay sets where a chain that relays bytes sends the connection.
func (a *Answer) relay(t *config.TCPProxy, up Upstreams, q *Query) {
	name := t.Cluster
	for i := range t.Routes {
		r := &t.Routes[i]
		if inRanges(q.Source, r.SourceAddrs, r.SourcePorts) && inRanges(q.Destination, r.DestinationAddrs, r.DestinationPorts) {
			name = r.Cluster
			break
		}
	}
	if name == "" {
		a.End = "no route of tcp_proxy matches the connection: Weft closes it"
		return
	}
	a.RelayedTo = []Cluster{cluster(up, name, 100, nil, nil)}
}

// inRanges reports whether a is in one of the address ranges and in one of the port ranges. An
// empty list contains everything.
func inRanges(a netip.AddrPort, addrs []netip.Prefix, ports []config.PortRange) bool {
	return (len(addrs) == 0 || slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Contains(a.Addr()) })) &&
		(len(ports) == 0 || slices.ContainsFunc(ports, func(r config.PortRange) bool { return r.First <= a.Port() && a.Port() <= r.Last }))
}
