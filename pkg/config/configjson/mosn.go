package configjson

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// mosnObject is an object of MOSN's configuration and its keys.
type mosnObject struct {
	path string // as in document.Section
	keys string // separated by spaces
}

// mosnObjects returns the objects of MOSN's configuration (package pkg/config/v2 of MOSN), without
// the settings of stream filters.
func mosnObjects() []mosnObject {
	const (
		listener = "servers[].listeners[]"
		chain    = listener + ".filter_chains[]"
		table    = "servers[].routers[]"
		route    = table + ".virtual_hosts[].routers[]"
		cluster  = "cluster_manager.clusters[]"
		headers  = " request_headers_to_add request_headers_to_remove response_headers_to_add response_headers_to_remove"
	)
	return []mosnObject{
		{"", "servers cluster_manager admin metrics tracing pprof pid dynamic_resources static_resources node extends disable_upgrade close_graceful inherit_old_mosnconfig uds_dir plugin third_part_codec wasm_global_plugins"},
		{"servers[]", "mosn_server_name default_log_path default_log_level global_log_roller graceful_timeout processor use_netpoll_mode listeners routers"},
		{listener, "name type address bind_port network reuseport use_original_dst access_logs listener_filters filter_chains stream_filters inspector connection_idle_timeout default_read_buffer_size"},
		{listener + ".access_logs[]", "log_path log_format"},
		{listener + ".listener_filters[].config (original_dst)", "type fallback_to_local"},
		{listener + ".stream_filters[]", "type config go_plugin_config"},
		{chain, "match tls_context tls_context_set filters"},
		{chain + ".tls_context", "status type server_name ca_cert cert_chain private_key verify_client require_client_cert insecure_skip cipher_suites ecdh_curves min_version max_version alpn ticket fall_back extend_verify callbacks sds_source"},
		{chain + ".filters[].config (proxy)", "name downstream_protocol upstream_protocol fallback_for_unknown_protocol router_config_name router_handler_name validate_clusters extend_config concurrency_num"},
		{chain + ".filters[].config (tcp_proxy)", "stat_prefix cluster idle_timeout max_connect_attempts routes"},
		{table, "router_config_name router_configs virtual_hosts" + headers},
		{table + ".virtual_hosts[]", "name domains routers require_tls per_filter_config" + headers},
		{route, "match route redirect direct_response metadata per_filter_config request_mirror_policies"},
		{route + ".match", "prefix path regex headers variables dsl_expressions"},
		{route + ".match.headers[]", "name value regex"},
		{route + ".match.variables[]", "name value regex model"},
		{route + ".route", "cluster_name cluster_variable cluster_header upstream_protocol weighted_clusters hash_policy metadata_match timeout retry_policy prefix_rewrite regex_rewrite host_rewrite auto_host_rewrite auto_host_rewrite_header" + headers},
		{route + ".route.retry_policy", "retry_on retry_timeout num_retries status_codes"},
		{route + ".route.hash_policy[]", "header cookie source_ip"},
		{route + ".redirect", "response_code path_redirect host_redirect scheme_redirect"},
		{route + ".direct_response", "status body"},
		{"cluster_manager", "tls_context cluster_pool_enable clusters_configs clusters"},
		{cluster, "name type sub_type lb_type max_request_per_conn mark conn_buffer_limit_bytes circuit_breakers health_check spec lb_subset_config original_dst_lb_config cluster_manager_tls tls_context hosts connect_timeout keepalive idle_timeout lbconfig dns_refresh_rate respect_dns_ttl dns_lookup_family dns_resolvers dns_resolver_file dns_resolver_port slow_start cluster_pool_enable"},
		{cluster + ".circuit_breakers[]", "max_connections max_pending_requests max_requests max_retries"},
		{cluster + ".hosts[]", "address hostname weight metadata tls_disable"},
		{cluster + ".health_check", "protocol timeout interval interval_jitter initial_delay_seconds healthy_threshold unhealthy_threshold service_name check_config event_log_path common_callbacks"},
		{cluster + ".keepalive", "interval timeout"},
		{cluster + ".lb_subset_config", "fall_back_policy default_subset subset_selectors"},
		{cluster + ".original_dst_lb_config", "use_header header_name replace_local"},
		{cluster + ".lbconfig", "choice_count active_request_bias client_error_bias server_error_bias"},
		{cluster + ".dns_resolvers", "servers search port ndots timeout attempts"},
		{cluster + ".slow_start", "mode slow_start_duration aggression min_weight_percent"},
		{"admin", "address"},
		{"metrics", "sinks stats_matcher shm_zone shm_size flush_mosn lazy_flush sample ewma"},
		{"metrics.stats_matcher", "reject_all exclusion_labels exclusion_keys"},
		{"tracing", "enable driver tracer config"},
		{"pprof", "debug port_value endpoint"},
	}
}

// MOSNTables returns the tables of docs/mosn.md: each key of MOSN's configuration and what it does
// in Weft, from the struct tags.
func MOSNTables() string {
	sections := document.Sections("", rootJSON{}, variants(Capabilities{}))
	var b strings.Builder
	for _, o := range mosnObjects() {
		i := slices.IndexFunc(sections, func(s document.Section) bool { return s.Path == o.path })
		if i < 0 {
			panic("configjson: MOSN's object " + o.path + " is not in the schema")
		}
		title, page := sectionTitle(o.path), pageOfSection(o.path).name
		fmt.Fprintf(&b, "\n### %s\n\n[Reference](reference/%s#%s)\n\n| key in MOSN | in Weft |\n|---|---|\n", title, page, anchor(title))
		for name := range strings.FieldsSeq(o.keys) {
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, effectOfMOSNKey(&sections[i], name))
		}
	}
	return b.String()
}

// effectOfMOSNKey says what a key of MOSN does in Weft.
func effectOfMOSNKey(s *document.Section, name string) string {
	i := slices.IndexFunc(s.Keys, func(k document.Key) bool { return k.Name == name || slices.Contains(k.Aliases, name) })
	if i < 0 {
		return "**Error:** unknown key; remove it."
	}
	k := &s.Keys[i]
	doc := strings.ReplaceAll(linkPages(k.Doc), "](../", "](")
	doc = strings.ReplaceAll(doc, "|", "\\|")
	switch {
	case k.Unsupported != "":
		return "**Error** unless the value disables it: not supported yet. " + doc
	case k.IgnoredReason == "true":
		return "**Warning:** no effect. " + doc
	case k.IgnoredReason != "":
		return "**Warning:** no effect, because " + k.IgnoredReason + ". " + doc
	}
	return doc
}
