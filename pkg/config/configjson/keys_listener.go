package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type listenerJSON struct {
	Node           document.Node        `key:"."`
	Name           string               `key:"name" doc:"Name, unique; absent: the address." example:"\"ingress\""`
	Type           string               `key:"type" doc:"ingress serves the local application, egress its calls of others." enum:"ingress|egress" default:"egress" example:"\"ingress\""`
	Address        string               `key:"address" doc:"ip:port, [ipv6]:port, or the path of a unix socket." required:"true" example:"\"127.0.0.1:2046\""`
	Network        string               `key:"network" doc:"Kind of the address; absent: unix for a path, else tcp." enum:"tcp|udp|unix" example:"\"tcp\""`
	Bind           bool                 `key:"bind_port" doc:"Whether the address is listened on; false: connections to it come from a listener that says use_original_dst." default:"true" example:"false"`
	ReusePort      bool                 `key:"reuseport" doc:"Let other processes listen on the same port (SO_REUSEPORT)." example:"true"`
	OriginalDst    document.Node        `key:"use_original_dst" doc:"Connections come to the address although their callers made them to others: true or \"redirect\", by REDIRECT of iptables or nftables; \"tproxy\", by TPROXY. Each is handed to the listener that does not bind and has its original destination for its address; if there is none, it is served here." accept:"bool|string" example:"\"redirect\""`
	MaxConnections int                  `key:"max_connections" doc:"Open connections; more are closed at once. 0: no limit." unit:"connections" min:"0" default:"0" example:"10000"`
	AcceptRate     *acceptRateJSON      `key:"accept_rate" doc:"Connections that are accepted in a second; beyond that they wait in the kernel, as many as its backlog holds, and are not refused. Absent: no limit."`
	KeepAlive      *tcpKeepAliveJSON    `key:"tcp_keepalive" doc:"When a caller that is silent is asked by TCP whether it lives; {}: as the system does. Absent: never."`
	IdleTimeout    time.Duration        `key:"connection_idle_timeout" doc:"How long a connection may stay without a request. 0s: for ever." default:"90s" example:"\"60s\""`
	ReadBufferSize int                  `key:"default_read_buffer_size" doc:"First read buffer of a connection." unit:"bytes" min:"0" noeffect:"buffers are taken when there is something to read, and grow with it" example:"16384"`
	AccessLogs     []accessLogJSON      `key:"access_logs" doc:"Logs of requests."`
	ListenerFilter []listenerFilterJSON `key:"listener_filters" doc:"What sees a connection first, before TLS."`
	FiltersTimeout time.Duration        `key:"listener_filters_timeout" doc:"From when a connection was accepted until its listener filters, or the matches of filter_chains, have seen what they look for; then it is closed." min:"1ms" default:"15s" example:"\"5s\""`
	FilterChains   []filterChainJSON    `key:"filter_chains" doc:"What connections meet: one chain, or several of which each connection takes the one whose match is the most specific." required:"true"`
	DefaultChain   document.Node        `key:"default_filter_chain" doc:"A chain like those of filter_chains, without a match, for the connections that none of them is for; absent: these are closed." accept:"object" example:"{\"filters\": [{\"type\": \"tcp_proxy\", \"config\": {\"cluster\": \"one\"}}]}"`
	StreamFilters  []streamFilterJSON   `key:"stream_filters" doc:"What a request meets, in order."`
	Inspector      bool                 `key:"inspector" doc:"Accept TLS and plaintext on one port: what begins as a handshake does is TLS." example:"true"`
	LogPath        string               `key:"log_path" doc:"Older log of the listener." noeffect:"true" example:"\"/var/log/l.log\""`
	Mark           document.Node        `key:"mark" doc:"Mark of the listening socket and of those of its connections (SO_MARK), for rules of the kernel: 1 to 4294967295, or a string that may be \"0x\" and hexadecimal. It needs CAP_NET_ADMIN." accept:"number|string" example:"1"`
}

type accessLogJSON struct {
	Node   document.Node `key:"."`
	Path   string        `key:"log_path" doc:"A file, \"stdout\" or \"stderr\"." default:"stdout" example:"\"/var/log/access.log\""`
	Format string        `key:"log_format" doc:"One line of the log, with %variables%; empty: the default line, whose columns docs/observability.md lists." example:"\"%start_time% %response_code%\""`
	JSON   document.Node `key:"json_format" doc:"One JSON object a line instead: its members in order, with %variables%." accept:"object" example:"{\"status\": \"%response_code%\"}"`
}

type listenerFilterJSON struct {
	Type   string        `key:"type" doc:"Name of the filter: proxy_protocol; original_dst, which means the same as use_original_dst; tls_inspector or http_inspector, which look at what the matches of filter_chains ask for, and do so by themselves." required:"true" example:"\"proxy_protocol\""`
	Config document.Node `key:"config" doc:"Its settings." accept:"object" variant:"listener_filter"`
	Node   document.Node `key:"."`
}

type networkFilterJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the filter: rbac, which decides about connections, and istio_stats, which counts them, before proxy, tcp_proxy or, of the network udp, udp_proxy; connection_manager in older files." required:"true" example:"\"proxy\""`
	Config document.Node `key:"config" doc:"The filter's settings." accept:"object" variant:"network_filter"`
}

type streamFilterJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the filter." required:"true" example:"\"fault\""`
	Config document.Node `key:"config" doc:"The filter's settings: see its README." accept:"object" variant:"stream_filter"`
	Plugin document.Node `key:"go_plugin_config" doc:"A filter that is loaded at run time." accept:"object" unbuilt:"go_plugin_config" example:"{\"so_path\": \"f.so\"}"`
}

// proxyJSON is the network filter "proxy".
type proxyJSON struct {
	Node       document.Node `key:"."`
	Downstream string        `key:"downstream_protocol" choice:"protocol,list" doc:"What callers speak: a protocol; several, separated by commas, in the order in which they are looked for; \"Auto\": all that there are and that upstream_protocol allows. \"X\" in older files: extend_config.sub_protocol." required:"true" example:"\"Http1\""`
	Upstream   string        `key:"upstream_protocol" choice:"upstream_protocol" doc:"What upstreams are spoken to in, where neither route nor cluster says; absent or \"Auto\": as the caller speaks. HTTP/1.1 and HTTP/2 are translated into one another, RPC is not." example:"\"Http1\""`
	Router     string        `key:"router_config_name" doc:"The route table." example:"\"routes\""`
	Extend     extendJSON    `key:"extend_config" doc:"Limits and habits of the protocols."`
	Fallback   bool          `key:"fallback_for_unknown_protocol" doc:"Hand connections that speak none of the protocols to the tcp_proxy that follows, with all their bytes." example:"true"`
	Validate   bool          `key:"validate_clusters" doc:"Check that clusters exist; it is always done." noeffect:"clusters are always checked" example:"true"`
	Name       string        `key:"name" doc:"Name of the filter." noeffect:"true" example:"\"proxy\""`
}

// extendJSON is extend_config: the fields of config.HTTP1Options and config.RPCOptions, and
// settings of other protocols. A test compares its defaults with those of
// config.DefaultHTTP1Options and config.DefaultRPCOptions.
type extendJSON struct {
	Node                     document.Node        `key:"."`
	MaxRequestLineSize       int                  `key:"max_request_line_size" doc:"Longest request line; above it the answer is 414." unit:"bytes" min:"256" max:"1048576" default:"8192" example:"4096"`
	MaxHeaderSize            int                  `key:"max_header_size" doc:"Largest head, request line included; above it the answer is 431." unit:"bytes" min:"256" max:"16777216" default:"16384" example:"8192"`
	MaxHeaderCount           int                  `key:"max_header_count" doc:"Most fields of a head; above it the answer is 431." unit:"fields" min:"1" max:"10000" default:"100" example:"64"`
	MaxRequestBodySize       int64                `key:"max_request_body_size" doc:"Largest content of a request; above it the answer is 413. Of RPC: largest frame, above it the answer is a fault; absent: 8 MiB. 0: no limit." unit:"bytes" min:"0" default:"0" example:"1048576"`
	HeadTimeout              time.Duration        `key:"head_timeout" doc:"From the first byte of a head to its end; then 408." min:"1ms" default:"10s" example:"\"5s\""`
	BodyTimeout              time.Duration        `key:"body_timeout" doc:"Between two reads of a request's content; then 408." min:"1ms" default:"30s" example:"\"5s\""`
	WriteTimeout             time.Duration        `key:"write_timeout" doc:"Between two writes to a caller that make progress; then the connection is closed." min:"1ms" default:"30s" example:"\"5s\""`
	StreamIdleTimeout        time.Duration        `key:"stream_idle_timeout" doc:"Callers of HTTP/1.1: how long nothing may go of a request and its answer. While the request is not whole it gets 408, then 504; an answer that has begun ends with its connection. A tunnel, as of WebSocket, ends after this long without a byte in either direction. Callers of HTTP/2: http2_stream_idle_timeout. 0s: for ever, and tunnels end by connection_idle_timeout." default:"0s" example:"\"5m\""`
	MaxInFlight              int                  `key:"max_in_flight" doc:"RPC: requests of one connection that wait for their answer; with more it is not read. 0: no limit." unit:"requests" min:"0" default:"10000" example:"1000"`
	FrameTimeout             time.Duration        `key:"frame_timeout" doc:"RPC: between two reads of a frame that has begun; then the connection is closed." min:"1ms" default:"30s" example:"\"5s\""`
	DetectTimeout            time.Duration        `key:"detect_timeout" doc:"From a connection's first byte until it has shown its protocol, if there is a choice; then it is closed, or falls back." min:"1ms" default:"10s" example:"\"2s\""`
	MaxRequestsPerConnection int                  `key:"max_requests_per_connection" doc:"Requests after which a caller's connection is closed: with Connection: close on HTTP/1.1, with GOAWAY on HTTP/2. 0: no limit." unit:"requests" min:"0" default:"0" example:"1000"`
	Via                      string               `key:"via" doc:"Name that is added to the Via field both ways; empty: none." example:"\"weft\""`
	XForwarded               config.ForwardedMode `key:"x_forwarded" doc:"X-Forwarded-For, -Proto and -Host: keep passes them on, append adds the caller, set replaces them, strip removes them." enum:"keep|append|set|strip" default:"keep" example:"\"append\""`
	UseRemoteAddress         bool                 `key:"use_remote_address" doc:"The connection's other end is a client, or the last of xff_num_trusted_hops proxies. false: it is one more proxy than these." default:"true" example:"false"`
	TrustedHops              int                  `key:"xff_num_trusted_hops" doc:"How many proxies are trusted to have added to X-Forwarded-For. The address that the first of them added is the client for access logs, hashing and filters (remote_ip), if it is one; otherwise the connection's other end." min:"0" max:"100" default:"0" example:"1"`
	TrustTimeoutFields       bool                 `key:"trust_timeout_fields" doc:"Callers override timeout and retry_timeout of routes by the fields x-mosn-global-timeout and x-mosn-try-timeout, in milliseconds; of RPC by the attachments of these names. For the sidecar of an application that is trusted: on a listener of the type ingress it is an error. false: the fields are removed." default:"false" example:"true"`
	AllowHalfClose           bool                 `key:"allow_half_close" doc:"Answer callers that have ended their direction." example:"true"`
	AllowConnect             bool                 `key:"allow_connect" doc:"Let routes match CONNECT; otherwise it is answered with 405." example:"true"`
	ServerName               string               `key:"server_name" doc:"Server field of Weft's own replies; empty: none." example:"\"weft\""`

	clientCertJSON

	HTTP2MaxStreams       int           `key:"http2_max_concurrent_streams" doc:"HTTP/2: streams that a caller may have open at once on one connection; more are refused. As many may be reset within 100 ms before they are answered; then others are refused, too." unit:"streams" min:"1" max:"1000000" default:"1024" example:"100"`
	HTTP2StreamWindow     int           `key:"http2_stream_window" doc:"HTTP/2: content of one stream that a caller may send ahead of who takes it." unit:"bytes" min:"65535" max:"2147483647" default:"262144" example:"1048576"`
	HTTP2ConnectionWindow int           `key:"http2_connection_window" doc:"HTTP/2: content of all streams of one connection that a caller may send ahead." unit:"bytes" min:"65535" max:"2147483647" default:"16777216" example:"1048576"`
	HTTP2StreamIdle       time.Duration `key:"http2_stream_idle_timeout" doc:"HTTP/2: how long nothing may go on an open stream, either way. Then a request without an answer gets 504 (408 if it is not whole), and a stream whose answer has begun is reset. 0s: for ever." default:"5m" example:"\"1h\""`

	HTTP2ResetBudget         *budgetJSON `key:"http2_reset_budget" doc:"HTTP/2: how many requests of one connection its caller may reset within 50 ms of sending them; each that was answered in full pays for one. Then the connection is closed. Absent: 500 at once, 50 a second."`
	HTTP2SourceResetBudget   *budgetJSON `key:"http2_source_reset_budget" doc:"HTTP/2: the same of all connections of the listener from one IPv4 address, or one IPv6 /64. Absent: 2000 at once, 200 a second."`
	HTTP2ListenerResetBudget *budgetJSON `key:"http2_listener_reset_budget" doc:"HTTP/2: the same of all connections of the listener. Absent: 20000 at once, 2000 a second."`
	MaxQueued                int         `key:"max_queued_bytes" doc:"RPC: bytes that may wait for a caller that does not read. From 1 MiB on, its requests are not read; responses to requests that were read may reach this. Then the connection is closed." unit:"bytes" min:"1048576" max:"2147483647" default:"67108864" example:"16777216"`

	SubProtocol    string `key:"sub_protocol" doc:"Older files: the protocols that \"X\" means, separated by commas." example:"\"dubbo\""`
	HTTP2UseStream bool   `key:"http2_use_stream" doc:"Stream HTTP/2 content." noeffect:"content always streams" example:"true"`
	BoltGoAway     bool   `key:"enable_bolt_goaway" doc:"Tell Bolt callers that they should send no more before their connection ends. Many do not know that frame, and close the connection when it comes." default:"false" example:"true"`
}

// budgetJSON is a token bucket.
type budgetJSON struct {
	Node      document.Node `key:"."`
	Burst     int           `key:"burst" doc:"How many at once." unit:"requests" min:"1" max:"1000000" required:"true" example:"500"`
	PerSecond int           `key:"per_second" doc:"How many a second in the long run." unit:"requests" min:"1" max:"1000000" required:"true" example:"50"`
}

// tcpProxyJSON is the network filter "tcp_proxy".
type tcpProxyJSON struct {
	Node        document.Node  `key:"."`
	Cluster     string         `key:"cluster" doc:"Where connections go that no route takes; absent: they are closed." example:"\"db\""`
	Routes      []tcpRouteJSON `key:"routes" doc:"Clusters by address, the first that fits."`
	IdleTimeout time.Duration  `key:"idle_timeout" doc:"How long a connection may stay without a byte either way. 0s: for ever." default:"10m" example:"\"1h\""`
	MaxAttempts int            `key:"max_connect_attempts" doc:"Hosts that are tried." unit:"hosts" min:"1" max:"1000" default:"1" example:"3"`
	StatPrefix  string         `key:"stat_prefix" doc:"Name of the filter in metrics." noeffect:"metrics are by listener and cluster" example:"\"tcp\""`
}

type tcpRouteJSON struct {
	Node             document.Node   `key:"."`
	Cluster          string          `key:"cluster" doc:"Where the connections go." required:"true" example:"\"db\""`
	SourceAddrs      []document.Node `key:"source_addrs" doc:"Callers: \"10.0.0.0/8\", an address, or {\"address\", \"length\"}; absent: all." accept:"string|object" example:"[\"10.0.0.0/8\"]"`
	DestinationAddrs []document.Node `key:"destination_addrs" doc:"Addresses that were connected to; absent: all." accept:"string|object" example:"[\"10.1.0.0/16\"]"`
	SourcePort       string          `key:"source_port" doc:"Ports of callers: \"1024-65535,99\"; absent: all." example:"\"1024-65535\""`
	DestinationPort  string          `key:"destination_port" doc:"Ports that were connected to; absent: all." example:"\"3306,3307\""`
}
