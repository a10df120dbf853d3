package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

type clusterManagerJSON struct {
	Node      document.Node                `key:"."`
	Clusters  document.Stream[clusterJSON] `key:"clusters" doc:"The clusters."`
	Directory string                       `key:"clusters_configs" doc:"Directory with a file for each cluster, in the place of clusters." example:"\"clusters.d\""`
	TLS       *tlsJSON                     `key:"tls_context" doc:"TLS towards the clusters that say cluster_manager_tls."`
	LoadStats document.Node                `key:"load_stats_config,loadStatsConfig" doc:"Envoy bootstrap: who is told how much each cluster was asked, by LRS: a cluster of static_resources." accept:"object" example:"{\"api_type\": \"GRPC\", \"grpc_services\": [{\"envoy_grpc\": {\"cluster_name\": \"xds\"}}]}"`
	LocalName document.Node                `key:"local_cluster_name,localClusterName" doc:"Envoy bootstrap: the cluster that this process is of, for routing by zone." accept:"string" noeffect:"there is no routing by zone" example:"\"app\""`
	EjectLog  document.Node                `key:"outlier_detection,outlierDetection" doc:"Envoy bootstrap: log of ejected hosts." accept:"object" noeffect:"the operator's log has them" example:"{\"event_log_path\": \"/dev/stdout\"}"`
	Bind      document.Node                `key:"upstream_bind_config,upstreamBindConfig" doc:"Envoy bootstrap: where connections to the hosts of all clusters come from; each cluster has its own." accept:"object" unbuilt:"cluster_manager.upstream_bind_config" example:"{\"source_address\": {\"address\": \"127.0.0.1\"}}"`
	Deferred  bool                         `key:"enable_deferred_cluster_creation,enableDeferredClusterCreation" doc:"Envoy bootstrap: clusters are made when they are used." noeffect:"xds_lazy does more" example:"true"`
}

type clusterJSON struct {
	Node              document.Node  `key:"."`
	Name              string         `key:"name" doc:"Name, unique; routes refer to it." required:"true" example:"\"orders\""`
	Type              string         `key:"type" choice:"cluster_type" doc:"Where the hosts come from: SIMPLE and STATIC from this file, STRICT_DNS and LOGICAL_DNS from names: each address is a host, or the name is one host whose connections go to the first address of the newest answer; ORIGINAL_DST from callers whose connections were redirected: each goes to where it was going." default:"SIMPLE" example:"\"STRICT_DNS\""`
	MaxRequestPerConn int            `key:"max_request_per_conn" doc:"Requests after which a connection to a host takes no more: it ends with the last of them, and another takes its place. Connections of HTTP/2 stay if nothing is said: the default is for those that carry one at a time, of HTTP/1.1 and of RPC with the mode ping_pong. Of RPC connections that are shared connection_pool says it. 0: no limit." unit:"requests" min:"0" default:"1024" example:"100"`
	BufferLimit       int            `key:"conn_buffer_limit_bytes" doc:"Most bytes that a connection to a host buffers." unit:"bytes" min:"0" noeffect:"content is streamed, so no more is held than one read" example:"32768"`
	Protocol          string         `key:"upstream_protocol" choice:"upstream_protocol" doc:"What the hosts speak, where the route does not say; absent or \"Auto\": as the proxy says. A request that cannot be said in it is refused: RPC in anything else, gRPC in HTTP/1.1." example:"\"Http1\""`
	HTTP2             *struct{}      `key:"http2_protocol_options" doc:"The same as upstream_protocol \"Http2\", as files for Envoy say it: {}."`
	ConnectTimeout    time.Duration  `key:"connect_timeout" doc:"For a connection to a host." min:"1ms" default:"10s" example:"\"1s\""`
	IdleTimeout       time.Duration  `key:"idle_timeout" doc:"How long a connection to a host may stay unused. 0s: for ever." default:"60s" example:"\"30s\""`
	Breakers          []breakersJSON `key:"circuit_breakers" within:"thresholds" doc:"Limits of requests of each priority: an element for one, or as files for Envoy say it, {\"thresholds\": []} with such elements. A priority without an element has the defaults."`
	Hosts             []hostJSON     `key:"hosts" doc:"The hosts."`

	Pool        poolJSON         `key:"connection_pool" doc:"How requests of HTTP/2 and RPC protocols share the connections to a host."`
	KeepAlive   keepAliveJSON    `key:"keepalive" doc:"Heartbeats to hosts that are silent, in protocols that have them."`
	HealthCheck *healthCheckJSON `key:"health_check" doc:"Active checks of the hosts; {}: none."`
	Outlier     *outlierJSON     `key:"outlier_detection" doc:"Hosts that answer badly are ejected for a while, as Envoy does it; {}: by the defaults."`
	TLS         *tlsJSON         `key:"tls_context" doc:"TLS towards the hosts; {}: none."`
	ProxyHeader string           `key:"proxy_protocol" doc:"Begin connections to the hosts with a header of the PROXY protocol, before TLS, that says for whom they are. For tcp_proxy, and for requests if no two callers share a connection: connection_pool with the mode bind." enum:"v1|v2" example:"\"v2\""`
	originalDstJSON
	requestNameJSON

	balancingJSON
	dnsJSON
	socketJSON

	Spec       document.Node `key:"spec" doc:"Subscription to a registry." accept:"object" unbuilt:"spec" example:"{\"subscribe\": [{\"subscriber\": \"x\"}]}"`
	ManagerTLS bool          `key:"cluster_manager_tls" doc:"Use the tls_context of cluster_manager." example:"true"`
	SubType    string        `key:"sub_type" doc:"Part of the type." noeffect:"true" example:"\"x\""`
}

type breakersJSON struct {
	Node               document.Node `key:"."`
	Priority           string        `key:"priority" doc:"Of the routes whose requests it is for. Those of the other have limits and connections of their own." enum:"DEFAULT|HIGH" default:"DEFAULT" example:"\"HIGH\""`
	MaxConnections     int           `key:"max_connections" doc:"Open connections to the hosts; requests that find none wait. 0: no limit. Sessions of udp_proxy count, too." unit:"connections" min:"0" default:"1024" example:"20000"`
	MaxPendingRequests int           `key:"max_pending_requests" doc:"Requests that wait for a connection; one more is answered with 503. 0: no limit." unit:"requests" min:"0" default:"1024" example:"5000"`
	MaxRequests        int           `key:"max_requests" doc:"Requests that have a connection, connections of tcp_proxy and sessions of udp_proxy; one more request is answered with 503. 0: no limit." unit:"requests" min:"0" default:"1024" example:"100000"`
	MaxRetries         int           `key:"max_retries" doc:"Retries in flight. 0: no limit, as with a retry_budget where max_retries is absent." unit:"retries" min:"0" default:"3" example:"10"`

	RetryBudget *retryBudgetJSON `key:"retry_budget" doc:"Bounds retries in flight by the requests in flight, beside max_retries; {}: by the defaults."`
}

type retryBudgetJSON struct {
	Percent        float64 `key:"budget_percent" doc:"Retries in flight, of the requests in flight." unit:"percent" min:"0" max:"100" default:"20" example:"25"`
	MinConcurrency int     `key:"min_retry_concurrency" doc:"Retries that may be in flight however few requests there are." unit:"retries" min:"1" default:"3" example:"5"`
}

type hostJSON struct {
	Node       document.Node     `key:"."`
	Address    string            `key:"address" doc:"ip:port, [ipv6]:port, the path of a unix socket, or name:port in STRICT_DNS and LOGICAL_DNS." required:"true" example:"\"10.0.0.1:8080\""`
	Hostname   string            `key:"hostname" doc:"Name of the host, for auto_host_rewrite, and that it must prove to have if its cluster uses TLS and tls_context has no server_name." example:"\"a.shop\""`
	Weight     uint32            `key:"weight" doc:"Share of the requests." unit:"parts" min:"1" max:"128" default:"1" example:"10"`
	Metadata   metadataMatchJSON `key:"metadata" doc:"Labels of the host."`
	Priority   uint32            `key:"priority" doc:"0 is used first; others as those before them fail." max:"128" default:"0" example:"1"`
	Locality   localityJSON      `key:"locality" doc:"Where the host is, for locality_weights."`
	TLSDisable bool              `key:"tls_disable" doc:"No TLS towards this host." example:"true"`
}

type poolJSON struct {
	Mode          string `key:"mode" doc:"multiplex: many requests at once on each connection; ping_pong: one at a time; bind: a connection for each connection of a client, which ends with it." enum:"multiplex|ping_pong|bind" default:"multiplex" example:"\"bind\""`
	Connections   int    `key:"connections" doc:"Most connections to a host, with multiplex; without effect in the other modes. One more is opened while all are busy." unit:"connections" min:"1" max:"1024" default:"1" example:"4"`
	Warm          string `key:"warm" doc:"Protocol in which a connection to each host is kept open ahead of requests, with multiplex; absent: connections are opened by requests." enum:"Http2|dubbo|bolt|boltv2" example:"\"Http2\""`
	MaxRequests   int    `key:"max_requests" doc:"Requests of RPC after which a connection that is shared, with multiplex and bind, takes no more: it ends with the last of them, and another takes its place. 0: no limit." unit:"requests" min:"0" default:"0" example:"100000"`
	MaxConnecting int    `key:"max_connecting" doc:"Connections that are being opened to a host at once, for requests of one priority in one protocol; the same for tcp_proxy. Requests beyond wait, in the order in which they came, and count for max_pending_requests." unit:"connections" min:"1" default:"64" example:"256"`
	MaxQueued     int    `key:"max_queued_bytes" doc:"RPC: bytes that may wait on a connection to a host that does not read; requests beyond fail with the flag UO." unit:"bytes" min:"1048576" max:"2147483647" default:"67108864" example:"16777216"`
	MaxFrameSize  int    `key:"max_frame_size" doc:"Largest answer; 0: no limit." unit:"bytes" min:"0" default:"8388608" example:"1048576"`
}

type keepAliveJSON struct {
	Interval time.Duration `key:"interval" doc:"How long a connection may be silent before a heartbeat is sent. 0s: none is sent." default:"15s" example:"\"5s\""`
	Timeout  time.Duration `key:"timeout" doc:"How long after the first heartbeat that nothing followed the connection is given up, in whole intervals, one at least: less than interval means interval." default:"90s" example:"\"10s\""`
}
