package configjson

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// legacySubProtocol is the protocol name that means extend_config.sub_protocol in older files.
const legacySubProtocol = "X"

// proxyJSON is the network filter "proxy".
type proxyJSON struct {
	Node       document.Node `key:"."`
	Downstream string        `key:"downstream_protocol" choice:"protocol,list" doc:"Protocol of the clients; several separated by commas, in the order of detection; or \"Auto\" for all protocols that upstream_protocol allows. \"X\" in older files: see extend_config.sub_protocol." required:"true" example:"\"Http1\""`
	Upstream   string        `key:"upstream_protocol" choice:"upstream_protocol" doc:"Protocol to upstreams, if neither route nor cluster sets one. Absent or \"Auto\": the protocol of the client. Weft translates between HTTP/1.1 and HTTP/2, but not RPC protocols." example:"\"Http1\""`
	Router     string        `key:"router_config_name" doc:"Name of the route table." example:"\"routes\""`
	Extend     extendJSON    `key:"extend_config" doc:"Limits and options of the protocols."`
	Fallback   bool          `key:"fallback_for_unknown_protocol" doc:"Pass connections of unknown protocols, with all their bytes, to the tcp_proxy that follows." example:"true"`
	Validate   bool          `key:"validate_clusters" doc:"Check that clusters exist." ignored:"clusters are always checked" example:"true"`
	Name       string        `key:"name" doc:"Name of the filter." ignored:"true" example:"\"proxy\""`
}

// extendJSON is the value of the key "extend_config". It has the settings of config.HTTP1Options,
// config.HTTP2Options and config.RPCOptions. A test compares its defaults with those of package
// config.
type extendJSON struct {
	Node                     document.Node        `key:"."`
	MaxRequestLineSize       int                  `key:"max_request_line_size" doc:"HTTP/1.1: maximum length of the request line; longer ones get 414." unit:"bytes" min:"256" max:"1048576" default:"8192" example:"4096"`
	MaxHeaderSize            int                  `key:"max_header_size" doc:"Maximum size of a request's headers, including the request line; larger ones get 431." unit:"bytes" min:"256" max:"16777216" default:"16384" example:"8192"`
	MaxHeaderCount           int                  `key:"max_header_count" doc:"Maximum number of headers; more get 431." unit:"fields" min:"1" max:"10000" default:"100" example:"64"`
	MaxRequestBodySize       int64                `key:"max_request_body_size" doc:"Maximum size of a request body; larger ones get 413. 0: no limit. For RPC: maximum frame size, 8 MiB if absent; larger frames get an error response." unit:"bytes" min:"0" default:"0" example:"1048576"`
	HeadTimeout              time.Duration        `key:"head_timeout" doc:"HTTP/1.1: maximum time from the first byte of a request to the end of its headers; then 408." min:"1ms" default:"10s" example:"\"5s\""`
	BodyTimeout              time.Duration        `key:"body_timeout" doc:"HTTP/1.1: maximum time between two reads of a request body; then 408. HTTP/2: maximum time without a byte of an incomplete frame; then Weft closes the connection." min:"1ms" default:"30s" example:"\"5s\""`
	WriteTimeout             time.Duration        `key:"write_timeout" doc:"Maximum time in which a client accepts no byte of a response; then Weft closes the connection." min:"1ms" default:"30s" example:"\"5s\""`
	StreamIdleTimeout        time.Duration        `key:"stream_idle_timeout" doc:"HTTP/1.1: maximum time without a byte of a request or its response. An incomplete request then gets 408, a complete one 504; if the response has begun, the connection is closed. A tunnel, such as WebSocket, is closed after this time without a byte in either direction. For HTTP/2, set http2_stream_idle_timeout. 0s: no limit, and connection_idle_timeout applies to tunnels." default:"0s" example:"\"5m\""`
	MaxInFlight              int                  `key:"max_in_flight" doc:"RPC: maximum number of requests in flight on one connection; at the limit, Weft stops reading from it. 0: no limit." unit:"requests" min:"0" default:"10000" example:"1000"`
	FrameTimeout             time.Duration        `key:"frame_timeout" doc:"RPC: maximum time between two reads of an incomplete frame; then Weft closes the connection." min:"1ms" default:"30s" example:"\"5s\""`
	DetectTimeout            time.Duration        `key:"detect_timeout" doc:"Maximum time from the first byte of a connection until Weft has detected its protocol. Then Weft passes the connection to tcp_proxy (fallback_for_unknown_protocol), treats it as HTTP/1.1 if downstream_protocol lists only HTTP, or closes it." min:"1ms" default:"10s" example:"\"2s\""`
	MaxRequestsPerConnection int                  `key:"max_requests_per_connection" doc:"HTTP: maximum number of requests on a client connection. Then Weft closes the connection: with Connection: close in HTTP/1.1, with GOAWAY in HTTP/2. 0: no limit." unit:"requests" min:"0" default:"0" example:"1000"`
	Via                      string               `key:"via" doc:"Pseudonym that Weft adds to the Via header of requests and responses. Empty: none." example:"\"weft\""`
	XForwarded               config.ForwardedMode `key:"x_forwarded" doc:"Handling of X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host: keep passes them on. append adds the remote address of the connection to X-Forwarded-For, and the other two headers if they are missing. set replaces all three. strip removes them." enum:"keep|append|set|strip" default:"keep" example:"\"append\""`
	UseRemoteAddress         bool                 `key:"use_remote_address" doc:"true: connections come from clients, or from the last of the xff_num_trusted_hops proxies. false: they come from one further trusted proxy, which xff_num_trusted_hops does not count." default:"true" example:"false"`
	TrustedHops              int                  `key:"xff_num_trusted_hops" doc:"Number of trusted proxies that append to X-Forwarded-For. The address that the first of them appended is the client address for access logs, hashing and filters (remote_ip). If it is not a valid address, the remote address of the connection is used." min:"0" max:"100" default:"0" example:"1"`
	TrustTimeoutFields       bool                 `key:"trust_timeout_fields" doc:"Let clients override timeout and retry_timeout of routes with the headers x-mosn-global-timeout and x-mosn-try-timeout, in milliseconds (RPC: attachments with these names). Use it only in the sidecar of a trusted application; on a listener of type ingress it is an error. false: Weft removes the headers." default:"false" example:"true"`
	AllowHalfClose           bool                 `key:"allow_half_close" doc:"HTTP/1.1 and RPC: send the response to clients that have half-closed the connection." example:"true"`
	AllowConnect             bool                 `key:"allow_connect" doc:"Allow routes to match CONNECT. false: CONNECT gets 405." example:"true"`
	ServerName               string               `key:"server_name" doc:"Value of the Server header in Weft's local replies. Empty: no header." example:"\"weft\""`

	clientCertJSON

	HTTP2MaxStreams       int           `key:"http2_max_concurrent_streams" doc:"HTTP/2: maximum number of concurrent streams on one connection; Weft refuses further streams. Also the size of a token bucket for streams that a client resets before their response. The bucket refills in 100 ms; while it is empty, Weft refuses streams." unit:"streams" min:"1" max:"1000000" default:"1024" example:"100"`
	HTTP2StreamWindow     int           `key:"http2_stream_window" doc:"HTTP/2: flow-control window of a stream: maximum body bytes that a client may send before they are read." unit:"bytes" min:"65535" max:"2147483647" default:"262144" example:"1048576"`
	HTTP2ConnectionWindow int           `key:"http2_connection_window" doc:"HTTP/2: flow-control window of a connection: maximum body bytes of all streams that a client may send before they are read." unit:"bytes" min:"65535" max:"2147483647" default:"16777216" example:"1048576"`
	HTTP2StreamIdle       time.Duration `key:"http2_stream_idle_timeout" doc:"HTTP/2: maximum time without a byte in either direction on an open stream. A complete request without a response then gets 504, an incomplete one 408; if the response has begun, the stream is reset. 0s: no limit." default:"5m" example:"\"1h\""`

	HTTP2ResetBudget         *budgetJSON `key:"http2_reset_budget" doc:"HTTP/2: token bucket for requests of one connection that the client resets within 50 ms of sending them. Each request that completes with its response refunds one token. If the bucket is empty, Weft closes the connection. Absent: burst 500, 50 per second."`
	HTTP2SourceResetBudget   *budgetJSON `key:"http2_source_reset_budget" doc:"HTTP/2: token bucket for the charges of all connections of the listener from one IPv4 address or one IPv6 /64 (docs/overload.md). If a connection takes tokens from an empty bucket, Weft closes it. Absent: burst 2000, 200 per second."`
	HTTP2ListenerResetBudget *budgetJSON `key:"http2_listener_reset_budget" doc:"HTTP/2: token bucket for the charges of all connections of the listener (docs/overload.md). If a connection takes tokens from an empty bucket, Weft closes it. Absent: burst 20000, 2000 per second."`
	MaxQueued                int         `key:"max_queued_bytes" doc:"RPC: maximum number of bytes queued for a client that does not read. From 1 MiB on, Weft stops reading its requests; responses to requests in flight may still be queued up to this limit. Then the connection is closed." unit:"bytes" min:"1048576" max:"2147483647" default:"67108864" example:"16777216"`

	SubProtocol    string `key:"sub_protocol" doc:"Older files: the protocols that \"X\" means, separated by commas." example:"\"dubbo\""`
	HTTP2UseStream bool   `key:"http2_use_stream" doc:"Stream HTTP/2 bodies." ignored:"bodies are always streamed" example:"true"`
	BoltGoAway     bool   `key:"enable_bolt_goaway" doc:"Send Bolt clients a GOAWAY frame before closing their connection. Many clients do not know the frame and close the connection immediately when they receive it." default:"false" example:"true"`
}

// budgetJSON is a token bucket.
type budgetJSON struct {
	Node      document.Node `key:"."`
	Burst     int           `key:"burst" doc:"Size of the token bucket." unit:"requests" min:"1" max:"1000000" required:"true" example:"500"`
	PerSecond int           `key:"per_second" doc:"Tokens added per second." unit:"requests" min:"1" max:"1000000" required:"true" example:"50"`
}

// clientCertJSON contains the keys of extend_config about X-Forwarded-Client-Cert.
type clientCertJSON struct {
	ForwardClientCert string              `key:"forward_client_cert_details" doc:"Handling of X-Forwarded-Client-Cert, the header with details of client certificates. SANITIZE removes it. FORWARD_ONLY passes it on from clients with a verified certificate. APPEND_FORWARD also appends the client's certificate. SANITIZE_SET replaces it with the client's certificate. ALWAYS_FORWARD_ONLY passes it on from any client." enum:"SANITIZE|FORWARD_ONLY|APPEND_FORWARD|SANITIZE_SET|ALWAYS_FORWARD_ONLY" default:"SANITIZE" example:"\"SANITIZE_SET\""`
	ClientCertDetails *certificateDetails `key:"set_current_client_cert_details" doc:"Details that APPEND_FORWARD and SANITIZE_SET send in addition to the certificate hash and the URI of the listener's certificate."`
}

// certificateDetails is the value of the key "set_current_client_cert_details".
type certificateDetails struct {
	Subject bool `key:"subject" doc:"Add the distinguished name of the subject." default:"false" example:"true"`
	Cert    bool `key:"cert" doc:"Add the certificate as PEM." default:"false" example:"true"`
	Chain   bool `key:"chain" doc:"Add the certificate chain that the client sent, as PEM." default:"false" example:"true"`
	DNS     bool `key:"dns" doc:"Add the DNS names of the certificate." default:"false" example:"true"`
	URI     bool `key:"uri" doc:"Add the first URI of the certificate." default:"false" example:"true"`
}

func (r *listenerReader) readProxy(j *proxyJSON) *config.Proxy {
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
			XFCC:                     r.readClientCert(e),
			AllowHalfClose:           e.AllowHalfClose,
			AllowConnect:             e.AllowConnect,
			ServerName:               e.ServerName,
		},
		HTTP2:         r.readHTTP2Options(e),
		RPC:           readRPCOptions(e),
		DetectTimeout: e.DetectTimeout,
		ClientHeaders: config.ClientHeaders{OverrideTimeouts: e.TrustTimeoutFields},
	}
	if !e.UseRemoteAddress {
		p.HTTP1.XFFClientIndex++
	}
	if e.XForwarded == "keep" {
		p.HTTP1.XForwarded = config.ForwardedKeep
	}
	// Trust X-Forwarded-Proto if the client is a trusted proxy and its headers are kept.
	p.ForwardedScheme = p.HTTP1.XFFClientIndex > 0 && (p.HTTP1.XForwarded == config.ForwardedKeep || p.HTTP1.XForwarded == config.ForwardedAppend)
	for _, value := range []struct{ key, text string }{{"via", e.Via}, {"server_name", e.ServerName}} {
		if strings.ContainsAny(value.text, "\r\n\x00") {
			r.report.Errorf(e.Node.Get(value.key), "found a line break or NUL, which a header value cannot contain")
		}
	}
	p.Downstream = r.readProtocols(j, "downstream_protocol", j.Downstream)
	upstream := r.readProtocols(j, "upstream_protocol", j.Upstream)
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
	if node := e.Node.Get("sub_protocol"); node.Exists() && !strings.EqualFold(j.Downstream, legacySubProtocol) && !strings.EqualFold(j.Upstream, legacySubProtocol) {
		r.report.Warnf(node, "sub_protocol has no effect unless downstream_protocol or upstream_protocol is \"X\"")
	}
	return p
}

// readHTTP2Options returns the HTTP/2 limits of extend_config.
func (r *listenerReader) readHTTP2Options(e *extendJSON) config.HTTP2Options {
	o := config.DefaultHTTP2Options()
	o.MaxConcurrentStreams, o.StreamIdleTimeout = e.HTTP2MaxStreams, e.HTTP2StreamIdle
	o.StreamWindow, o.ConnectionWindow = e.HTTP2StreamWindow, e.HTTP2ConnectionWindow
	var outer config.TokenBucket
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
		if b.from != nil && outer.Burst > 0 && b.to.Burst > outer.Burst {
			r.report.Warnf(e.Node.Get(b.key), "the burst of %d is never reached: the limit of an enclosing scope allows %d", b.to.Burst, outer.Burst)
		}
		outer = *b.to
	}
	return o
}

// readRPCOptions returns the RPC limits of extend_config.
func readRPCOptions(e *extendJSON) config.RPCOptions {
	o := config.DefaultRPCOptions()
	if e.Node.Get("max_request_body_size").Exists() {
		o.MaxFrameSize = int(e.MaxRequestBodySize)
	}
	o.MaxInFlight, o.FrameTimeout, o.WriteTimeout = e.MaxInFlight, e.FrameTimeout, e.WriteTimeout
	o.MaxPendingBytes = e.MaxQueued
	o.SendGoAway = e.BoltGoAway
	return o
}

// readClientCert converts the keys for X-Forwarded-Client-Cert.
func (r *listenerReader) readClientCert(e *extendJSON) config.XFCC {
	c := config.XFCC{Mode: config.XFCCMode(e.ForwardClientCert)}
	if c.Mode == "SANITIZE" {
		c.Mode = config.XFCCSanitize
	}
	if d := e.ClientCertDetails; d != nil {
		c.Subject, c.Cert, c.Chain, c.DNS, c.URI = d.Subject, d.Cert, d.Chain, d.DNS, d.URI
		if c.Mode != config.XFCCAppend && c.Mode != config.XFCCSet {
			r.report.Warnf(e.Node.Get("set_current_client_cert_details"), "set_current_client_cert_details has no effect unless forward_client_cert_details is APPEND_FORWARD or SANITIZE_SET")
		}
	}
	return c
}

// readProtocols parses a comma-separated list of protocol names and resolves "X". Auto must be the
// only element.
func (r *listenerReader) readProtocols(j *proxyJSON, key, text string) []config.Protocol {
	node := j.Node.Get(key)
	if node.Kind() != document.String {
		return nil // absent, or reported
	}
	if strings.EqualFold(strings.TrimSpace(text), legacySubProtocol) {
		text = j.Extend.SubProtocol
		if text == "" {
			r.report.Errorf(node, "the protocol \"X\" requires extend_config.sub_protocol")
			return nil
		}
		node = j.Extend.Node.Get("sub_protocol")
	}
	supported := append([]config.Protocol{config.Auto}, r.capabilities.Protocols...)
	var out []config.Protocol
	for name := range strings.SplitSeq(text, ",") {
		p, ok := choose(r.report, node, "protocol", strings.TrimSpace(name), supported, knownProtocols())
		switch {
		case !ok:
		case slices.Contains(out, p):
			r.report.Errorf(node, "duplicate protocol %s", p)
		default:
			out = append(out, p)
		}
	}
	if len(out) > 1 && slices.Contains(out, config.Auto) {
		r.report.Errorf(node, "Auto stands for all protocols: no other protocol is allowed with it")
	}
	return out
}

// setRouteTable sets the route table of a proxy: from its own key, or else the table of the
// connection_manager in the same chain.
func (r *listenerReader) setRouteTable(j *proxyJSON, p *config.Proxy, manager *table) {
	p.RouteTable = j.Router
	if p.RouteTable == "" && manager != nil {
		p.RouteTable = manager.model.Name
	}
	if p.RouteTable == "" && j.Node.Exists() {
		r.report.Errorf(j.Node, "the key \"router_config_name\" is missing: a proxy requires a route table")
	}
}
