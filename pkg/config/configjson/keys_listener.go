package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type listenerJSON struct {
	Node           document.Node        `key:"."`
	Name           string               `key:"name" doc:"Name of the listener, unique. Absent: its address." example:"\"ingress\""`
	Type           string               `key:"type" doc:"ingress: requests to the local application. egress: requests of the local application to other services." enum:"ingress|egress" default:"egress" example:"\"ingress\""`
	Address        string               `key:"address" doc:"ip:port, [ipv6]:port, or the path of a unix socket." required:"true" example:"\"127.0.0.1:2046\""`
	Network        string               `key:"network" doc:"Network of the address. Absent: unix for a path, else tcp." enum:"tcp|udp|unix" example:"\"tcp\""`
	Bind           bool                 `key:"bind_port" doc:"Whether Weft listens on the address. false: connections to it come from a listener with use_original_dst." default:"true" example:"false"`
	ReusePort      bool                 `key:"reuseport" doc:"Allow other processes to listen on the same port (SO_REUSEPORT)." example:"true"`
	OriginalDst    document.Node        `key:"use_original_dst" doc:"The listener receives redirected connections: true or \"redirect\" for REDIRECT of iptables or nftables; \"tproxy\" for TPROXY. A connection is handed to the listener with bind_port false whose address is the original destination; if there is none, this listener serves it." accept:"bool|string" example:"\"redirect\""`
	MaxConnections int                  `key:"max_connections" doc:"Maximum number of open connections; further connections are closed immediately. 0: no limit." unit:"connections" min:"0" default:"0" example:"10000"`
	AcceptRate     *acceptRateJSON      `key:"accept_rate" doc:"Limit on the rate of accepted connections. Connections beyond it are not refused; they wait in the kernel backlog. Absent: no limit."`
	KeepAlive      *tcpKeepAliveJSON    `key:"tcp_keepalive" doc:"TCP keepalive of idle client connections; {}: with the system's values. Absent: none."`
	IdleTimeout    time.Duration        `key:"connection_idle_timeout" doc:"Maximum time that a connection may stay without a request. 0s: no limit." default:"90s" example:"\"60s\""`
	ReadBufferSize int                  `key:"default_read_buffer_size" doc:"Initial read buffer size of a connection." unit:"bytes" min:"0" noeffect:"buffers are allocated on demand and grow as needed" example:"16384"`
	AccessLogs     []accessLogJSON      `key:"access_logs" doc:"Access logs of requests."`
	ListenerFilter []listenerFilterJSON `key:"listener_filters" doc:"Filters that process a connection first, before TLS."`
	FiltersTimeout time.Duration        `key:"listener_filters_timeout" doc:"Maximum time from accepting a connection until the listener filters and the matches of filter_chains have read what they need; then the connection is closed." min:"1ms" default:"15s" example:"\"5s\""`
	FilterChains   []filterChainJSON    `key:"filter_chains" doc:"Filter chains: one for all connections, or several, of which each connection uses the one with the most specific match." required:"true"`
	DefaultChain   document.Node        `key:"default_filter_chain" doc:"Filter chain without a match, for connections that match none of filter_chains. Absent: such connections are closed." accept:"object" example:"{\"filters\": [{\"type\": \"tcp_proxy\", \"config\": {\"cluster\": \"one\"}}]}"`
	StreamFilters  []streamFilterJSON   `key:"stream_filters" doc:"Filters that process requests, in order."`
	Inspector      bool                 `key:"inspector" doc:"Accept TLS and plaintext on one port: connections that begin with a TLS handshake use TLS." example:"true"`
	LogPath        string               `key:"log_path" doc:"Older form of the listener's log." noeffect:"true" example:"\"/var/log/l.log\""`
	Mark           document.Node        `key:"mark" doc:"SO_MARK of the listening socket and of its connections, for firewall and routing rules: 1 to 4294967295, or a string, which may be hexadecimal with \"0x\". Requires CAP_NET_ADMIN." accept:"number|string" example:"1"`
}

type accessLogJSON struct {
	Node   document.Node `key:"."`
	Path   string        `key:"log_path" doc:"A file, \"stdout\" or \"stderr\"." default:"stdout" example:"\"/var/log/access.log\""`
	Format string        `key:"log_format" doc:"Format of a log line, with %variables%. Empty: the default format; see docs/observability.md." example:"\"%start_time% %response_code%\""`
	JSON   document.Node `key:"json_format" doc:"One JSON object per line, instead of log_format: its members in order, with %variables%." accept:"object" example:"{\"status\": \"%response_code%\"}"`
}

type listenerFilterJSON struct {
	Type   string        `key:"type" doc:"Name of the filter: proxy_protocol; original_dst, which is the same as use_original_dst; tls_inspector or http_inspector, which Weft also runs without this entry when the matches of filter_chains need them." required:"true" example:"\"proxy_protocol\""`
	Config document.Node `key:"config" doc:"Settings of the filter." accept:"object" variant:"listener_filter"`
	Node   document.Node `key:"."`
}

type networkFilterJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the filter: proxy or tcp_proxy; udp_proxy for the network udp; before these, rbac, which allows or denies connections, and istio_stats, which counts them; connection_manager in older files." required:"true" example:"\"proxy\""`
	Config document.Node `key:"config" doc:"Settings of the filter." accept:"object" variant:"network_filter"`
}

type streamFilterJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the filter." required:"true" example:"\"fault\""`
	Config document.Node `key:"config" doc:"Settings of the filter; see its README." accept:"object" variant:"stream_filter"`
	Plugin document.Node `key:"go_plugin_config" doc:"Filter loaded at run time." accept:"object" unbuilt:"go_plugin_config" example:"{\"so_path\": \"f.so\"}"`
}

// proxyJSON is the network filter "proxy".
type proxyJSON struct {
	Node       document.Node `key:"."`
	Downstream string        `key:"downstream_protocol" choice:"protocol,list" doc:"Protocol of the clients; several separated by commas, in the order of detection; or \"Auto\" for all protocols that upstream_protocol allows. \"X\" in older files: see extend_config.sub_protocol." required:"true" example:"\"Http1\""`
	Upstream   string        `key:"upstream_protocol" choice:"upstream_protocol" doc:"Protocol to upstreams, if neither route nor cluster sets one. Absent or \"Auto\": the protocol of the client. Weft translates between HTTP/1.1 and HTTP/2, but not RPC protocols." example:"\"Http1\""`
	Router     string        `key:"router_config_name" doc:"Name of the route table." example:"\"routes\""`
	Extend     extendJSON    `key:"extend_config" doc:"Limits and options of the protocols."`
	Fallback   bool          `key:"fallback_for_unknown_protocol" doc:"Pass connections of unknown protocols, with all their bytes, to the tcp_proxy that follows." example:"true"`
	Validate   bool          `key:"validate_clusters" doc:"Check that clusters exist." noeffect:"clusters are always checked" example:"true"`
	Name       string        `key:"name" doc:"Name of the filter." noeffect:"true" example:"\"proxy\""`
}

// extendJSON is extend_config: the fields of config.HTTP1Options and config.RPCOptions, and
// settings of other protocols. A test compares its defaults with those of
// config.DefaultHTTP1Options and config.DefaultRPCOptions.
type extendJSON struct {
	Node                     document.Node        `key:"."`
	MaxRequestLineSize       int                  `key:"max_request_line_size" doc:"Maximum length of the request line; longer ones get 414." unit:"bytes" min:"256" max:"1048576" default:"8192" example:"4096"`
	MaxHeaderSize            int                  `key:"max_header_size" doc:"Maximum size of a request's headers, including the request line; larger ones get 431." unit:"bytes" min:"256" max:"16777216" default:"16384" example:"8192"`
	MaxHeaderCount           int                  `key:"max_header_count" doc:"Maximum number of headers; more get 431." unit:"fields" min:"1" max:"10000" default:"100" example:"64"`
	MaxRequestBodySize       int64                `key:"max_request_body_size" doc:"Maximum size of a request body; larger ones get 413. 0: no limit. For RPC: maximum frame size, 8 MiB if absent; larger frames get an error response." unit:"bytes" min:"0" default:"0" example:"1048576"`
	HeadTimeout              time.Duration        `key:"head_timeout" doc:"Maximum time from the first byte to the end of the headers; then 408." min:"1ms" default:"10s" example:"\"5s\""`
	BodyTimeout              time.Duration        `key:"body_timeout" doc:"Maximum time between two reads of a request body; then 408." min:"1ms" default:"30s" example:"\"5s\""`
	WriteTimeout             time.Duration        `key:"write_timeout" doc:"Maximum time between two writes to a client that make progress; then the connection is closed." min:"1ms" default:"30s" example:"\"5s\""`
	StreamIdleTimeout        time.Duration        `key:"stream_idle_timeout" doc:"HTTP/1.1: maximum time without a byte of a request or its response. An incomplete request then gets 408, a complete one 504; if the response has begun, the connection is closed. A tunnel, such as WebSocket, is closed after this time without a byte in either direction. For HTTP/2, set http2_stream_idle_timeout. 0s: no limit, and connection_idle_timeout applies to tunnels." default:"0s" example:"\"5m\""`
	MaxInFlight              int                  `key:"max_in_flight" doc:"RPC: maximum number of requests in flight on one connection; at the limit, Weft stops reading from it. 0: no limit." unit:"requests" min:"0" default:"10000" example:"1000"`
	FrameTimeout             time.Duration        `key:"frame_timeout" doc:"RPC: maximum time between two reads of an incomplete frame; then the connection is closed." min:"1ms" default:"30s" example:"\"5s\""`
	DetectTimeout            time.Duration        `key:"detect_timeout" doc:"Maximum time from the first byte of a connection until its protocol is detected, if there are several; then the connection is closed or falls back." min:"1ms" default:"10s" example:"\"2s\""`
	MaxRequestsPerConnection int                  `key:"max_requests_per_connection" doc:"Maximum number of requests on a client connection. It is then closed: with Connection: close in HTTP/1.1, with GOAWAY in HTTP/2. 0: no limit." unit:"requests" min:"0" default:"0" example:"1000"`
	Via                      string               `key:"via" doc:"Pseudonym that Weft adds to the Via header of requests and responses. Empty: none." example:"\"weft\""`
	XForwarded               config.ForwardedMode `key:"x_forwarded" doc:"Handling of X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host: keep passes them on, append adds the client, set replaces them, strip removes them." enum:"keep|append|set|strip" default:"keep" example:"\"append\""`
	UseRemoteAddress         bool                 `key:"use_remote_address" doc:"true: the remote address of the connection is that of a client, or of the last of xff_num_trusted_hops proxies. false: it is that of one more trusted proxy." default:"true" example:"false"`
	TrustedHops              int                  `key:"xff_num_trusted_hops" doc:"Number of trusted proxies that append to X-Forwarded-For. The address that the first of them appended is the client address for access logs, hashing and filters (remote_ip). If it is not a valid address, the remote address of the connection is used." min:"0" max:"100" default:"0" example:"1"`
	TrustTimeoutFields       bool                 `key:"trust_timeout_fields" doc:"Let clients override timeout and retry_timeout of routes with the headers x-mosn-global-timeout and x-mosn-try-timeout, in milliseconds (RPC: attachments with these names). Use it only in the sidecar of a trusted application; on a listener of type ingress it is an error. false: Weft removes the headers." default:"false" example:"true"`
	AllowHalfClose           bool                 `key:"allow_half_close" doc:"Send the response to clients that have half-closed the connection." example:"true"`
	AllowConnect             bool                 `key:"allow_connect" doc:"Allow routes to match CONNECT. false: CONNECT gets 405." example:"true"`
	ServerName               string               `key:"server_name" doc:"Server header of Weft's local replies. Empty: none." example:"\"weft\""`

	clientCertJSON

	HTTP2MaxStreams       int           `key:"http2_max_concurrent_streams" doc:"HTTP/2: maximum number of concurrent streams on one connection; further streams are refused. Also the maximum number of streams that a client may reset within 100 ms before they get a response; then further streams are refused." unit:"streams" min:"1" max:"1000000" default:"1024" example:"100"`
	HTTP2StreamWindow     int           `key:"http2_stream_window" doc:"HTTP/2: flow-control window of a stream: maximum body bytes that a client may send before they are read." unit:"bytes" min:"65535" max:"2147483647" default:"262144" example:"1048576"`
	HTTP2ConnectionWindow int           `key:"http2_connection_window" doc:"HTTP/2: flow-control window of a connection: maximum body bytes of all streams that a client may send before they are read." unit:"bytes" min:"65535" max:"2147483647" default:"16777216" example:"1048576"`
	HTTP2StreamIdle       time.Duration `key:"http2_stream_idle_timeout" doc:"HTTP/2: maximum time without a byte in either direction on an open stream. A complete request without a response then gets 504, an incomplete one 408; if the response has begun, the stream is reset. 0s: no limit." default:"5m" example:"\"1h\""`

	HTTP2ResetBudget         *budgetJSON `key:"http2_reset_budget" doc:"HTTP/2: token bucket for requests of one connection that the client resets within 50 ms of sending them; each completed response refunds one token. When it is empty, the connection is closed. Absent: burst 500, 50 per second."`
	HTTP2SourceResetBudget   *budgetJSON `key:"http2_source_reset_budget" doc:"HTTP/2: same as http2_reset_budget, for all connections of the listener from one IPv4 address or one IPv6 /64. Absent: burst 2000, 200 per second."`
	HTTP2ListenerResetBudget *budgetJSON `key:"http2_listener_reset_budget" doc:"HTTP/2: same as http2_reset_budget, for all connections of the listener. Absent: burst 20000, 2000 per second."`
	MaxQueued                int         `key:"max_queued_bytes" doc:"RPC: maximum number of bytes queued for a client that does not read. From 1 MiB on, Weft stops reading its requests; responses to requests in flight may still be queued up to this limit. Then the connection is closed." unit:"bytes" min:"1048576" max:"2147483647" default:"67108864" example:"16777216"`

	SubProtocol    string `key:"sub_protocol" doc:"Older files: protocols that \"X\" stands for, separated by commas." example:"\"dubbo\""`
	HTTP2UseStream bool   `key:"http2_use_stream" doc:"Stream HTTP/2 bodies." noeffect:"bodies are always streamed" example:"true"`
	BoltGoAway     bool   `key:"enable_bolt_goaway" doc:"Send Bolt clients a GOAWAY frame before closing their connection. Many clients do not know the frame and close the connection immediately when they receive it." default:"false" example:"true"`
}

// budgetJSON is a token bucket.
type budgetJSON struct {
	Node      document.Node `key:"."`
	Burst     int           `key:"burst" doc:"Size of the token bucket." unit:"requests" min:"1" max:"1000000" required:"true" example:"500"`
	PerSecond int           `key:"per_second" doc:"Tokens added per second." unit:"requests" min:"1" max:"1000000" required:"true" example:"50"`
}

// tcpProxyJSON is the network filter "tcp_proxy".
type tcpProxyJSON struct {
	Node        document.Node  `key:"."`
	Cluster     string         `key:"cluster" doc:"Cluster of connections that match no route. Absent: they are closed." example:"\"db\""`
	Routes      []tcpRouteJSON `key:"routes" doc:"Clusters by address; the first route that matches is used."`
	IdleTimeout time.Duration  `key:"idle_timeout" doc:"Maximum time without a byte in either direction. 0s: no limit." default:"10m" example:"\"1h\""`
	MaxAttempts int            `key:"max_connect_attempts" doc:"Maximum number of hosts to try." unit:"hosts" min:"1" max:"1000" default:"1" example:"3"`
	StatPrefix  string         `key:"stat_prefix" doc:"Prefix of the filter's metrics." noeffect:"metrics are labeled by listener and cluster" example:"\"tcp\""`
}

type tcpRouteJSON struct {
	Node             document.Node   `key:"."`
	Cluster          string          `key:"cluster" doc:"Target cluster." required:"true" example:"\"db\""`
	SourceAddrs      []document.Node `key:"source_addrs" doc:"Client addresses: \"10.0.0.0/8\", a single address, or {\"address\", \"length\"}. Absent: all." accept:"string|object" example:"[\"10.0.0.0/8\"]"`
	DestinationAddrs []document.Node `key:"destination_addrs" doc:"Original destination addresses. Absent: all." accept:"string|object" example:"[\"10.1.0.0/16\"]"`
	SourcePort       string          `key:"source_port" doc:"Client ports: \"1024-65535,99\". Absent: all." example:"\"1024-65535\""`
	DestinationPort  string          `key:"destination_port" doc:"Original destination ports. Absent: all." example:"\"3306,3307\""`
}
