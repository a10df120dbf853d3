package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

// envoyJSON contains the other top-level keys of Envoy's bootstrap. A key that can be ignored
// without harm is accepted with a warning. A key is rejected if ignoring it would send requests
// elsewhere or let other requests pass.
type envoyJSON struct {
	StatsFlush      document.Node   `key:"stats_flush_interval,statsFlushInterval" doc:"Envoy bootstrap: how often metrics are written to sinks." accept:"number|string" noeffect:"metrics are read" example:"\"5s\""`
	StatsFlushAdmin bool            `key:"stats_flush_on_admin,statsFlushOnAdmin" doc:"Envoy bootstrap: metrics are written to sinks when they are asked for." noeffect:"metrics are read" example:"true"`
	StatsSinks      []document.Node `key:"stats_sinks,statsSinks" doc:"Envoy bootstrap: where metrics are written to." noeffect:"metrics are read: of the admin port, or of metrics.sinks" example:"[{\"name\": \"envoy.stat_sinks.statsd\"}]"`
	StatsConfig     document.Node   `key:"stats_config,statsConfig" doc:"Envoy bootstrap: tags of metrics, and which there are." accept:"object" noeffect:"metrics have labels of their own; metrics.stats_matcher leaves some out" example:"{\"use_all_default_tags\": false}"`
	StatsDeferred   document.Node   `key:"deferred_stat_options,deferredStatOptions" doc:"Envoy bootstrap: metrics are made when they are used." accept:"object" noeffect:"true" example:"{\"enable_deferred_creation_stats\": true}"`
	StatsDispatcher bool            `key:"enable_dispatcher_stats,enableDispatcherStats" doc:"Envoy bootstrap: metrics of event loops." noeffect:"there are no event loops" example:"true"`
	StatsVersion    document.Node   `key:"stats_server_version_override,statsServerVersionOverride" doc:"Envoy bootstrap: the version that metrics tell." accept:"number|string" noeffect:"true" example:"7"`
	StatsEviction   document.Node   `key:"stats_eviction_interval,statsEvictionInterval" doc:"Envoy bootstrap: how often metrics that nothing was counted in are dropped." accept:"number|string" noeffect:"true" example:"\"60s\""`
	Affinity        bool            `key:"enable_worker_cpu_affinity,enableWorkerCpuAffinity" doc:"Envoy bootstrap: each event loop stays on a processor of its own." noeffect:"there are no event loops" example:"true"`
	FlagsPath       string          `key:"flags_path,flagsPath" doc:"Envoy bootstrap: directory of start-up flags." noeffect:"true" example:"\"/etc/envoy/flags\""`
	Watchdog        document.Node   `key:"watchdog" doc:"Envoy bootstrap: what becomes of threads that are stuck." accept:"object" noeffect:"there are no event loops that could be stuck" example:"{\"megamiss_timeout\": \"2s\"}"`
	Watchdogs       document.Node   `key:"watchdogs" doc:"Envoy bootstrap: watchdog, by kind of thread." accept:"object" noeffect:"there are no event loops that could be stuck" example:"{\"worker_watchdog\": {\"megamiss_timeout\": \"2s\"}}"`
	FatalActions    []document.Node `key:"fatal_actions,fatalActions" doc:"Envoy bootstrap: what is done in a crash." noeffect:"true" example:"[{\"config\": {\"name\": \"a\"}}]"`
	AppLog          document.Node   `key:"application_log_config,applicationLogConfig" doc:"Envoy bootstrap: the form of the operator's log." accept:"object" noeffect:"the operator's log has its own form" example:"{\"log_format\": {\"text_format\": \"%v\"}}"`
	HDS             document.Node   `key:"hds_config,hdsConfig" doc:"Envoy bootstrap: who has hosts checked by this process, and is told." accept:"object" noeffect:"health checks are those of clusters" example:"{\"api_type\": \"GRPC\"}"`
	Certificates    document.Node   `key:"certificate_provider_instances,certificateProviderInstances" doc:"Envoy bootstrap: providers of certificates, by name." accept:"object" noeffect:"what refers to them is refused" example:"{\"default\": {\"name\": \"p\"}}"`
	InlineHeaders   []document.Node `key:"inline_headers,inlineHeaders" doc:"Envoy bootstrap: fields that are looked up fast." noeffect:"true" example:"[{\"inline_header_name\": \"x-a\"}]"`
	PerfTracing     string          `key:"perf_tracing_file_path,perfTracingFilePath" doc:"Envoy bootstrap: file of Perfetto's." noeffect:"true" example:"\"/tmp/envoy.pftrace\""`
	Delegate        document.Node   `key:"xds_delegate_extension,xdsDelegateExtension" doc:"Envoy bootstrap: what keeps resources of a control plane." accept:"object" noeffect:"xds_cache does that" example:"{\"name\": \"d\"}"`
	Tracker         document.Node   `key:"xds_config_tracker_extension,xdsConfigTrackerExtension" doc:"Envoy bootstrap: what watches resources of a control plane." accept:"object" noeffect:"/config_dump and xds_status tell" example:"{\"name\": \"t\"}"`
	AsyncClients    document.Node   `key:"grpc_async_client_manager_config,grpcAsyncClientManagerConfig" doc:"Envoy bootstrap: how long connections of gRPC stay unused." accept:"object" noeffect:"true" example:"{\"max_cached_entry_idle_duration\": \"50s\"}"`
	Allocator       document.Node   `key:"memory_allocator_manager,memoryAllocatorManager" doc:"Envoy bootstrap: when memory is given back." accept:"object" noeffect:"Go's runtime does that" example:"{\"bytes_to_release\": 1048576}"`
	Extensions      []document.Node `key:"bootstrap_extensions,bootstrapExtensions" doc:"Envoy bootstrap: services of the process, as internal listeners and WebAssembly." noeffect:"what refers to them is refused" example:"[{\"name\": \"envoy.bootstrap.internal_listener\"}]"`

	// Of each of these keys only the default value is accepted: see readEnvoy.
	DNS             document.Node `key:"typed_dns_resolver_config,typedDnsResolverConfig" doc:"Envoy bootstrap: how names are resolved; with name servers it is refused: clusters have their own." accept:"object" noeffect:"the system says how" example:"{\"name\": \"envoy.network.dns_resolver.cares\"}"`
	DNSOlder        document.Node `key:"dns_resolution_config,dnsResolutionConfig" doc:"Envoy bootstrap: older form of typed_dns_resolver_config." accept:"object" noeffect:"the system says how" example:"{\"dns_resolver_options\": {}}"`
	DNSTCP          bool          `key:"use_tcp_for_dns_lookups,useTcpForDnsLookups" doc:"Envoy bootstrap: names are resolved over TCP." noeffect:"datagrams are tried first" example:"true"`
	RegexEngine     document.Node `key:"default_regex_engine,defaultRegexEngine" doc:"Envoy bootstrap: what expressions are matched by: envoy.regex_engines.google_re2." accept:"object" noeffect:"there is this one" example:"{\"name\": \"envoy.regex_engines.google_re2\"}"`
	ListenerManager document.Node `key:"listener_manager,listenerManager" doc:"Envoy bootstrap: what runs listeners: envoy.listener_manager_impl.default." accept:"object" noeffect:"there is this one" example:"{\"name\": \"envoy.listener_manager_impl.default\"}"`
	SocketFactory   document.Node `key:"default_socket_interface,defaultSocketInterface" doc:"Envoy bootstrap: what makes sockets: envoy.extensions.network.socket_interface.default_socket_interface." accept:"string" noeffect:"there is this one" example:"\"envoy.extensions.network.socket_interface.default_socket_interface\""`
	HeaderPrefix    document.Node `key:"header_prefix,headerPrefix" doc:"Envoy bootstrap: what names of Envoy's own fields begin with: x-envoy." accept:"string" noeffect:"there is this one" example:"\"x-envoy\""`

	NodeParams    []string        `key:"node_context_params,nodeContextParams" doc:"Envoy bootstrap: fields of node that names of resources have." unbuilt:"node_context_params" example:"[\"id\"]"`
	ConfigSources []document.Node `key:"config_sources,configSources" doc:"Envoy bootstrap: control planes, by authority." unbuilt:"config_sources" example:"[{\"authorities\": [{\"name\": \"a\"}]}]"`
	ConfigSource  document.Node   `key:"default_config_source,defaultConfigSource" doc:"Envoy bootstrap: the control plane of resources without an authority." accept:"object" unbuilt:"default_config_source" example:"{\"initial_fetch_timeout\": \"15s\"}"`
}
