package configjson

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type clusterManagerJSON struct {
	Node      document.Node                `key:"."`
	Clusters  document.Stream[clusterJSON] `key:"clusters" doc:"Upstream clusters."`
	Directory string                       `key:"clusters_configs" doc:"Directory with one file for each cluster, instead of clusters." example:"\"clusters.d\""`
	TLS       *tlsJSON                     `key:"tls_context" doc:"TLS for the clusters that set cluster_manager_tls."`
	LoadStats document.Node                `key:"load_stats_config,loadStatsConfig" doc:"Envoy bootstrap: the cluster of static_resources that receives load reports by LRS." accept:"object" example:"{\"api_type\": \"GRPC\", \"grpc_services\": [{\"envoy_grpc\": {\"cluster_name\": \"xds\"}}]}"`
	LocalName document.Node                `key:"local_cluster_name,localClusterName" doc:"Envoy bootstrap: the cluster that this process belongs to, for zone-aware routing." accept:"string" ignored:"zone-aware routing is not supported" example:"\"app\""`
	EjectLog  document.Node                `key:"outlier_detection,outlierDetection" doc:"Envoy bootstrap: event log of ejected hosts." accept:"object" ignored:"Weft's log has the events" example:"{\"event_log_path\": \"/dev/stdout\"}"`
	Bind      document.Node                `key:"upstream_bind_config,upstreamBindConfig" doc:"Envoy bootstrap: source address of connections to the hosts of all clusters; set it on each cluster instead." accept:"object" unsupported:"cluster_manager.upstream_bind_config" example:"{\"source_address\": {\"address\": \"127.0.0.1\"}}"`
	Deferred  bool                         `key:"enable_deferred_cluster_creation,enableDeferredClusterCreation" doc:"Envoy bootstrap: create clusters on first use." ignored:"use xds_lazy" example:"true"`
}

type clusterJSON struct {
	Node              document.Node  `key:"."`
	Name              string         `key:"name" doc:"Name of the cluster, unique; routes refer to it." required:"true" example:"\"orders\""`
	Type              string         `key:"type" choice:"cluster_type" doc:"Discovery of hosts. SIMPLE and STATIC: hosts in this file. STRICT_DNS: hosts by DNS name; each resolved address is a host. LOGICAL_DNS: one host by DNS name; new connections go to the first address of the latest DNS response. ORIGINAL_DST: each redirected connection goes to its original destination." default:"SIMPLE" example:"\"STRICT_DNS\""`
	MaxRequestPerConn int            `key:"max_request_per_conn" doc:"Maximum number of requests on a connection to a host. The connection closes after the last of them, and a new one replaces it. It applies to HTTP/1.1 and to RPC with the pool mode ping_pong; for HTTP/2 only if it is set explicitly. For RPC connections that requests share, set connection_pool.max_requests. 0: no limit." unit:"requests" min:"0" default:"1024" example:"100"`
	BufferLimit       int            `key:"conn_buffer_limit_bytes" doc:"Maximum number of bytes buffered for a connection to a host." unit:"bytes" min:"0" ignored:"bodies are streamed; at most one read is buffered" example:"32768"`
	Protocol          string         `key:"upstream_protocol" choice:"upstream_protocol" doc:"Protocol of the hosts if the route sets none. Absent or \"Auto\": the upstream_protocol of the proxy. Weft rejects requests that cannot be translated: RPC to any other protocol, gRPC to HTTP/1.1." example:"\"Http1\""`
	HTTP2             *struct{}      `key:"http2_protocol_options" doc:"Same as upstream_protocol \"Http2\", in Envoy's form: {}."`
	ConnectTimeout    time.Duration  `key:"connect_timeout" doc:"Timeout of connecting to a host." min:"1ms" default:"10s" example:"\"1s\""`
	IdleTimeout       time.Duration  `key:"idle_timeout" doc:"Maximum time that a connection to a host may be idle. 0s: no limit." default:"60s" example:"\"30s\""`
	Breakers          []breakersJSON `key:"circuit_breakers" wrapperkey:"thresholds" doc:"Limits for the requests of each priority: a list with one element per priority, or Envoy's form {\"thresholds\": []} with such elements. A priority without an element has the default limits."`
	Hosts             []hostJSON     `key:"hosts" doc:"Hosts of the cluster."`

	Pool        poolJSON         `key:"connection_pool" doc:"How requests of HTTP/2 and RPC protocols share the connections to a host."`
	KeepAlive   keepAliveJSON    `key:"keepalive" doc:"Heartbeats on idle connections to hosts, in protocols that have heartbeats."`
	HealthCheck *healthCheckJSON `key:"health_check" doc:"Active health checks of the hosts; {}: none."`
	Outlier     *outlierJSON     `key:"outlier_detection" doc:"Ejects hosts that fail requests, like Envoy's outlier detection; {}: with the defaults."`
	TLS         *tlsJSON         `key:"tls_context" doc:"TLS on connections to hosts; {}: none."`
	ProxyHeader string           `key:"proxy_protocol" doc:"Version of the PROXY protocol header that Weft sends on connections to hosts, before TLS, with the client address. For tcp_proxy; for requests only if clients do not share connections (connection_pool with the mode bind)." enum:"v1|v2" example:"\"v2\""`
	originalDstJSON
	autoSNIJSON

	balancingJSON
	dnsJSON
	socketJSON

	Spec       document.Node `key:"spec" doc:"Subscription to a registry." accept:"object" unsupported:"spec" example:"{\"subscribe\": [{\"subscriber\": \"x\"}]}"`
	ManagerTLS bool          `key:"cluster_manager_tls" doc:"Use the tls_context of cluster_manager." example:"true"`
	SubType    string        `key:"sub_type" doc:"Subtype of the cluster." ignored:"true" example:"\"x\""`
}

type breakersJSON struct {
	Node               document.Node `key:"."`
	Priority           string        `key:"priority" doc:"Priority of the routes whose requests the limits apply to. Each priority has its own limits and connections." enum:"DEFAULT|HIGH" default:"DEFAULT" example:"\"HIGH\""`
	MaxConnections     int           `key:"max_connections" doc:"Maximum number of open connections to the hosts; requests beyond it are pending, and Weft closes tcp_proxy connections beyond it. Sessions of udp_proxy count as connections. 0: no limit." unit:"connections" min:"0" default:"1024" example:"20000"`
	MaxPendingRequests int           `key:"max_pending_requests" doc:"Maximum number of requests that wait for a connection, and of tcp_proxy connections while Weft connects to the host. Further requests get 503, and Weft closes further tcp_proxy connections. 0: no limit." unit:"requests" min:"0" default:"1024" example:"5000"`
	MaxRequests        int           `key:"max_requests" doc:"Maximum number of requests that have a connection, tcp_proxy connections and udp_proxy sessions; further requests get 503. 0: no limit." unit:"requests" min:"0" default:"1024" example:"100000"`
	MaxRetries         int           `key:"max_retries" doc:"Maximum number of retries in flight. 0: no limit, which is also the default with a retry_budget." unit:"retries" min:"0" default:"3" example:"10"`

	RetryBudget *retryBudgetJSON `key:"retry_budget" doc:"Limits retries in flight in proportion to requests in flight, in addition to max_retries; {}: with the defaults."`
}

type retryBudgetJSON struct {
	Percent        float64 `key:"budget_percent" doc:"Maximum retries in flight, as a percentage of the requests in flight." unit:"percent" min:"0" max:"100" default:"20" example:"25"`
	MinConcurrency int     `key:"min_retry_concurrency" doc:"Number of retries that may always be in flight, even with few requests in flight." unit:"retries" min:"1" default:"3" example:"5"`
}

type hostJSON struct {
	Node       document.Node     `key:"."`
	Address    string            `key:"address" doc:"ip:port, [ipv6]:port, the path of a unix socket (with a slash), or name:port in STRICT_DNS and LOGICAL_DNS." required:"true" example:"\"10.0.0.1:8080\""`
	Hostname   string            `key:"hostname" doc:"Hostname of the host, for auto_host_rewrite. If the cluster uses TLS and tls_context has no server_name, the certificate of the host must match it." example:"\"a.shop\""`
	Weight     uint32            `key:"weight" doc:"Weight of the host: its share of the requests." unit:"parts" min:"1" max:"128" default:"1" example:"10"`
	Metadata   metadataMatchJSON `key:"metadata" doc:"Labels of the host."`
	Priority   uint32            `key:"priority" doc:"Priority of the host. Priority 0 is used first; higher numbers are used as lower ones fail." max:"128" default:"0" example:"1"`
	Locality   localityJSON      `key:"locality" doc:"Locality of the host, for locality_weights."`
	TLSDisable bool              `key:"tls_disable" doc:"Use plaintext to this host." example:"true"`
}

type poolJSON struct {
	Mode          string `key:"mode" doc:"multiplex: concurrent requests on each connection. ping_pong: one request at a time on each connection. bind: separate connections for each client connection (one if the protocol multiplexes), which close with it." enum:"multiplex|ping_pong|bind" default:"multiplex" example:"\"bind\""`
	Connections   int    `key:"connections" doc:"Maximum number of connections to a host with multiplex, for requests of one priority in one protocol; other modes ignore it. Weft opens another connection when all are busy." unit:"connections" min:"1" max:"1024" default:"1" example:"4"`
	Warm          string `key:"warm" doc:"Protocol for which Weft opens a connection to each host ahead of requests, with multiplex. Absent: Weft opens connections on demand." enum:"Http2|dubbo|bolt|boltv2" example:"\"Http2\""`
	MaxRequests   int    `key:"max_requests" doc:"Maximum number of RPC requests on a shared connection (multiplex and bind). The connection closes after the last of them, and a new one replaces it. 0: no limit." unit:"requests" min:"0" default:"0" example:"100000"`
	MaxConnecting int    `key:"max_connecting" doc:"Maximum number of concurrent connects to a host, for requests of one priority in one protocol; tcp_proxy has a separate limit of the same size. Further requests wait in order and count toward max_pending_requests." unit:"connections" min:"1" default:"64" example:"256"`
	MaxQueued     int    `key:"max_queued_bytes" doc:"RPC: maximum number of bytes queued on a connection to a host that does not read; further requests fail with the response flag UO." unit:"bytes" min:"1048576" max:"2147483647" default:"67108864" example:"16777216"`
	MaxFrameSize  int    `key:"max_frame_size" doc:"Maximum size of a response frame. 0: no limit." unit:"bytes" min:"0" default:"8388608" example:"1048576"`
}

type keepAliveJSON struct {
	Interval time.Duration `key:"interval" doc:"Time without traffic on a connection before Weft sends a heartbeat. 0s: no heartbeats." default:"15s" example:"\"5s\""`
	Timeout  time.Duration `key:"timeout" doc:"Time from the first heartbeat without a response until Weft closes the connection. For RPC protocols, it is rounded up to whole intervals, at least one." default:"90s" example:"\"10s\""`
}

// autoSNIJSON contains the keys with which the authority of a request determines the SNI and the
// name that the host's certificate must match. Their names are Envoy's.
type autoSNIJSON struct {
	AutoSNI    bool   `key:"auto_sni" doc:"Send the hostname of an HTTP request (its authority without the port) as SNI to hosts, instead of tls_context.server_name, unless it is an IP address. Requests for different names never share a connection." example:"true"`
	AutoVerify bool   `key:"auto_san_validation" doc:"Require that the certificate of a host matches the hostname of the request, in addition to the checks of tls_context." example:"true"`
	NameHeader string `key:"override_auto_sni_header" doc:"Header whose value replaces the hostname, if the request has the header. Absent: Weft always uses the hostname of the request." example:"\"x-server-name\""`
}

// clusterReader reads the key "cluster_manager".
type clusterReader struct {
	*input
	tls        tlsReader
	clusters   *clusterSet     // clusters that have been read
	addresses  map[string]bool // host addresses of the cluster that is being converted
	managerTLS *config.TLS     // cluster_manager's tls_context; nil: absent or disabled
}

// read adds the clusters of the file to r.clusters.
func (r *clusterReader) read(j *clusterManagerJSON) {
	r.managerTLS = r.tls.readContext(j.TLS, clusterTLS)
	total := j.Clusters.Len()
	r.clusters.list = make([]*config.Cluster, 0, total)
	for c := range j.Clusters.All() {
		r.readCluster(c)
	}
	if j.Directory == "" {
		return
	}
	node := j.Node.Get("clusters_configs")
	if total > 0 {
		r.report.Errorf(node, "clusters_configs and clusters are mutually exclusive")
	}
	for _, root := range r.parseDirectory(node, j.Directory) {
		var c clusterJSON
		r.decoder.Decode(root, &c)
		r.readCluster(&c)
	}
}

func (r *clusterReader) readCluster(j *clusterJSON) {
	c := &config.Cluster{
		Name: j.Name,

		ConnectTimeout:     j.ConnectTimeout,
		IdleTimeout:        j.IdleTimeout,
		MaxRequestsPerConn: j.MaxRequestPerConn,

		Pool: config.Pool{
			Mode: config.PoolMode(j.Pool.Mode), Connections: j.Pool.Connections, WarmProtocol: config.Protocol(j.Pool.Warm), MaxFrameSize: j.Pool.MaxFrameSize,
			MaxRPCRequests: j.Pool.MaxRequests, MaxConnecting: j.Pool.MaxConnecting, MaxPendingBytes: j.Pool.MaxQueued,
		},
		Heartbeat: config.Heartbeat(j.KeepAlive),

		ProxyProtocol: proxyVersion(j.ProxyHeader),
	}
	r.readTypeAndPolicy(j, c)
	c.Protocol = r.readProtocol(j)
	r.readCircuitBreakers(j, c)
	c.TLS = r.readTLSContext(j)
	if j.Node.Get("max_request_per_conn").Exists() { // its default does not apply to multiplexed connections
		c.Pool.MaxRequests = j.MaxRequestPerConn
	}
	r.checkPool(j, c)
	r.readHosts(j, c)
	r.readBalancing(j, c)
	r.readHealth(j, c)
	r.readDNS(j, c)
	r.readOriginalDst(j, c)
	r.readSocket(j, c)
	r.readAutoSNI(j, c)
	if j.Name == "" {
		return // an absent name has been reported
	}
	if r.clusters.byName[j.Name] != nil {
		r.report.Errorf(j.Node.Get("name"), "duplicate cluster name %q", j.Name)
		return
	}
	r.clusters.byName[j.Name] = c
	r.clusters.list = append(r.clusters.list, c)
}

// checkPool reports connection settings that conflict with the pool mode or have no effect. It
// leaves a short keepalive timeout to checkKeepAlive.
func (r *clusterReader) checkPool(j *clusterJSON, c *config.Cluster) {
	pool := j.Node.Get("connection_pool")
	if node := pool.Get("connections"); node.Exists() && c.Pool.Mode != config.Multiplex {
		r.report.Warnf(node, "connections has no effect with the mode %q, which opens connections on demand: set max_connections of circuit_breakers to limit them", c.Pool.Mode)
	}
	if node := pool.Get("warm"); node.Exists() && c.Pool.Mode != config.Multiplex {
		r.report.Errorf(node, "warm requires the mode %q", config.Multiplex)
	}
	if node := pool.Get("max_requests"); node.Exists() && c.Pool.Mode == config.PingPong {
		r.report.Warnf(node, "max_requests has no effect with the mode %q: set max_request_per_conn, which limits connections that carry one request at a time", c.Pool.Mode)
	}
	if c.Heartbeat.Timeout < c.Heartbeat.Interval {
		keepAlive := j.Node.Get("keepalive")
		r.clusters.shortTimeouts = append(r.clusters.shortTimeouts, shortTimeout{keepAlive.Get("timeout").Or(keepAlive.Get("interval")), c})
	}
}

// readTypeAndPolicy converts the type and the load-balancing policy of a cluster.
func (r *clusterReader) readTypeAndPolicy(j *clusterJSON, c *config.Cluster) {
	clusterType := j.Type
	if strings.EqualFold(clusterType, "SIMPLE") {
		clusterType = string(config.ClusterStatic)
	}
	if clusterType != "" && !slices.Contains(r.capabilities.ClusterTypes, config.ClusterType(clusterType)) {
		c.Type, _ = choose(r.report, j.Node.Get("type").Or(j.Node), "cluster type", clusterType, r.capabilities.ClusterTypes, knownClusterTypes())
	} else {
		c.Type = config.ClusterType(clusterType)
	}
	if j.Policy != "" && !slices.Contains(r.capabilities.Policies, config.LBPolicy(j.Policy)) {
		c.LBPolicy, _ = choose(r.report, j.Node.Get("lb_type").Or(j.Node), "lb_type", j.Policy, r.capabilities.Policies, knownPolicies())
	} else {
		c.LBPolicy = config.LBPolicy(j.Policy)
	}
}

// readProtocol returns the protocol of the hosts, or "" if the cluster sets none.
func (r *clusterReader) readProtocol(j *clusterJSON) config.Protocol {
	var p config.Protocol
	if j.Protocol != "" && !strings.EqualFold(j.Protocol, string(config.Auto)) {
		p, _ = choose(r.report, j.Node.Get("upstream_protocol"), "protocol", j.Protocol, r.capabilities.Protocols, knownProtocols())
	}
	if j.HTTP2 == nil {
		return p
	}
	if node := j.Node.Get("upstream_protocol"); node.Exists() && p != config.HTTP2 {
		r.report.Errorf(j.Node.Get("http2_protocol_options"), "http2_protocol_options and upstream_protocol %q are mutually exclusive", node.Text())
	}
	return config.HTTP2
}

func (r *clusterReader) readHosts(j *clusterJSON, c *config.Cluster) {
	c.Hosts = make([]config.Host, 0, len(j.Hosts))
	clear(r.addresses)
	for i := range j.Hosts {
		h := &j.Hosts[i]
		address, isName, err := parseDialAddress(h.Address)
		if err != nil {
			if node := h.Node.Get("address"); node.Kind() == document.String {
				r.report.Errorf(node, "%v", err)
			}
			continue
		}
		if isName {
			r.convertToStrictDNS(h, c)
		}
		if r.addresses[address] {
			r.report.Errorf(h.Node.Get("address"), "duplicate host %q: keep one entry with the sum of the weights", address)
			continue
		}
		r.addresses[address] = true
		c.Hosts = append(c.Hosts, config.Host{
			Address: address, Hostname: h.Hostname, Weight: h.Weight, Metadata: h.Metadata.FilterMetadata.Labels,
			Priority: h.Priority, Locality: config.Locality(h.Locality), NoTLS: h.TLSDisable,
		})
	}
}

// readTLSContext converts the TLS settings of a cluster.
func (r *clusterReader) readTLSContext(j *clusterJSON) *config.TLS {
	tlsConfig := r.tls.readContext(j.TLS, clusterTLS)
	if !j.ManagerTLS {
		return tlsConfig
	}
	node := j.Node.Get("cluster_manager_tls")
	switch {
	case tlsConfig != nil:
		r.report.Errorf(node, "cluster_manager_tls and tls_context are mutually exclusive")
	case r.managerTLS == nil:
		r.report.Errorf(node, "cluster_manager has no enabled tls_context")
	}
	return r.managerTLS
}

// readAutoSNI converts the keys of autoSNIJSON. It runs after the TLS and pool settings of the
// cluster have been converted.
func (r *clusterReader) readAutoSNI(j *clusterJSON, c *config.Cluster) {
	sni := config.AutoSNI{SendSNI: j.AutoSNI, ValidateSAN: j.AutoVerify, OverrideHeader: strings.ToLower(j.NameHeader)}
	field := j.Node.Get("override_auto_sni_header")
	if sni.OverrideHeader != "" && strings.ContainsAny(sni.OverrideHeader, " \t\r\n,:") {
		r.report.Expect(field, "a header name")
		return
	}
	node := j.Node.Get("auto_sni").Or(j.Node.Get("auto_san_validation")).Or(field)
	switch {
	case !sni.Enabled():
		if sni.OverrideHeader != "" {
			r.report.Warnf(field, "override_auto_sni_header has no effect without auto_sni or auto_san_validation")
		}
		return
	case c.TLS == nil:
		r.report.Warnf(node, "the setting has no effect without a tls_context")
	case c.Pool.WarmProtocol != "":
		r.report.Errorf(node, "auto_sni and auto_san_validation are not compatible with connection_pool.warm, which opens connections before the name of a request is known")
	}
	c.AutoSNI = sni
}

// readCircuitBreakers converts the key "circuit_breakers", which has at most one element for each
// priority. A priority without an element gets the defaults. An explicit 0 means no limit.
func (r *clusterReader) readCircuitBreakers(j *clusterJSON, c *config.Cluster) {
	c.CircuitBreakers, c.HighCircuitBreakers = config.DefaultCircuitBreakers(), config.DefaultCircuitBreakers()
	var seen [config.NumPriorities]bool
	for i := range j.Breakers {
		b := &j.Breakers[i]
		p := parsePriority(b.Priority)
		if seen[p] {
			r.report.Errorf(b.Node, "duplicate priority %v: a cluster has one set of limits for each priority", p)
			continue
		}
		seen[p] = true
		*c.Limits(p) = convertCircuitBreakers(b)
	}
}

// parsePriority converts a priority. An invalid one has been reported.
func parsePriority(text string) config.Priority {
	if strings.EqualFold(text, config.HighPriority.String()) {
		return config.HighPriority
	}
	return config.DefaultPriority
}

// convertCircuitBreakers converts an element of circuit_breakers.
func convertCircuitBreakers(j *breakersJSON) config.CircuitBreakers {
	b := config.CircuitBreakers{
		MaxConnections: j.MaxConnections, MaxPendingRequests: j.MaxPendingRequests,
		MaxRequests: j.MaxRequests, MaxRetries: j.MaxRetries,
	}
	if j.RetryBudget != nil {
		b.RetryBudget = config.RetryBudget(*j.RetryBudget)
		if !j.Node.Get("max_retries").Exists() {
			b.MaxRetries = 0 // the budget replaces the default
		}
	}
	return b
}
