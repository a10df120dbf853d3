package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

type clusterManagerJSON struct {
	Node      document.Node                `key:"."`
	Clusters  document.Stream[clusterJSON] `key:"clusters" doc:"Upstream clusters."`
	Directory string                       `key:"clusters_configs" doc:"Directory with one file for each cluster, instead of clusters." example:"\"clusters.d\""`
	TLS       *tlsJSON                     `key:"tls_context" doc:"TLS for the clusters that set cluster_manager_tls."`
	LoadStats document.Node                `key:"load_stats_config,loadStatsConfig" doc:"Envoy bootstrap: the cluster of static_resources that receives load reports by LRS." accept:"object" example:"{\"api_type\": \"GRPC\", \"grpc_services\": [{\"envoy_grpc\": {\"cluster_name\": \"xds\"}}]}"`
	LocalName document.Node                `key:"local_cluster_name,localClusterName" doc:"Envoy bootstrap: the cluster that this process belongs to, for zone-aware routing." accept:"string" noeffect:"zone-aware routing is not supported" example:"\"app\""`
	EjectLog  document.Node                `key:"outlier_detection,outlierDetection" doc:"Envoy bootstrap: event log of ejected hosts." accept:"object" noeffect:"Weft's log has the events" example:"{\"event_log_path\": \"/dev/stdout\"}"`
	Bind      document.Node                `key:"upstream_bind_config,upstreamBindConfig" doc:"Envoy bootstrap: source address of connections to the hosts of all clusters; set it on each cluster instead." accept:"object" unbuilt:"cluster_manager.upstream_bind_config" example:"{\"source_address\": {\"address\": \"127.0.0.1\"}}"`
	Deferred  bool                         `key:"enable_deferred_cluster_creation,enableDeferredClusterCreation" doc:"Envoy bootstrap: create clusters on first use." noeffect:"use xds_lazy" example:"true"`
}

type clusterJSON struct {
	Node              document.Node  `key:"."`
	Name              string         `key:"name" doc:"Name of the cluster, unique; routes refer to it." required:"true" example:"\"orders\""`
	Type              string         `key:"type" choice:"cluster_type" doc:"Discovery of hosts. SIMPLE and STATIC: hosts in this file. STRICT_DNS: hosts by DNS name; each resolved address is a host. LOGICAL_DNS: one host by DNS name; new connections go to the first address of the latest DNS response. ORIGINAL_DST: each redirected connection goes to its original destination." default:"SIMPLE" example:"\"STRICT_DNS\""`
	MaxRequestPerConn int            `key:"max_request_per_conn" doc:"Maximum number of requests on a connection to a host. The connection closes after the last of them, and a new one replaces it. It applies to HTTP/1.1 and to RPC with the pool mode ping_pong; for HTTP/2 only if it is set explicitly. For RPC connections that requests share, set connection_pool.max_requests. 0: no limit." unit:"requests" min:"0" default:"1024" example:"100"`
	BufferLimit       int            `key:"conn_buffer_limit_bytes" doc:"Maximum number of bytes buffered for a connection to a host." unit:"bytes" min:"0" noeffect:"bodies are streamed; at most one read is buffered" example:"32768"`
	Protocol          string         `key:"upstream_protocol" choice:"upstream_protocol" doc:"Protocol of the hosts if the route sets none. Absent or \"Auto\": as the proxy sets. Weft rejects requests that cannot be translated: RPC to any other protocol, gRPC to HTTP/1.1." example:"\"Http1\""`
	HTTP2             *struct{}      `key:"http2_protocol_options" doc:"Same as upstream_protocol \"Http2\", in Envoy's form: {}."`
	ConnectTimeout    time.Duration  `key:"connect_timeout" doc:"Timeout of connecting to a host." min:"1ms" default:"10s" example:"\"1s\""`
	IdleTimeout       time.Duration  `key:"idle_timeout" doc:"Maximum time that a connection to a host may be idle. 0s: no limit." default:"60s" example:"\"30s\""`
	Breakers          []breakersJSON `key:"circuit_breakers" within:"thresholds" doc:"Limits for the requests of each priority: a list with one element per priority, or Envoy's form {\"thresholds\": []} with such elements. A priority without an element has the default limits."`
	Hosts             []hostJSON     `key:"hosts" doc:"Hosts of the cluster."`

	Pool        poolJSON         `key:"connection_pool" doc:"How requests of HTTP/2 and RPC protocols share the connections to a host."`
	KeepAlive   keepAliveJSON    `key:"keepalive" doc:"Heartbeats on idle connections to hosts, in protocols that have heartbeats."`
	HealthCheck *healthCheckJSON `key:"health_check" doc:"Active health checks of the hosts; {}: none."`
	Outlier     *outlierJSON     `key:"outlier_detection" doc:"Ejects hosts that fail requests, after Envoy's outlier detection; {}: with the defaults."`
	TLS         *tlsJSON         `key:"tls_context" doc:"TLS on connections to hosts; {}: none."`
	ProxyHeader string           `key:"proxy_protocol" doc:"Version of the PROXY protocol header that Weft sends on connections to hosts, before TLS, with the client address. For tcp_proxy; for requests only if clients do not share connections (connection_pool with the mode bind)." enum:"v1|v2" example:"\"v2\""`
	originalDstJSON
	requestNameJSON

	balancingJSON
	dnsJSON
	socketJSON

	Spec       document.Node `key:"spec" doc:"Subscription to a registry." accept:"object" unbuilt:"spec" example:"{\"subscribe\": [{\"subscriber\": \"x\"}]}"`
	ManagerTLS bool          `key:"cluster_manager_tls" doc:"Use the tls_context of cluster_manager." example:"true"`
	SubType    string        `key:"sub_type" doc:"Subtype of the cluster." noeffect:"true" example:"\"x\""`
}

type breakersJSON struct {
	Node               document.Node `key:"."`
	Priority           string        `key:"priority" doc:"Priority of the routes whose requests the limits apply to. Each priority has its own limits and connections." enum:"DEFAULT|HIGH" default:"DEFAULT" example:"\"HIGH\""`
	MaxConnections     int           `key:"max_connections" doc:"Maximum number of open connections to the hosts; requests beyond it are pending. Sessions of udp_proxy count as connections. 0: no limit." unit:"connections" min:"0" default:"1024" example:"20000"`
	MaxPendingRequests int           `key:"max_pending_requests" doc:"Maximum number of requests that wait for a connection; further requests get 503. 0: no limit." unit:"requests" min:"0" default:"1024" example:"5000"`
	MaxRequests        int           `key:"max_requests" doc:"Maximum number of requests that have a connection, tcp_proxy connections and udp_proxy sessions; further requests get 503. 0: no limit." unit:"requests" min:"0" default:"1024" example:"100000"`
	MaxRetries         int           `key:"max_retries" doc:"Maximum number of retries in flight. 0: no limit, which is also the default with a retry_budget." unit:"retries" min:"0" default:"3" example:"10"`

	RetryBudget *retryBudgetJSON `key:"retry_budget" doc:"Limits retries in flight in proportion to requests in flight, in addition to max_retries; {}: with the defaults."`
}

type retryBudgetJSON struct {
	Percent        float64 `key:"budget_percent" doc:"Maximum retries in flight, as a percentage of the requests in flight." unit:"percent" min:"0" max:"100" default:"20" example:"25"`
	MinConcurrency int     `key:"min_retry_concurrency" doc:"Retries that may always be in flight, however few requests there are." unit:"retries" min:"1" default:"3" example:"5"`
}

type hostJSON struct {
	Node       document.Node     `key:"."`
	Address    string            `key:"address" doc:"ip:port, [ipv6]:port, the path of a unix socket, or name:port in STRICT_DNS and LOGICAL_DNS." required:"true" example:"\"10.0.0.1:8080\""`
	Hostname   string            `key:"hostname" doc:"Hostname of the host, for auto_host_rewrite. If the cluster uses TLS and tls_context has no server_name, the certificate of the host must match it." example:"\"a.shop\""`
	Weight     uint32            `key:"weight" doc:"Weight of the host: its share of the requests." unit:"parts" min:"1" max:"128" default:"1" example:"10"`
	Metadata   metadataMatchJSON `key:"metadata" doc:"Labels of the host."`
	Priority   uint32            `key:"priority" doc:"Priority of the host. Priority 0 is used first; higher numbers are used as lower ones fail." max:"128" default:"0" example:"1"`
	Locality   localityJSON      `key:"locality" doc:"Locality of the host, for locality_weights."`
	TLSDisable bool              `key:"tls_disable" doc:"Use plaintext to this host." example:"true"`
}

type poolJSON struct {
	Mode          string `key:"mode" doc:"multiplex: concurrent requests on each connection. ping_pong: one request at a time on each connection. bind: one upstream connection for each client connection; both close together." enum:"multiplex|ping_pong|bind" default:"multiplex" example:"\"bind\""`
	Connections   int    `key:"connections" doc:"Maximum number of connections to a host with multiplex; other modes ignore it. Weft opens another connection when all are busy." unit:"connections" min:"1" max:"1024" default:"1" example:"4"`
	Warm          string `key:"warm" doc:"Protocol for which Weft opens a connection to each host ahead of requests, with multiplex. Absent: connections are opened on demand." enum:"Http2|dubbo|bolt|boltv2" example:"\"Http2\""`
	MaxRequests   int    `key:"max_requests" doc:"Maximum number of RPC requests on a shared connection (multiplex and bind). The connection closes after the last of them, and a new one replaces it. 0: no limit." unit:"requests" min:"0" default:"0" example:"100000"`
	MaxConnecting int    `key:"max_connecting" doc:"Maximum number of concurrent connects to a host, for requests of one priority in one protocol; tcp_proxy has a separate limit of the same size. Further requests wait in order and count toward max_pending_requests." unit:"connections" min:"1" default:"64" example:"256"`
	MaxQueued     int    `key:"max_queued_bytes" doc:"RPC: maximum number of bytes queued on a connection to a host that does not read; further requests fail with the response flag UO." unit:"bytes" min:"1048576" max:"2147483647" default:"67108864" example:"16777216"`
	MaxFrameSize  int    `key:"max_frame_size" doc:"Maximum size of a response frame. 0: no limit." unit:"bytes" min:"0" default:"8388608" example:"1048576"`
}

type keepAliveJSON struct {
	Interval time.Duration `key:"interval" doc:"Idle time of a connection before Weft sends a heartbeat. 0s: no heartbeats." default:"15s" example:"\"5s\""`
	Timeout  time.Duration `key:"timeout" doc:"Time from the first unanswered heartbeat to the close of the connection, in whole intervals, at least one. A value below interval means interval." default:"90s" example:"\"10s\""`
}
