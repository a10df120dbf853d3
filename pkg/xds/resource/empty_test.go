package resource

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// TestEmptyFilterMessagesAreNotAbsent verifies that an empty message that restricts requests is
// rejected. It must not be parsed as if it were absent.
func TestEmptyFilterMessagesAreNotAbsent(t *testing.T) {
	policy := func(permission, principal, rest string) string {
		return `{"@type": "rbac.v3.RBAC", "rules": {"policies": {"p": {"permissions": [` + permission + `], "principals": [` + principal + `]` + rest + `}}}}`
	}
	permission := func(text string) string { return policy(text, `{"any": true}`, "") }
	principal := func(text string) string { return policy(`{"any": true}`, text, "") }
	value := func(text string) string {
		return permission(`{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": ` + text + `}}`)
	}
	jwt := func(rest string) string {
		return `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"remote_jwks": {"http_uri": {"uri": "https://a/jwks", "cluster": "c", "timeout": "5s"}}}}` + rest + `}`
	}
	limit := func(rest string) string {
		return `{"@type": "local_ratelimit.v3.LocalRateLimit", "stat_prefix": "s"` + rest + `}`
	}
	authz := func(rest string) string {
		return `{"@type": "ext_authz.v3.ExtAuthz", "grpc_service": {"envoy_grpc": {"cluster_name": "c"}, "timeout": "1s"}` + rest + `}`
	}
	const bucket = `, "token_bucket": {"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "1s"}`
	for _, text := range []string{
		policy(`{"any": true}`, `{"any": true}`, `, "condition": {}`),
		policy(`{"any": true}`, `{"any": true}`, `, "checked_condition": {}`),
		policy("", `{"any": true}`, ""),
		policy(`{"any": true}`, "", ""),
		permission(`{}`),
		permission(`{"any": false}`),
		permission(`{"and_rules": {}}`),
		permission(`{"or_rules": {"rules": [{}]}}`),
		permission(`{"not_rule": {}}`),
		permission(`{"header": {}}`),
		permission(`{"header": {"name": "x", "string_match": {}}}`),
		permission(`{"header": {"name": "x", "safe_regex_match": {}}}`),
		permission(`{"header": {"name": "x", "range_match": {}}}`),
		permission(`{"url_path": {}}`),
		permission(`{"url_path": {"path": {}}}`),
		permission(`{"destination_ip": {}}`),
		permission(`{"destination_port_range": {}}`),
		permission(`{"requested_server_name": {}}`),
		permission(`{"matcher": {}}`),
		permission(`{"uri_template": {}}`),
		permission(`{"metadata": {}}`),
		permission(`{"sourced_metadata": {}}`),
		value(`{}`),
		value(`{"null_match": {}}`),
		value(`{"double_match": {}}`),
		value(`{"string_match": {}}`),
		value(`{"list_match": {}}`),
		value(`{"list_match": {"one_of": {}}}`),
		value(`{"list_match": {"one_of": {"string_match": {}}}}`),
		value(`{"or_match": {}}`),
		value(`{"or_match": {"value_matchers": [{}]}}`),
		principal(`{}`),
		principal(`{"and_ids": {}}`),
		principal(`{"or_ids": {"ids": [{}]}}`),
		principal(`{"not_id": {}}`),
		principal(`{"authenticated": {"principal_name": {}}}`),
		principal(`{"source_ip": {}}`),
		principal(`{"direct_remote_ip": {}}`),
		principal(`{"remote_ip": {}}`),
		principal(`{"header": {"name": "x", "string_match": {}}}`),
		principal(`{"url_path": {}}`),
		principal(`{"metadata": {}}`),
		principal(`{"filter_state": {}}`),
		principal(`{"sourced_metadata": {}}`),
		`{"@type": "rbac.v3.RBAC", "matcher": {}}`,
		`{"@type": "rbac.v3.RBAC", "shadow_matcher": {}}`,
		jwt(`, "rules": [{"match": {}}]`),
		jwt(`, "rules": [{"match": {"connect_matcher": {}}}]`),
		jwt(`, "rules": [{"match": {"safe_regex": {}}}]`),
		jwt(`, "rules": [{"match": {"prefix": "/", "headers": [{}]}}]`),
		jwt(`, "rules": [{"match": {"prefix": "/", "grpc": {}}}]`),
		jwt(`, "rules": [{"match": {"prefix": "/", "tls_context": {}}}]`),
		jwt(`, "rules": [{"match": {"prefix": "/"}, "requires": {}}]`),
		jwt(`, "rules": [{"match": {"prefix": "/"}, "requires": {"provider_and_audiences": {}}}]`),
		jwt(`, "rules": [{"match": {"prefix": "/"}, "requires": {"requires_any": {}}}]`),
		jwt(`, "rules": [{"match": {"prefix": "/"}, "requires": {"requires_all": {"requirements": [{}]}}}]`),
		jwt(`, "filter_state_rules": {}`),
		`{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {}}}`,
		`{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"local_jwks": {}}}}`,
		`{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"remote_jwks": {}}}}`,
		`{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"local_jwks": {"filename": "f"}, "subjects": {}}}}`,
		limit(`, "token_bucket": {}`),
		limit(bucket + `, "filter_enabled": {}`),
		limit(bucket + `, "filter_enforced": {}`),
		limit(bucket + `, "local_cluster_rate_limit": {}`),
		limit(bucket + `, "descriptors": [{}]`),
		limit(bucket + `, "rate_limits": [{"actions": [{"generic_key": {"descriptor_value": "a"}}], "limit": {}}], "descriptors": [{"entries": [{"key": "generic_key", "value": "a"}], "token_bucket": {"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "1s"}}]`),
		limit(bucket + `, "rate_limits": [{"actions": [{}]}]`),
		limit(bucket + `, "rate_limits": [{"actions": [{"destination_cluster": {}}]}]`),
		limit(bucket + `, "rate_limits": [{"actions": [{"header_value_match": {"descriptor_value": "a", "headers": [{"name": "x", "string_match": {}}]}}]}]`),
		authz(`, "filter_enabled": {}`),
		authz(`, "filter_enabled_metadata": {}`),
		authz(`, "with_request_body": {}`),
		authz(`, "allowed_headers": {"patterns": [{}]}`),
		authz(`, "disallowed_headers": {"patterns": [{}]}`),
		`{"@type": "ext_authz.v3.ExtAuthz"}`,
		`{"@type": "ext_authz.v3.ExtAuthz", "grpc_service": {}}`,
		`{"@type": "ext_authz.v3.ExtAuthz", "http_service": {}}`,
		`{"@type": "csrf.v3.CsrfPolicy", "filter_enabled": {"default_value": {"numerator": 100}}, "additional_origins": [{}]}`,
		`{"@type": "csrf.v3.CsrfPolicy", "filter_enabled": {}}`,
		`{"@type": "cors.v3.CorsPolicy", "allow_origin_string_match": [{}]}`,
	} {
		if _, err := readFilter(t, text); err == nil {
			t.Errorf("%s: accepted, want a rejection", text)
		}
	}
}

// TestEmptyUnsupportedFilterMessagesAreRejected verifies that filters reject an empty object as the
// value of an unsupported key.
func TestEmptyUnsupportedFilterMessagesAreRejected(t *testing.T) {
	count := 0
	for i := range filterMappings {
		factory := allCapabilities().streamFilterFactory(filterMappings[i].name)
		for _, u := range unsupportedObjects(reflect.TypeOf(factory.Config()).Elem(), "%s", nil) {
			count++
			r := &report{capabilities: allCapabilities()}
			var settings any
			if err := json.Unmarshal([]byte(u.text), &settings); err != nil {
				t.Fatal(err)
			}
			fieldReader{report: r}.decodeSettings(factory.Config(), goValue(settings))
			if err := errorText(r.rejection()); !strings.Contains(err, u.key+" is not supported") {
				t.Errorf("%s: error for %s = %q, want one about %s", factory.Name, u.text, err, u.key)
			}
		}
	}
	if count < 15 {
		t.Errorf("tested %d keys, want at least 15", count)
	}
}

// unsupportedObject is a JSON document that contains only an empty object and the objects around
// it.
type unsupportedObject struct{ key, text string }

// unsupportedObjects returns the unsupported objects of a struct type. template is the format of
// the surrounding text; outer contains the struct types that contain typ.
func unsupportedObjects(typ reflect.Type, template string, outer []reflect.Type) (out []unsupportedObject) {
	if slices.Contains(outer, typ) { // a condition nested in itself
		return nil
	}
	outer = append(outer[:len(outer):len(outer)], typ)
	for f := range typ.Fields() {
		key, inner, wrapper := f.Tag.Get("key"), f.Type, "%s"
		if f.Anonymous {
			if inner.Kind() == reflect.Struct {
				out = append(out, unsupportedObjects(inner, template, outer)...)
			}
			continue
		}
		if name := f.Tag.Get("unsupported"); name != "" && (inner.Kind() == reflect.Map || inner.Kind() == reflect.Pointer) {
			out = append(out, unsupportedObject{name, fmt.Sprintf(template, fmt.Sprintf("{%q: {}}", key))})
			continue
		}
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			switch inner.Kind() {
			case reflect.Slice:
				wrapper = fmt.Sprintf(wrapper, "[%s]")
			case reflect.Map:
				wrapper = fmt.Sprintf(wrapper, `{"k": %s}`)
			}
			inner = inner.Elem()
		}
		if key != "" && inner.Kind() == reflect.Struct {
			out = append(out, unsupportedObjects(inner, fmt.Sprintf(template, fmt.Sprintf("{%q: %s}", key, wrapper)), outer)...)
		}
	}
	return out
}

// TestEmptyRouteConditionsAreRejected verifies that an empty condition is rejected, unless Envoy
// treats it as a presence match.
func TestEmptyRouteConditionsAreRejected(t *testing.T) {
	slash := &routev3.RouteMatch_Prefix{Prefix: "/"}
	for name, m := range map[string]*routev3.RouteMatch{
		"no path":         {},
		"empty template":  {PathSpecifier: &routev3.RouteMatch_PathMatchPolicy{PathMatchPolicy: &corev3.TypedExtensionConfig{}}},
		"metadata":        {PathSpecifier: slash, DynamicMetadata: []*matcherv3.MetadataMatcher{{}}},
		"header":          {PathSpecifier: slash, Headers: []*routev3.HeaderMatcher{{Name: "x", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{}}}}},
		"query parameter": {PathSpecifier: slash, QueryParameters: []*routev3.QueryParameterMatcher{{Name: "x", QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{}}}}},
	} {
		r := &report{capabilities: allCapabilities()}
		if (fieldReader{report: r}).readMatch(m); r.rejection() == nil {
			t.Errorf("%s: accepted, want a rejection", name)
		}
	}
}

// TestEmptyTrustedCAIsRejected verifies that empty or unsupported TLS settings, such as an empty
// trusted_ca, are rejected. If Weft ignored them, it might not verify peer certificates.
func TestEmptyTrustedCAIsRejected(t *testing.T) {
	validation := func(v *tlsv3.CertificateValidationContext) *tlsv3.CommonTlsContext {
		return &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v}}
	}
	for name, m := range map[string]*tlsv3.CommonTlsContext{
		"no source":   validation(&tlsv3.CertificateValidationContext{TrustedCa: &corev3.DataSource{}}),
		"empty text":  validation(&tlsv3.CertificateValidationContext{TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{}}}),
		"empty bytes": validation(&tlsv3.CertificateValidationContext{TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{}}}),
		"empty path":  validation(&tlsv3.CertificateValidationContext{TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{}}}),
		"empty name matcher": validation(&tlsv3.CertificateValidationContext{
			TrustedCa:                 &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "ca.pem"}},
			MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{SanType: tlsv3.SubjectAltNameMatcher_DNS, Matcher: &matcherv3.StringMatcher{}}},
		}),
		"no name matcher": validation(&tlsv3.CertificateValidationContext{
			TrustedCa:                 &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "ca.pem"}},
			MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{SanType: tlsv3.SubjectAltNameMatcher_DNS}},
		}),
		"system roots":              validation(&tlsv3.CertificateValidationContext{SystemRootCerts: &tlsv3.CertificateValidationContext_SystemRootCerts{}}),
		"custom validator":          validation(&tlsv3.CertificateValidationContext{CustomValidatorConfig: &corev3.TypedExtensionConfig{}}),
		"revocation list":           validation(&tlsv3.CertificateValidationContext{Crl: &corev3.DataSource{}}),
		"SDS secret without a name": {ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{}}},
		"combined context": {ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{},
		}},
		"certificate provider":              {ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextCertificateProviderInstance{}},
		"certificate secret without a name": {TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{}}},
	} {
		r := &report{capabilities: allCapabilities()}
		c := &clusterv3.Cluster{Name: "c", TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: packed(t, &tlsv3.UpstreamTlsContext{CommonTlsContext: m, Sni: "a"}),
		}}}
		if (fieldReader{report: r}).readTransportSockets(c, &Cluster{}); r.rejection() == nil {
			t.Errorf("%s: accepted, want a rejection", name)
		}
	}
}
