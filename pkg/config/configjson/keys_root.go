package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// rootJSON is the whole file. In every struct of the keys_*.go files, Node is the object itself,
// for diagnostics.
type rootJSON struct {
	Node           document.Node      `key:"."`
	Schema         string             `key:"$schema" doc:"JSON Schema of this file, for editors." example:"\"weft.schema.json\""`
	Servers        []serverJSON       `key:"servers" doc:"The server; exactly one. It is optional in a file with static_resources or dynamic_resources, which is an Envoy bootstrap; see docs/xds.md."`
	ClusterManager clusterManagerJSON `key:"cluster_manager,clusterManager" doc:"Upstream clusters."`
	Admin          *adminJSON         `key:"admin" doc:"The admin port. Absent: none."`
	Metrics        metricsJSON        `key:"metrics" doc:"Metrics export."`
	Tracing        tracingJSON        `key:"tracing" doc:"Tracing of requests."`
	StreamFilters  []chainJSON        `key:"stream_filters" doc:"Named chains of stream filters. A chain with the name of a listener applies to that listener if the listener has no stream_filters."`
	Overload       *overloadJSON      `key:"overload_manager,overloadManager" doc:"Actions of Weft when memory, file descriptors, CPU time or connections run short. Absent: none. See docs/overload.md."`
	PIDFile        string             `key:"pid" doc:"File with the process ID while Weft runs. Empty: none." example:"\"/run/weft.pid\""`
	Pprof          pprofJSON          `key:"pprof" doc:"Profiler of the Go runtime."`

	DynamicResources document.Node  `key:"dynamic_resources,dynamicResources" doc:"Envoy bootstrap: xDS sources of listeners and clusters." accept:"object" example:"{\"ads_config\": {\"api_type\": \"GRPC\"}}"`
	StaticResources  document.Node  `key:"static_resources,staticResources" doc:"Envoy bootstrap: listeners and clusters that exist from the start." accept:"object" example:"{\"clusters\": [{\"name\": \"xds\"}]}"`
	LayeredRuntime   document.Node  `key:"layered_runtime,layeredRuntime" doc:"Envoy bootstrap: layers of runtime values that xDS resources refer to, from the file (static_layer) or the control plane (rtds_layer). See docs/xds.md." accept:"object" example:"{\"layers\": [{\"name\": \"file\", \"static_layer\": {\"shop.share\": 20}}]}"`
	XDSCache         *xdsCacheJSON  `key:"xds_cache" doc:"Caches xDS resources on disk, for a start while the control plane is unavailable. Absent: no cache."`
	XDSLazy          *xdsLazyJSON   `key:"xds_lazy" doc:"Subscribe to xDS resources on first use and unsubscribe when they are unused: hosts of EDS clusters, and RDS routes. Absent: Weft subscribes to everything immediately."`
	XDSUnknown       string         `key:"xds_unknown_fields" doc:"Handling of an xDS resource with a field that this build's version of the Envoy API does not have: \"reject\" rejects the resource; \"warn\" accepts it without the field, unless the field is in a message that decides who may connect or which requests pass. See docs/xds.md." enum:"reject|warn" default:"reject" example:"\"warn\""`
	XDSStatus        *xdsStatusJSON `key:"xds_status" doc:"gRPC service envoy.service.status.v3.ClientStatusDiscoveryService, where tools query the received xDS resources. Absent: none."`
	EnvoyNode        document.Node  `key:"node" doc:"Envoy bootstrap: node identity in xDS requests." accept:"object" example:"{\"id\": \"sidecar~10.0.0.1\"}"`

	Extends []extensionJSON `key:"extends" doc:"Extensions with settings of their own: the Dubbo registry."`
	envoyJSON

	Plugin         document.Node   `key:"plugin" doc:"Plugins that run as processes." accept:"object" unbuilt:"plugin" example:"{\"log_base\": \"/var/log\"}"`
	ThirdPartCodec document.Node   `key:"third_part_codec" doc:"Codecs loaded at run time." accept:"object" unbuilt:"third_part_codec" example:"{\"codecs\": [{\"enable\": true}]}"`
	WasmPlugins    []document.Node `key:"wasm_global_plugins" doc:"WebAssembly plugins." unbuilt:"wasm_global_plugins" example:"[{\"plugin_name\": \"p\"}]"`

	DisableUpgrade bool   `key:"disable_upgrade" doc:"Disable binary upgrade." noeffect:"binary upgrade is not supported yet" example:"true"`
	CloseGraceful  bool   `key:"close_graceful" doc:"Older name of disable_upgrade." noeffect:"binary upgrade is not supported yet" example:"true"`
	UDSDir         string `key:"uds_dir" doc:"Directory of the sockets for a binary upgrade." noeffect:"binary upgrade is not supported yet" example:"\"/run/weft\""`
	InheritOld     bool   `key:"inherit_old_mosnconfig" doc:"Inherit the configuration of the replaced process." unbuilt:"inherit_old_mosnconfig" example:"true"`
}

type serverJSON struct {
	Node            document.Node  `key:"."`
	Name            string         `key:"mosn_server_name" doc:"Name of the server, for logs." example:"\"sidecar\""`
	LogPath         string         `key:"default_log_path" doc:"Destination of Weft's log: \"stderr\", \"stdout\" or a file." default:"stderr" example:"\"/var/log/weft.log\""`
	LogLevel        config.Level   `key:"default_log_level" doc:"Lowest severity that is logged." enum:"TRACE|DEBUG|INFO|WARN|ERROR|CRITICAL|OFF" default:"INFO" example:"\"WARN\""`
	LogFormat       string         `key:"default_log_format" doc:"Format of Weft's log: text is key=value, json is one object per line. A change takes effect after a restart." enum:"text|json" default:"text" example:"\"json\""`
	LogRoller       string         `key:"global_log_roller" doc:"Rotation of log files: size in MB or time in hours; age in days and keep in files limit the rotated files that are kept; compress is on or off. Empty: no rotation." example:"\"size=100 age=10 keep=10 compress=off\""`
	GracefulTimeout time.Duration  `key:"graceful_timeout" doc:"Maximum time that connections may take to drain when Weft stops or a listener is removed." default:"30s" example:"\"10s\""`
	Processor       int            `key:"processor" doc:"Maximum number of threads that run Go code; \"auto\" or 0: the CPUs that the process may use." enum:"auto=0" numeral:"true" min:"0" max:"4096" default:"auto" example:"4"`
	Listeners       []listenerJSON `key:"listeners" doc:"Listeners of the server."`
	Overload        *overloadJSON  `key:"overload_manager" doc:"Actions of Weft when memory, file descriptors, CPU time or connections run short. Absent: none. See docs/overload.md. Either here or at the top level."`
	Routers         []routerJSON   `key:"routers" doc:"Route tables."`
	NetPoll         bool           `key:"use_netpoll_mode" doc:"Event loop mode of MOSN." noeffect:"true" example:"true"`
}

type adminJSON struct {
	Node    document.Node `key:"."`
	Address struct {
		Socket struct {
			Node      document.Node `key:"."`
			Address   string        `key:"address" doc:"IP address, or path of a unix socket. Clients that can connect to it can drain Weft and read its configuration." default:"127.0.0.1" example:"\"127.0.0.9\""`
			Port      uint16        `key:"port_value,portValue" doc:"Port of the admin API." numeral:"true" example:"9901"`
			Protocol  string        `key:"protocol" doc:"Envoy bootstrap: protocol of the address; always TCP." enum:"TCP" noeffect:"there is no other" example:"\"TCP\""`
			IPv4      bool          `key:"ipv4_compat,ipv4Compat" doc:"Envoy bootstrap: accept IPv4 connections on \"::\"." noeffect:"IPv4 is always accepted" example:"true"`
			NamedPort string        `key:"named_port,namedPort" doc:"Envoy bootstrap: named port." unbuilt:"named_port" example:"\"admin\""`
			Resolver  string        `key:"resolver_name,resolverName" doc:"Envoy bootstrap: resolver of the address." unbuilt:"resolver_name" example:"\"dns\""`
			Namespace string        `key:"network_namespace_filepath,networkNamespaceFilepath" doc:"Envoy bootstrap: network namespace of the admin port." unbuilt:"network_namespace_filepath" example:"\"/run/netns/admin\""`
		} `key:"socket_address,socketAddress" doc:"IP address and port."`
		Pipe struct {
			Path string `key:"path" doc:"Path of a unix socket, instead of socket_address." example:"\"/run/weft/admin\""`
			Mode uint32 `key:"mode" doc:"Permissions of the socket file, as a decimal number. Users with write permission can connect, drain Weft and read its configuration. 0: its owner only (384). 432 also allows its group." max:"511" default:"0" example:"432"`
		} `key:"pipe" doc:"Envoy bootstrap: unix socket."`
		Internal document.Node `key:"envoy_internal_address,envoyInternalAddress" doc:"Envoy bootstrap: address inside the process." accept:"object" unbuilt:"envoy_internal_address" example:"{\"server_listener_name\": \"admin\"}"`
	} `key:"address" doc:"Address of the admin port."`
	AllowedHosts []string        `key:"allowed_hosts" doc:"Accepted hostnames in requests to the admin port, without port; *.suffix for all names below the suffix. IP addresses and localhost are always accepted; other names get 403, which prevents DNS rebinding attacks by web pages." example:"[\"weft.mesh.example\"]"`
	LogPath      string          `key:"access_log_path,accessLogPath" doc:"Access log of the admin port." noeffect:"true" example:"\"/dev/null\""`
	AccessLog    []document.Node `key:"access_log,accessLog" doc:"Envoy bootstrap: access logs of the admin port." noeffect:"true" example:"[{\"name\": \"envoy.access_loggers.file\"}]"`
	ProfilePath  string          `key:"profile_path,profilePath" doc:"Envoy bootstrap: file of CPU profiles." noeffect:"set pprof.debug instead" example:"\"/tmp/envoy.prof\""`
	Sockets      []document.Node `key:"socket_options,socketOptions" doc:"Envoy bootstrap: socket options of the admin port." noeffect:"true" example:"[{\"level\": 1}]"`
	NoLimit      bool            `key:"ignore_global_conn_limit,ignoreGlobalConnLimit" doc:"Envoy bootstrap: exempt the admin port from connection limits." noeffect:"the admin port is always exempt" example:"true"`
	AllowPaths   []document.Node `key:"allow_paths,allowPaths" doc:"Envoy bootstrap: paths that the admin port serves." unbuilt:"allow_paths" example:"[{\"exact\": \"/stats\"}]"`
}

type metricsJSON struct {
	Sinks        []sinkJSON `key:"sinks" doc:"Exporters in addition to /stats/prometheus on the admin port."`
	StatsMatcher struct {
		RejectAll       bool     `key:"reject_all" doc:"Export no request metrics." example:"true"`
		ExclusionLabels []string `key:"exclusion_labels" doc:"Labels to exclude." example:"[\"host\"]"`
		ExclusionKeys   []string `key:"exclusion_keys" doc:"Metrics to exclude." example:"[\"weft_request_bytes_total\"]"`
	} `key:"stats_matcher" doc:"What to exclude."`
	ShmZone string        `key:"shm_zone" doc:"Shared memory zone of MOSN." noeffect:"true" example:"\"zone\""`
	Flush   document.Node `key:"flush_interval" doc:"Interval of writing to sinks." accept:"number|string" noeffect:"Weft's metrics are scraped, not pushed" example:"\"500ms\""`
	ShmSize document.Node `key:"shm_size" doc:"Size of shm_zone." accept:"number|string" noeffect:"true" example:"\"64M\""`
}

type sinkJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Type of the exporter: prometheus." required:"true" example:"\"prometheus\""`
	Config document.Node `key:"config" doc:"Settings of the exporter." accept:"object" variant:"sink"`
}

type prometheusJSON struct {
	Node     document.Node `key:"."`
	Address  string        `key:"address" doc:"IP address to listen on." default:"0.0.0.0" example:"\"127.0.0.1\""`
	Port     uint16        `key:"port" doc:"Port of the scrape endpoint." required:"true" min:"1" example:"34903"`
	Percents document.Node `key:"percentiles" doc:"Percentiles of durations." accept:"list" noeffect:"durations are histograms, from which percentiles are computed" example:"[50, 99]"`
	Endpoint string        `key:"endpoint" doc:"Path of the scrape endpoint." default:"/metrics" example:"\"/stats\""`
}

type tracingJSON struct {
	Enable bool          `key:"enable" doc:"Whether Weft creates spans." unbuilt:"tracing" example:"true"`
	Driver string        `key:"driver" doc:"Name of the tracer; ignored without enable." example:"\"SkyWalking\""`
	Tracer string        `key:"tracer" doc:"Older name of driver." example:"\"SOFATracer\""`
	HTTP   document.Node `key:"http" doc:"Envoy bootstrap: tracer." accept:"object" noeffect:"Weft creates no spans" example:"{\"name\": \"envoy.tracers.zipkin\"}"`
	Config document.Node `key:"config" doc:"Settings of the tracer; ignored without enable." accept:"object" example:"{\"service_name\": \"a\"}"`
}

type chainJSON struct {
	Node    document.Node      `key:"."`
	Name    string             `key:"name" doc:"Name of the chain, which is the name of a listener." required:"true" example:"\"ingress\""`
	Filters []streamFilterJSON `key:"stream_filters" doc:"Filters of the chain, in order."`
}

type pprofJSON struct {
	Node     document.Node `key:"."`
	Debug    bool          `key:"debug" doc:"Serve /debug/pprof on the admin port." example:"true"`
	Port     uint16        `key:"port_value" doc:"Port of the profiler: absent, or the admin port." example:"9901"`
	Endpoint string        `key:"endpoint" doc:"Address of the profiler." unbuilt:"pprof.endpoint" example:"\"127.0.0.1\""`
}
