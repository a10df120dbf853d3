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
)

// legacySubProtocol is the protocol name that means extend_config.sub_protocol in older files.
const legacySubProtocol = "X"

func (r *reader) proxy(j *proxyJSON) *config.Proxy {
	e := &j.Extend
	p := &config.Proxy{
		Fallback: j.Fallback,
		HTTP1: config.HTTP1Options{
			MaxRequestLineSize:       e.MaxRequestLineSize,
			MaxHeaderSize:            e.MaxHeaderSize,
			MaxHeaderCount:           e.MaxHeaderCount,
			MaxRequestBodySize:       e.MaxRequestBodySize,
			HeadTimeout:              e.HeadTimeout,
			BodyTimeout:              e.BodyTimeout,
			WriteTimeout:             e.WriteTimeout,
			StreamIdleTimeout:        e.StreamIdleTimeout,
			MaxRequestsPerConnection: e.MaxRequestsPerConnection,
			Via:                      e.Via,
			XForwarded:               e.XForwarded,
			XForwardedHost:           e.XForwarded == config.ForwardedAppend || e.XForwarded == config.ForwardedSet,
			XFFClientIndex:           e.TrustedHops,
			XFCC:                     r.clientCert(e),
			AllowHalfClose:           e.AllowHalfClose,
			AllowConnect:             e.AllowConnect,
			ServerName:               e.ServerName,
		},
		HTTP2:         r.http2Options(e),
		RPC:           rpcOptions(e),
		DetectTimeout: e.DetectTimeout,
		CallerFields:  config.ClientHeaders{OverrideTimeouts: e.TrustTimeoutFields},
	}
	if !e.UseRemoteAddress {
		p.HTTP1.XFFClientIndex++
	}
	if e.XForwarded == "keep" {
		p.HTTP1.XForwarded = config.ForwardedKeep
	}
	// These settings mean that the client is a trusted proxy and its X-Forwarded-Proto is kept.
	p.ForwardedScheme = p.HTTP1.XFFClientIndex > 0 && (p.HTTP1.XForwarded == config.ForwardedKeep || p.HTTP1.XForwarded == config.ForwardedAppend)
	for _, value := range []struct{ key, text string }{{"via", e.Via}, {"server_name", e.ServerName}} {
		if strings.ContainsAny(value.text, "\r\n\x00") {
			r.report.Errorf(e.Node.Get(value.key), "found a line break or NUL, which a header value cannot contain")
		}
	}
	p.Downstream = r.protocols(j, "downstream_protocol", j.Downstream)
	upstream := r.protocols(j, "upstream_protocol", j.Upstream)
	if len(upstream) == 1 && upstream[0] == config.Auto {
		upstream = nil
	}
	switch {
	case len(upstream) == 1:
		p.Upstream = upstream[0]
		for _, d := range p.Downstream {
			if d != config.Auto && !d.CanSendAs(p.Upstream) {
				r.report.Unsupported(j.Node.Get("upstream_protocol"), "translation from "+string(d)+" to "+string(p.Upstream))
			}
		}
	case len(upstream) > 1 && !slices.Equal(upstream, p.Downstream):
		r.report.Errorf(j.Node.Get("upstream_protocol"), "found several protocols: expected one, or the same list as downstream_protocol")
	}
	if at := e.Node.Get("sub_protocol"); at.Exists() && !strings.EqualFold(j.Downstream, legacySubProtocol) && !strings.EqualFold(j.Upstream, legacySubProtocol) {
		r.report.Warnf(at, "sub_protocol has no effect unless downstream_protocol or upstream_protocol is \"X\"")
	}
	return p
}

// http2Options returns the HTTP/2 limits of extend_config.
func (r *reader) http2Options(e *extendJSON) config.HTTP2Options {
	o := config.DefaultHTTP2Options()
	o.MaxConcurrentStreams, o.StreamIdleTimeout = e.HTTP2MaxStreams, e.HTTP2StreamIdle
	o.StreamWindow, o.ConnectionWindow = e.HTTP2StreamWindow, e.HTTP2ConnectionWindow
	var wider config.TokenBucket
	for _, b := range [...]struct {
		key  string
		from *budgetJSON
		to   *config.TokenBucket
	}{
		{"http2_listener_reset_budget", e.HTTP2ListenerResetBudget, &o.ListenerResets},
		{"http2_source_reset_budget", e.HTTP2SourceResetBudget, &o.SourceResets},
		{"http2_reset_budget", e.HTTP2ResetBudget, &o.ConnectionResets},
	} {
		if b.from != nil {
			*b.to = config.TokenBucket{Burst: b.from.Burst, PerSecond: b.from.PerSecond}
		}
		if b.from != nil && wider.Burst > 0 && b.to.Burst > wider.Burst {
			r.report.Warnf(e.Node.Get(b.key), "the burst of %d is never reached: a wider budget allows %d", b.to.Burst, wider.Burst)
		}
		wider = *b.to
	}
	return o
}

// rpcOptions returns the RPC limits of extend_config.
func rpcOptions(e *extendJSON) config.RPCOptions {
	o := config.DefaultRPCOptions()
	if e.Node.Get("max_request_body_size").Exists() {
		o.MaxFrameSize = int(e.MaxRequestBodySize)
	}
	o.MaxInFlight, o.FrameTimeout, o.WriteTimeout = e.MaxInFlight, e.FrameTimeout, e.WriteTimeout
	o.MaxPendingBytes = e.MaxQueued
	o.SendGoAway = e.BoltGoAway
	return o
}

// protocols parses a comma-separated list of protocol names and resolves "X". Auto must be the only
// element.
func (r *reader) protocols(j *proxyJSON, key, text string) []config.Protocol {
	at := j.Node.Get(key)
	if at.Kind() != document.String {
		return nil // absent, or reported
	}
	if strings.EqualFold(strings.TrimSpace(text), legacySubProtocol) {
		text = j.Extend.SubProtocol
		if text == "" {
			r.report.Errorf(at, "the protocol \"X\" requires extend_config.sub_protocol")
			return nil
		}
		at = j.Extend.Node.Get("sub_protocol")
	}
	built := append([]config.Protocol{config.Auto}, r.capabilities.Protocols...)
	var out []config.Protocol
	for name := range strings.SplitSeq(text, ",") {
		p, ok := choose(r.report, at, "protocol", strings.TrimSpace(name), built, knownProtocols())
		switch {
		case !ok:
		case slices.Contains(out, p):
			r.report.Errorf(at, "duplicate protocol %s", p)
		default:
			out = append(out, p)
		}
	}
	if len(out) > 1 && slices.Contains(out, config.Auto) {
		r.report.Errorf(at, "Auto stands for all protocols: no other protocol is allowed with it")
	}
	return out
}

// setRouteTable sets the route table of a proxy: from its own key, or else the table of the
// connection_manager in the same chain.
func (r *reader) setRouteTable(j *proxyJSON, p *config.Proxy, manager *table) {
	p.RouteTable = j.Router
	if p.RouteTable == "" && manager != nil {
		p.RouteTable = manager.model.Name
	}
	if p.RouteTable == "" && j.Node.Exists() {
		r.report.Errorf(j.Node, "the key \"router_config_name\" is missing: a proxy requires a route table")
	}
}

func (r *reader) tcpProxy(n document.Node) *config.TCPProxy {
	var j tcpProxyJSON
	r.decoder.Decode(n, &j)
	p := &config.TCPProxy{Cluster: j.Cluster, IdleTimeout: j.IdleTimeout, MaxConnectAttempts: j.MaxAttempts}
	if j.Cluster != "" {
		p.Cluster = r.resolveCluster(j.Node, "cluster", j.Cluster)
	} else if len(j.Routes) == 0 {
		r.report.Errorf(j.Node, "expected \"cluster\" or \"routes\"")
	}
	for i := range j.Routes {
		p.Routes = append(p.Routes, r.tcpRoute(&j.Routes[i]))
	}
	return p
}

func (r *reader) tcpRoute(j *tcpRouteJSON) config.TCPRoute {
	ports := func(key, text string) []config.PortRange {
		list, err := portRanges(text)
		if err != nil {
			r.report.Errorf(j.Node.Get(key), "%v", err)
		}
		return list
	}
	return config.TCPRoute{
		Cluster:          r.resolveCluster(j.Node, "cluster", j.Cluster),
		SourceAddrs:      r.prefixes(j.SourceAddrs),
		DestinationAddrs: r.prefixes(j.DestinationAddrs),
		SourcePorts:      ports("source_port", j.SourcePort),
		DestinationPorts: ports("destination_port", j.DestinationPort),
	}
}

// cidrJSON is the object form of an address range.
type cidrJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"An address in the range." required:"true" example:"\"10.0.0.0\""`
	Length  int           `key:"length" doc:"Prefix length." unit:"bits" min:"0" max:"128" required:"true" example:"8"`
}

// prefixes parses address ranges: "10.0.0.0/8", "10.1.2.3", or objects.
func (r *reader) prefixes(list []document.Node) []netip.Prefix {
	return r.ranges(list, func(n document.Node) (string, bool) {
		var j cidrJSON
		ok := r.decoder.Decode(n, &j)
		return j.Address + "/" + strconv.Itoa(j.Length), ok
	})
}

// ranges parses address ranges. longer converts the object form to text; it returns false after it
// has reported an error.
func (r *reader) ranges(list []document.Node, longer func(document.Node) (string, bool)) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range list {
		text := n.Text()
		if n.Kind() == document.Object {
			var ok bool
			if text, ok = longer(n); !ok {
				continue
			}
		}
		if !n.Exists() {
			continue // reported
		}
		if p, err := addressRange(text); err != nil {
			r.report.Errorf(n, "%v", err)
		} else {
			out = append(out, p)
		}
	}
	return out
}

func addressRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("found %q, expected an address range like \"10.0.0.0/8\"", text)
	}
	return p.Masked(), nil
}

// portRanges parses "80,8000-8999".
func portRanges(text string) ([]config.PortRange, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out []config.PortRange
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, errFirst := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
		to, errLast := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
		if errors.Join(errFirst, errLast) != nil || from > to {
			return nil, fmt.Errorf("found %q, expected ports like \"80,8000-8999\"", text)
		}
		out = append(out, config.PortRange{First: uint16(from), Last: uint16(to)})
	}
	return out, nil
}
