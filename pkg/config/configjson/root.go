package configjson

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// rootJSON is the root object of the file. In every struct of this package whose name ends in JSON,
// Node is the object itself, for diagnostics.
type rootJSON struct {
	Node           document.Node      `key:"."`
	Schema         string             `key:"$schema" doc:"JSON Schema of this file, for editors." example:"\"weft.schema.json\""`
	Servers        []serverJSON       `key:"servers" doc:"The server; exactly one. It is optional in a file with static_resources or dynamic_resources, which is an Envoy bootstrap; see docs/xds.md."`
	ClusterManager clusterManagerJSON `key:"cluster_manager,clusterManager" doc:"Upstream clusters."`
	Admin          *adminJSON         `key:"admin" doc:"The admin port. Absent: none."`
	Metrics        metricsJSON        `key:"metrics" doc:"Metrics export."`
	Tracing        tracingJSON        `key:"tracing" doc:"Tracing of requests."`
	StreamFilters  []chainJSON        `key:"stream_filters" doc:"Named chains of stream filters. A chain with the name of a listener applies to that listener if the listener has no stream_filters."`
	Overload       *overloadJSON      `key:"overload_manager,overloadManager" doc:"What Weft does when memory, file descriptors, CPU time or connections run short. Absent: nothing. See docs/overload.md."`
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

	Extends []extensionJSON `key:"extends" doc:"Extensions with separate settings: the Dubbo registry."`
	envoyJSON

	Plugin         document.Node   `key:"plugin" doc:"Plugins that run as processes." accept:"object" unsupported:"plugin" example:"{\"log_base\": \"/var/log\"}"`
	ThirdPartCodec document.Node   `key:"third_part_codec" doc:"Codecs loaded at run time." accept:"object" unsupported:"third_part_codec" example:"{\"codecs\": [{\"enable\": true}]}"`
	WasmPlugins    []document.Node `key:"wasm_global_plugins" doc:"WebAssembly plugins." unsupported:"wasm_global_plugins" example:"[{\"plugin_name\": \"p\"}]"`

	DisableUpgrade bool   `key:"disable_upgrade" doc:"Disable binary upgrade." ignored:"binary upgrade is not supported yet" example:"true"`
	CloseGraceful  bool   `key:"close_graceful" doc:"Older name of disable_upgrade." ignored:"binary upgrade is not supported yet" example:"true"`
	UDSDir         string `key:"uds_dir" doc:"Directory of the sockets for a binary upgrade." ignored:"binary upgrade is not supported yet" example:"\"/run/weft\""`
	InheritOld     bool   `key:"inherit_old_mosnconfig" doc:"Inherit the configuration of the replaced process." unsupported:"inherit_old_mosnconfig" example:"true"`
}

type serverJSON struct {
	Node            document.Node  `key:"."`
	Name            string         `key:"mosn_server_name" doc:"Name of the server, for logs." example:"\"sidecar\""`
	LogPath         string         `key:"default_log_path" doc:"Destination of Weft's log: \"stderr\", \"stdout\" or a file." default:"stderr" example:"\"/var/log/weft.log\""`
	LogLevel        config.Level   `key:"default_log_level" doc:"Lowest severity that is logged." enum:"TRACE|DEBUG|INFO|WARN|ERROR|CRITICAL|OFF" default:"INFO" example:"\"WARN\""`
	LogFormat       string         `key:"default_log_format" doc:"Format of Weft's log: text is key=value, json is one object per line. A change takes effect after a restart." enum:"text|json" default:"text" example:"\"json\""`
	LogRoller       string         `key:"global_log_roller" doc:"Rotation of log files: size in MB or time in hours; age in days and keep in files limit the rotated files that are kept; compress is on or off. Empty: no rotation." example:"\"size=100 age=10 keep=10 compress=off\""`
	GracefulTimeout time.Duration  `key:"graceful_timeout" doc:"Maximum time that connections may take to drain when Weft stops or a listener is removed." default:"30s" example:"\"10s\""`
	Processor       int            `key:"processor" doc:"Maximum number of threads that run Go code; \"auto\" or 0: the CPUs that the process may use." enum:"auto=0" allowstring:"true" min:"0" max:"4096" default:"auto" example:"4"`
	Listeners       []listenerJSON `key:"listeners" doc:"Listeners of the server."`
	Overload        *overloadJSON  `key:"overload_manager" doc:"What Weft does when memory, file descriptors, CPU time or connections run short. Absent: nothing. See docs/overload.md. Set it either here or at the top level."`
	Routers         []routerJSON   `key:"routers" doc:"Route tables."`
	NetPoll         bool           `key:"use_netpoll_mode" doc:"Event loop mode of MOSN." ignored:"true" example:"true"`
}

// reader reads one file: it runs the readers of the sections so that each runs after the readers
// whose results it needs. It is not safe for concurrent use.
type reader struct {
	*input
	tls      tlsReader
	clusters *clusterSet
	filters  *filterReader
	routes   *routeReader
	overload overloadReader
	snapshot config.Snapshot // the result
}

func newReader(file string, caps Capabilities, o Options) *reader {
	in := newInput(file, caps, o)
	clusters := newClusterSet(in.report)
	filters := newFilterReader(in, clusters)
	return &reader{
		input: in, tls: tlsReader{in}, clusters: clusters, filters: filters,
		routes:   &routeReader{input: in, clusters: clusters, filters: filters, tables: map[string]*table{}},
		overload: overloadReader{input: in},
	}
}

// readRoot builds the snapshot: first the clusters, then the tables that refer to them, then the
// listeners that refer to tables and clusters.
func (r *reader) readRoot(j *rootJSON) {
	c := clusterReader{input: r.input, tls: r.tls, clusters: r.clusters, addresses: map[string]bool{}}
	c.read(&j.ClusterManager)
	admin, metrics, xds := adminReader{input: r.input}, metricsReader{r.input}, xdsReader{input: r.input}
	admin.read(j)
	r.snapshot.Admin, r.snapshot.Profiler = admin.out, admin.profiler
	r.snapshot.Metrics = metrics.read(&j.Metrics)
	metrics.checkTracing(&j.Tracing)
	r.snapshot.Bootstrap = xds.read(j)
	r.checkEnvoyBootstrap(&j.envoyJSON)
	dubbo := dubboReader{r.input, r.tls}
	r.snapshot.Dubbo = dubbo.read(j.Extends)
	r.recordOtherClusters(j)
	r.overload.read(j.Node.Get("overload_manager", "overloadManager"), j.Overload)
	switch node := j.Node.Get("servers"); {
	case len(j.Servers) == 1:
		r.readServer(&j.Servers[0], r.filters.indexChains(j.StreamFilters))
	case node.Kind() == document.Array:
		r.report.Errorf(node, "found %d servers: a file has exactly one", len(j.Servers))
	case node.Exists():
	case j.hasBootstrap():
		r.readBootstrapServer(j)
	default:
		r.report.Errorf(j.Node, "the key \"servers\" is missing: expected a list with one server, or static_resources or dynamic_resources of an Envoy bootstrap")
	}
	r.snapshot.Server.PIDFile = j.PIDFile
	r.snapshot.Clusters, r.snapshot.Routes, r.snapshot.Overload = r.clusters.list, r.routes.out, r.overload.out
}

// readServer reads a server: its route tables, then its listeners, which refer to the tables.
// chains contains the named chains of stream filters.
func (r *reader) readServer(j *serverJSON, chains map[string]*chainJSON) {
	roller := r.parseLogRotation(j)
	r.snapshot.Server = config.Server{
		Name:            j.Name,
		Log:             config.Log{Path: j.LogPath, Level: j.LogLevel, JSON: j.LogFormat == "json", Rotation: roller},
		GracefulTimeout: j.GracefulTimeout,
		MaxProcs:        j.Processor,
	}
	r.overload.read(j.Node.Get("overload_manager"), j.Overload)
	r.routes.read(j.Routers)
	listeners := listenerReader{input: r.input, tls: r.tls, clusters: r.clusters, filters: r.filters, routes: r.routes}
	listeners.read(j.Listeners, chains, roller)
	r.snapshot.Listeners = listeners.out
	if r.snapshot.Dubbo.Enable {
		r.routes.addDubboTable()
	}
	checker := routeChecker{r.input, r.clusters, r.routes, listeners.proxies}
	checker.check()
	checker.enableOutlierDetection()
	checker.checkKeepAlive()
}

// recordOtherClusters records the clusters of static_resources, and whether a control plane or a
// registry may add clusters.
func (r *reader) recordOtherClusters(j *rootJSON) {
	r.clusters.dynamic = r.snapshot.Dubbo.Enable || r.envoyMember(j.DynamicResources, "cds_config").Exists()
	for c := range j.StaticResources.Get("clusters").All() {
		r.clusters.static[c.Get("name").Text()] = true
	}
}

// parseLogRotation parses "size=100 age=10 keep=10 compress=off" or "time=24".
func (r *reader) parseLogRotation(j *serverJSON) config.Roller {
	var out config.Roller
	reportf := func(format string, args ...any) {
		r.report.Errorf(j.Node.Get("global_log_roller"), format, args...)
	}
	for option := range strings.FieldsSeq(j.LogRoller) {
		name, value, _ := strings.Cut(option, "=")
		if name == "compress" {
			if value != "on" && value != "off" {
				reportf("compress=%s: expected compress=on or compress=off", value)
			}
			out.Compress = value == "on"
			continue
		}
		number, err := strconv.ParseUint(value, 10, 31)
		known := []string{"size", "time", "age", "keep", "compress"}
		switch {
		case !slices.Contains(known, name):
			r.report.Unknown(j.Node.Get("global_log_roller"), "option", name, known)
		case err != nil:
			reportf("%s: expected a whole number, like %s=10", option, name)
		case name == "size":
			out.MaxSizeMB = int(number)
		case name == "time":
			out.Interval = time.Duration(number) * time.Hour
		case name == "age":
			out.MaxDays = int(number)
		case name == "keep":
			out.MaxBackups = int(number)
		}
	}
	return out
}
