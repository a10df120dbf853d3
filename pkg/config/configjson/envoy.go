package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// envoyJSON contains the top-level keys of Envoy's bootstrap that Weft does not support. Weft
// rejects a key if ignoring it would route requests differently or let more requests pass. It
// accepts any other key with a warning.
type envoyJSON struct {
	StatsFlush      document.Node   `key:"stats_flush_interval,statsFlushInterval" doc:"Envoy bootstrap: interval of writing metrics to sinks." accept:"number|string" ignored:"Weft's metrics are scraped, not pushed" example:"\"5s\""`
	StatsFlushAdmin bool            `key:"stats_flush_on_admin,statsFlushOnAdmin" doc:"Envoy bootstrap: write metrics to sinks when the admin port is queried." ignored:"Weft's metrics are scraped, not pushed" example:"true"`
	StatsSinks      []document.Node `key:"stats_sinks,statsSinks" doc:"Envoy bootstrap: sinks that metrics are written to." ignored:"Weft's metrics are scraped, not pushed: on the admin port, or the port of metrics.sinks" example:"[{\"name\": \"envoy.stat_sinks.statsd\"}]"`
	StatsConfig     document.Node   `key:"stats_config,statsConfig" doc:"Envoy bootstrap: tags of metrics, and which metrics exist." accept:"object" ignored:"Weft's metrics have fixed labels; metrics.stats_matcher excludes metrics" example:"{\"use_all_default_tags\": false}"`
	StatsDeferred   document.Node   `key:"deferred_stat_options,deferredStatOptions" doc:"Envoy bootstrap: create metrics on first use." accept:"object" ignored:"true" example:"{\"enable_deferred_creation_stats\": true}"`
	StatsDispatcher bool            `key:"enable_dispatcher_stats,enableDispatcherStats" doc:"Envoy bootstrap: metrics of event loops." ignored:"Weft has no event loops" example:"true"`
	StatsVersion    document.Node   `key:"stats_server_version_override,statsServerVersionOverride" doc:"Envoy bootstrap: version that metrics report." accept:"number|string" ignored:"true" example:"7"`
	StatsEviction   document.Node   `key:"stats_eviction_interval,statsEvictionInterval" doc:"Envoy bootstrap: interval of removing unused metrics." accept:"number|string" ignored:"true" example:"\"60s\""`
	Affinity        bool            `key:"enable_worker_cpu_affinity,enableWorkerCpuAffinity" doc:"Envoy bootstrap: pin each event loop to a CPU." ignored:"Weft has no event loops" example:"true"`
	FlagsPath       string          `key:"flags_path,flagsPath" doc:"Envoy bootstrap: directory of start-up flags." ignored:"true" example:"\"/etc/envoy/flags\""`
	Watchdog        document.Node   `key:"watchdog" doc:"Envoy bootstrap: handling of stuck threads." accept:"object" ignored:"Weft has no event loops that could be stuck" example:"{\"megamiss_timeout\": \"2s\"}"`
	Watchdogs       document.Node   `key:"watchdogs" doc:"Envoy bootstrap: watchdogs by type of thread." accept:"object" ignored:"Weft has no event loops that could be stuck" example:"{\"worker_watchdog\": {\"megamiss_timeout\": \"2s\"}}"`
	FatalActions    []document.Node `key:"fatal_actions,fatalActions" doc:"Envoy bootstrap: actions on a crash." ignored:"true" example:"[{\"config\": {\"name\": \"a\"}}]"`
	AppLog          document.Node   `key:"application_log_config,applicationLogConfig" doc:"Envoy bootstrap: format of the application log." accept:"object" ignored:"Weft's log has its own format" example:"{\"log_format\": {\"text_format\": \"%v\"}}"`
	HDS             document.Node   `key:"hds_config,hdsConfig" doc:"Envoy bootstrap: health discovery service, which makes this process check hosts and report the results." accept:"object" ignored:"health checks are configured in clusters" example:"{\"api_type\": \"GRPC\"}"`
	Certificates    document.Node   `key:"certificate_provider_instances,certificateProviderInstances" doc:"Envoy bootstrap: named certificate providers." accept:"object" ignored:"Weft rejects resources that refer to them" example:"{\"default\": {\"name\": \"p\"}}"`
	InlineHeaders   []document.Node `key:"inline_headers,inlineHeaders" doc:"Envoy bootstrap: headers with fast lookup." ignored:"true" example:"[{\"inline_header_name\": \"x-a\"}]"`
	PerfTracing     string          `key:"perf_tracing_file_path,perfTracingFilePath" doc:"Envoy bootstrap: Perfetto trace file." ignored:"true" example:"\"/tmp/envoy.pftrace\""`
	Delegate        document.Node   `key:"xds_delegate_extension,xdsDelegateExtension" doc:"Envoy bootstrap: extension that stores xDS resources." accept:"object" ignored:"use xds_cache" example:"{\"name\": \"d\"}"`
	Tracker         document.Node   `key:"xds_config_tracker_extension,xdsConfigTrackerExtension" doc:"Envoy bootstrap: extension that tracks xDS resources." accept:"object" ignored:"use /config_dump and xds_status" example:"{\"name\": \"t\"}"`
	AsyncClients    document.Node   `key:"grpc_async_client_manager_config,grpcAsyncClientManagerConfig" doc:"Envoy bootstrap: maximum idle time of gRPC connections." accept:"object" ignored:"true" example:"{\"max_cached_entry_idle_duration\": \"50s\"}"`
	Allocator       document.Node   `key:"memory_allocator_manager,memoryAllocatorManager" doc:"Envoy bootstrap: when memory is returned to the system." accept:"object" ignored:"the Go runtime does that" example:"{\"bytes_to_release\": 1048576}"`
	Extensions      []document.Node `key:"bootstrap_extensions,bootstrapExtensions" doc:"Envoy bootstrap: process-wide extensions, such as internal listeners and WebAssembly." ignored:"Weft rejects resources that refer to them" example:"[{\"name\": \"envoy.bootstrap.internal_listener\"}]"`

	// checkEnvoyBootstrap rejects DNS servers in these keys. Of the keys after
	// use_tcp_for_dns_lookups it accepts only the default values.
	DNS                 document.Node `key:"typed_dns_resolver_config,typedDnsResolverConfig" doc:"Envoy bootstrap: DNS resolver of all clusters. Weft rejects it if it contains DNS servers; set them on each cluster instead." accept:"object" ignored:"the system's resolver is used" example:"{\"name\": \"envoy.network.dns_resolver.cares\"}"`
	DNSResolutionConfig document.Node `key:"dns_resolution_config,dnsResolutionConfig" doc:"Envoy bootstrap: older form of typed_dns_resolver_config." accept:"object" ignored:"the system's resolver is used" example:"{\"dns_resolver_options\": {}}"`
	DNSTCP              bool          `key:"use_tcp_for_dns_lookups,useTcpForDnsLookups" doc:"Envoy bootstrap: resolve names over TCP." ignored:"Weft tries UDP first" example:"true"`
	RegexEngine         document.Node `key:"default_regex_engine,defaultRegexEngine" doc:"Envoy bootstrap: regular expression engine: envoy.regex_engines.google_re2." accept:"object" ignored:"there is no other" example:"{\"name\": \"envoy.regex_engines.google_re2\"}"`
	ListenerManager     document.Node `key:"listener_manager,listenerManager" doc:"Envoy bootstrap: listener manager: envoy.listener_manager_impl.default." accept:"object" ignored:"there is no other" example:"{\"name\": \"envoy.listener_manager_impl.default\"}"`
	SocketFactory       document.Node `key:"default_socket_interface,defaultSocketInterface" doc:"Envoy bootstrap: socket interface: envoy.extensions.network.socket_interface.default_socket_interface." accept:"string" ignored:"there is no other" example:"\"envoy.extensions.network.socket_interface.default_socket_interface\""`
	HeaderPrefix        document.Node `key:"header_prefix,headerPrefix" doc:"Envoy bootstrap: prefix of Envoy's own headers: x-envoy." accept:"string" ignored:"there is no other" example:"\"x-envoy\""`

	NodeParams    []string        `key:"node_context_params,nodeContextParams" doc:"Envoy bootstrap: fields of node that are part of resource names." unsupported:"node_context_params" example:"[\"id\"]"`
	ConfigSources []document.Node `key:"config_sources,configSources" doc:"Envoy bootstrap: control planes by authority." unsupported:"config_sources" example:"[{\"authorities\": [{\"name\": \"a\"}]}]"`
	ConfigSource  document.Node   `key:"default_config_source,defaultConfigSource" doc:"Envoy bootstrap: control plane of resources without an authority." accept:"object" unsupported:"default_config_source" example:"{\"initial_fetch_timeout\": \"15s\"}"`
}

// checkEnvoyBootstrap reports DNS servers for all clusters, and extensions that Weft does not have.
func (r *reader) checkEnvoyBootstrap(j *envoyJSON) {
	for _, setting := range []struct {
		value    document.Node
		expected string
	}{
		{j.SocketFactory, "envoy.extensions.network.socket_interface.default_socket_interface"},
		{j.HeaderPrefix, "x-envoy"},
	} {
		if text := setting.value.Text(); text != "" && text != setting.expected {
			r.report.Errorf(setting.value, "found %q, expected %q: no other value is supported", text, setting.expected)
		}
	}
	r.checkExtension(j.RegexEngine, "envoy.regex_engines.google_re2", "envoy.extensions.regex_engines.v3.GoogleRE2")
	r.checkExtension(j.ListenerManager, "envoy.listener_manager_impl.default", "envoy.config.listener.v3.ListenerManager")
	for _, servers := range []document.Node{r.envoyMember(j.DNS, "typed_config").Get("resolvers"), j.DNSResolutionConfig.Get("resolvers")} {
		if !servers.IsDisabled() {
			r.report.Unsupported(servers, "a DNS server for all clusters")
		}
	}
}

// checkExtension reports an extension other than the supported one. The type of typed_config
// identifies an extension; without typed_config its name does.
func (r *reader) checkExtension(n document.Node, name, message string) {
	node, expected := n.Get("name"), name
	if url := r.envoyMember(n, "typed_config").Get("@type"); url.Text() != "" {
		node, expected = url, message
	}
	text := node.Text()
	if text != "" && text[strings.LastIndexByte(text, '/')+1:] != expected {
		r.report.Errorf(node, "found %q, expected %q: no other extension is supported", text, expected)
	}
}

// envoyMember returns a member of an object of Envoy's bootstrap under either spelling of its key.
func (in *input) envoyMember(n document.Node, key string) document.Node {
	first, second := n.Get(key), n.Get(lowerCamel(key))
	if first.Exists() && second.Exists() && first.Key() != second.Key() {
		in.report.Errorf(second, "%q and %q are two spellings of one key: use one of them", second.Key(), first.Key())
	}
	return first.Or(second)
}

// lowerCamel returns the JSON name of a protobuf field: flagsPath for flags_path.
func lowerCamel(key string) string {
	words := strings.Split(key, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// hasBootstrap reports whether the file has static_resources or dynamic_resources, as an Envoy
// bootstrap.
func (j *rootJSON) hasBootstrap() bool {
	return hasMembers(j.StaticResources) || hasMembers(j.DynamicResources)
}

// readBootstrapServer replaces readServer for an Envoy bootstrap: the server has default settings
// and the name of the node.
func (r *reader) readBootstrapServer(j *rootJSON) {
	var s serverJSON
	r.decoder.Decode(document.Node{}, &s)
	s.Name = j.EnvoyNode.Get("id").Text()
	if chain := slices.IndexFunc(j.StreamFilters, func(c chainJSON) bool { return !c.Node.IsDisabled() }); chain >= 0 {
		r.report.Warnf(j.StreamFilters[chain].Node, "stream_filters has no effect: it applies to listeners of a server, and the file has none")
	}
	r.readServer(&s, nil)
}
