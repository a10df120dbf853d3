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
	Schema         string             `key:"$schema" doc:"Where the JSON Schema of this file is; for editors." example:"\"weft.schema.json\""`
	Servers        []serverJSON       `key:"servers" doc:"The server: exactly one. Only a file with static_resources or dynamic_resources may do without: it is one for Envoy, as docs/xds.md has it."`
	ClusterManager clusterManagerJSON `key:"cluster_manager,clusterManager" doc:"The upstream clusters."`
	Admin          *adminJSON         `key:"admin" doc:"The operator's port; absent: none."`
	Metrics        metricsJSON        `key:"metrics" doc:"What is exported, and where."`
	Tracing        tracingJSON        `key:"tracing" doc:"Spans of requests."`
	StreamFilters  []chainJSON        `key:"stream_filters" doc:"Named chains of stream filters: the one with a listener's name is that listener's, if it lists none itself."`
	Overload       *overloadJSON      `key:"overload_manager,overloadManager" doc:"What Weft does when it runs short of memory, descriptors, processors or connections; absent: nothing. See docs/overload.md."`
	PIDFile        string             `key:"pid" doc:"File that holds the process id while Weft runs; empty: none." example:"\"/run/weft.pid\""`
	Pprof          pprofJSON          `key:"pprof" doc:"Go's profiler."`

	DynamicResources document.Node  `key:"dynamic_resources,dynamicResources" doc:"Envoy bootstrap: where listeners and clusters come from by xDS." accept:"object" example:"{\"ads_config\": {\"api_type\": \"GRPC\"}}"`
	StaticResources  document.Node  `key:"static_resources,staticResources" doc:"Envoy bootstrap: listeners and clusters that are there from the start." accept:"object" example:"{\"clusters\": [{\"name\": \"xds\"}]}"`
	LayeredRuntime   document.Node  `key:"layered_runtime,layeredRuntime" doc:"Envoy bootstrap: values of the keys that resources of a control plane name, in layers: of the file (static_layer) or of the control plane (rtds_layer). See docs/xds.md." accept:"object" example:"{\"layers\": [{\"name\": \"file\", \"static_layer\": {\"shop.share\": 20}}]}"`
	XDSCache         *xdsCacheJSON  `key:"xds_cache" doc:"Where what the control plane said is kept, for a start while it is away; absent: nowhere."`
	XDSLazy          *xdsLazyJSON   `key:"xds_lazy" doc:"What of a control plane is asked for only when it is used, and dropped when it is not: hosts of clusters of type EDS, and routes by RDS. Absent: all is asked for at once."`
	XDSUnknown       string         `key:"xds_unknown_fields" doc:"What becomes of a resource of a control plane with a field that this build's version of Envoy's API does not have: \"reject\" refuses it, \"warn\" accepts it without the field, unless that is in a message that decides who may connect or which requests pass. See docs/xds.md." enum:"reject|warn" default:"reject" example:"\"warn\""`
	XDSStatus        *xdsStatusJSON `key:"xds_status" doc:"Where tools may ask by gRPC for what the control plane said, as envoy.service.status.v3.ClientStatusDiscoveryService; absent: nowhere."`
	EnvoyNode        document.Node  `key:"node" doc:"Envoy bootstrap: who asks by xDS." accept:"object" example:"{\"id\": \"sidecar~10.0.0.1\"}"`

	Extends []extensionJSON `key:"extends" doc:"Extensions with a configuration of their own: the Dubbo registry."`
	envoyJSON

	Plugin         document.Node   `key:"plugin" doc:"Plugins that run as processes." accept:"object" unbuilt:"plugin" example:"{\"log_base\": \"/var/log\"}"`
	ThirdPartCodec document.Node   `key:"third_part_codec" doc:"Codecs that are loaded at run time." accept:"object" unbuilt:"third_part_codec" example:"{\"codecs\": [{\"enable\": true}]}"`
	WasmPlugins    []document.Node `key:"wasm_global_plugins" doc:"WebAssembly plugins." unbuilt:"wasm_global_plugins" example:"[{\"plugin_name\": \"p\"}]"`

	DisableUpgrade bool   `key:"disable_upgrade" doc:"No binary upgrade." noeffect:"binary upgrade is not supported yet" example:"true"`
	CloseGraceful  bool   `key:"close_graceful" doc:"Older name of disable_upgrade." noeffect:"binary upgrade is not supported yet" example:"true"`
	UDSDir         string `key:"uds_dir" doc:"Directory of the sockets that a binary upgrade uses." noeffect:"binary upgrade is not supported yet" example:"\"/run/weft\""`
	InheritOld     bool   `key:"inherit_old_mosnconfig" doc:"Take the configuration over from the process that is replaced." unbuilt:"inherit_old_mosnconfig" example:"true"`
}

type serverJSON struct {
	Node            document.Node  `key:"."`
	Name            string         `key:"mosn_server_name" doc:"Name of the server, for logs." example:"\"sidecar\""`
	LogPath         string         `key:"default_log_path" doc:"Where the operator's log goes: \"stderr\", \"stdout\" or a file." default:"stderr" example:"\"/var/log/weft.log\""`
	LogLevel        config.Level   `key:"default_log_level" doc:"The least severe level that is logged." enum:"TRACE|DEBUG|INFO|WARN|ERROR|CRITICAL|OFF" default:"INFO" example:"\"WARN\""`
	LogFormat       string         `key:"default_log_format" doc:"How the operator's log is written: text is key=value, json one object a line. Not reloaded." enum:"text|json" default:"text" example:"\"json\""`
	LogRoller       string         `key:"global_log_roller" doc:"When log files are rotated: size in MB or time in hours; age in days and keep in files bound what is kept; compress on or off. Empty: never." example:"\"size=100 age=10 keep=10 compress=off\""`
	GracefulTimeout time.Duration  `key:"graceful_timeout" doc:"How long connections may take to end when Weft stops or a listener goes." default:"30s" example:"\"10s\""`
	Processor       int            `key:"processor" doc:"Cap on the threads that run Weft; \"auto\" or 0: the CPUs that the process may use." enum:"auto=0" numeral:"true" min:"0" max:"4096" default:"auto" example:"4"`
	Listeners       []listenerJSON `key:"listeners" doc:"Where connections come in."`
	Overload        *overloadJSON  `key:"overload_manager" doc:"What Weft does when it runs short of memory, descriptors, processors or connections; absent: nothing. See docs/overload.md. Of the file or of the server."`
	Routers         []routerJSON   `key:"routers" doc:"The route tables."`
	NetPoll         bool           `key:"use_netpoll_mode" doc:"An event loop of another proxy's." noeffect:"true" example:"true"`
}

type adminJSON struct {
	Node    document.Node `key:"."`
	Address struct {
		Socket struct {
			Node      document.Node `key:"."`
			Address   string        `key:"address" doc:"IP address, or path of a unix socket. Whoever reaches it can drain Weft and read its configuration." default:"127.0.0.1" example:"\"127.0.0.9\""`
			Port      uint16        `key:"port_value,portValue" doc:"Port." numeral:"true" example:"9901"`
			Protocol  string        `key:"protocol" doc:"Envoy bootstrap: the only one." enum:"TCP" noeffect:"there is no other" example:"\"TCP\""`
			IPv4      bool          `key:"ipv4_compat,ipv4Compat" doc:"Envoy bootstrap: \"::\" is for callers of IPv4, too." noeffect:"it always is" example:"true"`
			NamedPort string        `key:"named_port,namedPort" doc:"Envoy bootstrap: the port as a name." unbuilt:"named_port" example:"\"admin\""`
			Resolver  string        `key:"resolver_name,resolverName" doc:"Envoy bootstrap: what resolves the address." unbuilt:"resolver_name" example:"\"dns\""`
			Namespace string        `key:"network_namespace_filepath,networkNamespaceFilepath" doc:"Envoy bootstrap: network namespace of the port." unbuilt:"network_namespace_filepath" example:"\"/run/netns/admin\""`
		} `key:"socket_address,socketAddress" doc:"The address and its port."`
		Pipe struct {
			Path string `key:"path" doc:"Path of a unix socket, in place of socket_address." example:"\"/run/weft/admin\""`
			Mode uint32 `key:"mode" doc:"Permissions of the socket's file, as a decimal number: who may write may connect, and can drain Weft and read its configuration. 0: its owner alone may (384). 432 lets its group in, too." max:"511" default:"0" example:"432"`
		} `key:"pipe" doc:"Envoy bootstrap: a unix socket."`
		Internal document.Node `key:"envoy_internal_address,envoyInternalAddress" doc:"Envoy bootstrap: an address inside the process." accept:"object" unbuilt:"envoy_internal_address" example:"{\"server_listener_name\": \"admin\"}"`
	} `key:"address" doc:"Where the admin port listens."`
	AllowedHosts []string        `key:"allowed_hosts" doc:"Host names that requests to the admin port may be for, without port, or *.suffix for all names below one. Addresses and localhost always are; others are refused with 403, or a web page could read the port by DNS rebinding." example:"[\"weft.mesh.example\"]"`
	LogPath      string          `key:"access_log_path,accessLogPath" doc:"Log of the admin port." noeffect:"true" example:"\"/dev/null\""`
	AccessLog    []document.Node `key:"access_log,accessLog" doc:"Envoy bootstrap: logs of the admin port." noeffect:"true" example:"[{\"name\": \"envoy.access_loggers.file\"}]"`
	ProfilePath  string          `key:"profile_path,profilePath" doc:"Envoy bootstrap: file of profiles." noeffect:"pprof.debug serves them" example:"\"/tmp/envoy.prof\""`
	Sockets      []document.Node `key:"socket_options,socketOptions" doc:"Envoy bootstrap: options of the admin port's socket." noeffect:"true" example:"[{\"level\": 1}]"`
	NoLimit      bool            `key:"ignore_global_conn_limit,ignoreGlobalConnLimit" doc:"Envoy bootstrap: the admin port is outside limits of connections." noeffect:"it always is" example:"true"`
	AllowPaths   []document.Node `key:"allow_paths,allowPaths" doc:"Envoy bootstrap: the pages that there are." unbuilt:"allow_paths" example:"[{\"exact\": \"/stats\"}]"`
}

type metricsJSON struct {
	Sinks        []sinkJSON `key:"sinks" doc:"Exporters beside the admin port's /stats/prometheus."`
	StatsMatcher struct {
		RejectAll       bool     `key:"reject_all" doc:"Export nothing of requests." example:"true"`
		ExclusionLabels []string `key:"exclusion_labels" doc:"Labels that are left out." example:"[\"host\"]"`
		ExclusionKeys   []string `key:"exclusion_keys" doc:"Metrics that are left out." example:"[\"weft_request_bytes_total\"]"`
	} `key:"stats_matcher" doc:"What is left out."`
	ShmZone string        `key:"shm_zone" doc:"Shared memory of another proxy's." noeffect:"true" example:"\"zone\""`
	Flush   document.Node `key:"flush_interval" doc:"How often sinks are written to." accept:"number|string" noeffect:"sinks are read" example:"\"500ms\""`
	ShmSize document.Node `key:"shm_size" doc:"Size of shm_zone." accept:"number|string" noeffect:"true" example:"\"64M\""`
}

type sinkJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Kind of exporter: prometheus." required:"true" example:"\"prometheus\""`
	Config document.Node `key:"config" doc:"The exporter's settings." accept:"object" variant:"sink"`
}

type prometheusJSON struct {
	Node     document.Node `key:"."`
	Address  string        `key:"address" doc:"IP address to listen on." default:"0.0.0.0" example:"\"127.0.0.1\""`
	Port     uint16        `key:"port" doc:"Port of the scrape endpoint." required:"true" min:"1" example:"34903"`
	Percents document.Node `key:"percentiles" doc:"Percentiles of durations." accept:"list" noeffect:"durations are histograms, of which every percentile is made" example:"[50, 99]"`
	Endpoint string        `key:"endpoint" doc:"Path of the scrape endpoint." default:"/metrics" example:"\"/stats\""`
}

type tracingJSON struct {
	Enable bool          `key:"enable" doc:"Whether spans are made." unbuilt:"tracing" example:"true"`
	Driver string        `key:"driver" doc:"Name of the tracer; means nothing without enable." example:"\"SkyWalking\""`
	Tracer string        `key:"tracer" doc:"Older name of driver." example:"\"SOFATracer\""`
	HTTP   document.Node `key:"http" doc:"Envoy bootstrap: the tracer." accept:"object" noeffect:"no spans are made" example:"{\"name\": \"envoy.tracers.zipkin\"}"`
	Config document.Node `key:"config" doc:"The tracer's settings; mean nothing without enable." accept:"object" example:"{\"service_name\": \"a\"}"`
}

type chainJSON struct {
	Node    document.Node      `key:"."`
	Name    string             `key:"name" doc:"Name of the chain: a listener's." required:"true" example:"\"ingress\""`
	Filters []streamFilterJSON `key:"stream_filters" doc:"The filters, in order."`
}

type pprofJSON struct {
	Node     document.Node `key:"."`
	Debug    bool          `key:"debug" doc:"Serve /debug/pprof on the admin port." example:"true"`
	Port     uint16        `key:"port_value" doc:"Port of the profiler: the admin port's, or absent." example:"9901"`
	Endpoint string        `key:"endpoint" doc:"Address of the profiler." unbuilt:"pprof.endpoint" example:"\"127.0.0.1\""`
}
