package cases

import (
	"encoding/base64"
	"strings"
)

// httpFilter is an HTTP filter with a configuration.
type httpFilter struct {
	name    string
	message string // below envoy.extensions.filters.http
	config  string
	// asks means that the filter sends requests of its own to an origin, without X-Case.
	asks bool
}

// httpFilters returns one configuration of each HTTP filter that can be configured without files.
func httpFilters() []httpFilter {
	return append(configuredFilters(), []httpFilter{
		{name: "tap", message: "tap.v3.Tap", config: "common_config: {admin_config: {config_id: x}}"},
		{name: "api_key_auth", message: "api_key_auth.v3.ApiKeyAuth", config: `
credentials: [{key: k, client: c}]
key_sources: [{header: x-key}]`},
		{name: "oauth2", message: "oauth2.v3.OAuth2"},
		{name: "geoip", message: "geoip.v3.Geoip"},
		{name: "rate_limit_quota", message: "rate_limit_quota.v3.RateLimitQuotaFilterConfig"},
		{name: "wasm", message: "wasm.v3.Wasm"},
		{name: "admission_control", message: "admission_control.v3.AdmissionControl", config: "success_criteria: {http_criteria: {}}"},
		{name: "cache", message: "cache.v3.CacheConfig"},
		{name: "composite", message: "composite.v3.Composite"},
		{name: "credential_injector", message: "credential_injector.v3.CredentialInjector"},
		{name: "file_system_buffer", message: "file_system_buffer.v3.FileSystemBufferFilterConfig"},
		{name: "gcp_authn", message: "gcp_authn.v3.GcpAuthnFilterConfig"},
		{name: "golang", message: "golang.v3alpha.Config"},
		{name: "grpc_json_transcoder", message: "grpc_json_transcoder.v3.GrpcJsonTranscoder"},
		{name: "json_to_metadata", message: "json_to_metadata.v3.JsonToMetadata"},
		{name: "alternate_protocols_cache", message: "alternate_protocols_cache.v3.FilterConfig"},
		{name: "upstream_codec", message: "upstream_codec.v3.UpstreamCodec"},
		{name: "grpc_field_extraction", message: "grpc_field_extraction.v3.GrpcFieldExtractionConfig"},
		{name: "mcp", message: "mcp.v3.Mcp"},
		{name: "transform", message: "transform.v3.TransformConfig"},
		{name: "thrift_to_metadata", message: "thrift_to_metadata.v3.ThriftToMetadata"},
		{name: "connect_grpc_bridge", message: "connect_grpc_bridge.v3.FilterConfig"},
	}...)
}

// configuredFilters returns the filters of httpFilters with longer configurations.
func configuredFilters() []httpFilter {
	return []httpFilter{
		{name: "buffer", message: "buffer.v3.Buffer", config: "max_request_bytes: 1000"},
		{name: "compressor", message: "compressor.v3.Compressor", config: `
compressor_library:
  name: g
  typed_config: {"@type": type.googleapis.com/envoy.extensions.compression.gzip.compressor.v3.Gzip}`},
		{name: "decompressor", message: "decompressor.v3.Decompressor", config: `
decompressor_library:
  name: g
  typed_config: {"@type": type.googleapis.com/envoy.extensions.compression.gzip.decompressor.v3.Gzip}`},
		{name: "lua", message: "lua.v3.Lua", config: `
default_source_code:
  inline_string: function envoy_on_request(h) h:headers():add("x-lua","1") end`},
		{name: "grpc_web", message: "grpc_web.v3.GrpcWeb"},
		{name: "grpc_stats", message: "grpc_stats.v3.FilterConfig", config: "emit_filter_state: true"},
		{name: "grpc_http1_bridge", message: "grpc_http1_bridge.v3.Config"},
		{name: "health_check", message: "health_check.v3.HealthCheck", config: `
pass_through_mode: false
headers: [{name: ':path', string_match: {exact: /hc}}]`},
		{name: "on_demand", message: "on_demand.v3.OnDemand"},
		{name: "original_src", message: "original_src.v3.OriginalSrc"},
		{name: "bandwidth_limit", message: "bandwidth_limit.v3.BandwidthLimit", config: `
stat_prefix: b
enable_mode: RESPONSE
limit_kbps: 100`},
		{name: "stateful_session", message: "stateful_session.v3.StatefulSession", config: `
session_state:
  name: c
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState
    cookie: {name: s, path: /, ttl: 60s}`},
		{name: "custom_response", message: "custom_response.v3.CustomResponse"},
		{name: "set_metadata", message: "set_metadata.v3.Config"},
		{name: "set_filter_state", message: "set_filter_state.v3.Config", config: "on_request_headers: []"},
		{name: "adaptive_concurrency", message: "adaptive_concurrency.v3.AdaptiveConcurrency", config: `
gradient_controller_config:
  sample_aggregate_percentile: {value: 50}
  concurrency_limit_params: {concurrency_update_interval: 0.1s}
  min_rtt_calc_params: {interval: 60s, request_count: 50}`},
		{name: "basic_auth", message: "basic_auth.v3.BasicAuth", config: `
users: {inline_string: 'u:{SHA}UWuXg/ylF+7L0dBk2i0WUxCxl1k='}`},
		{name: "cdn_loop", message: "cdn_loop.v3.CdnLoopConfig", config: "cdn_id: x"},
		{name: "jwt_authn", message: "jwt_authn.v3.JwtAuthentication", config: `
providers:
  p:
    issuer: i
    local_jwks: {inline_string: '{"keys":[{"kty":"oct","k":"AAAA","alg":"HS256"}]}'}
rules: [{match: {prefix: /}, requires: {provider_name: p}}]`},
		{name: "dynamic_forward_proxy", message: "dynamic_forward_proxy.v3.FilterConfig", config: "dns_cache_config: {name: d, dns_lookup_family: V4_ONLY}"},
		{name: "ext_authz", asks: true, message: "ext_authz.v3.ExtAuthz", config: `
http_service:
  server_uri: {uri: 'http://x', cluster: o2, timeout: 0.3s}
  authorization_request: {allowed_headers: {patterns: [{prefix: x-o}]}}`},
		{name: "ratelimit", asks: true, message: "ratelimit.v3.RateLimit", config: `
domain: d
rate_limit_service: {grpc_service: {envoy_grpc: {cluster_name: h1}}, transport_api_version: V3}`},
		{name: "ext_proc", asks: true, message: "ext_proc.v3.ExternalProcessor", config: "grpc_service: {envoy_grpc: {cluster_name: h1}}"},
	}
}

// everyFilter adds a group for each HTTP filter.
func (s *set) everyFilter() {
	for _, f := range httpFilters() {
		g := s.add(Group{Feature: "filter." + f.name, Filters: filter(f.name, f.message, f.config)})
		g.filterCases(f.name)
		for _, c := range g.Cases {
			c.Anonymous = f.asks
		}
	}
}

// filterCases adds requests of which at least one concerns each filter.
func (g *Group) filterCases(name string) {
	g.get("/", label(name))
	g.get("/", method("POST"), body(strings.Repeat("x", 500)), label(name+" POST 500"))
	g.get("/", method("POST"), body(strings.Repeat("x", 5000)), label(name+" POST 5000"), field("x-api", "1"))
	for _, v := range []struct{ label, accept, length, response string }{
		{"gzip", "gzip", "5000", ""},
		{"gzip small", "gzip", "10", ""},
		{"gzip q=0", "br;q=1, gzip;q=0", "5000", ""},
		{"gzip png", "gzip", "5000", "Content-Type: image/png"},
		{"gzip etag", "gzip", "5000", `ETag: "x"`},
		{"no-transform", "gzip", "5000", "Cache-Control: no-transform"},
	} {
		options := []option{field("Accept-Encoding", v.accept), field("x-o-len", v.length), bodyLength(), labelf("%s %s", name, v.label)}
		if v.response != "" {
			options = append(options, field("x-o-h", v.response))
		}
		g.get("/", options...)
	}
	g.get("/hc", label(name+" /hc"))
	g.get("/", field("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:p"))), label(name+" basic"))
	g.get("/", field("x-o-status", "403"), label(name+" 403"))
	g.get("/", field("Authorization", "Bearer x.y.z"), label(name+" bearer"))
	g.h2(field("content-type", "application/grpc-web"), method("POST"), body("\x00\x00\x00\x00\x00"), label(name+" grpc-web"))
}
