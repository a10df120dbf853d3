package resource

import (
	"errors"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weft-proxy/weft/pkg/config"
)

// unknownFieldNumber is a field number that no version of the API uses.
const unknownFieldNumber = 9999

// withUnknown adds an unknown field to m.
func withUnknown[M proto.Message](m M) M {
	b := protowire.AppendTag(nil, unknownFieldNumber, protowire.VarintType)
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(b, 1))
	return m
}

// TestUnknownFieldsAreRejected verifies that Weft rejects a resource with an unknown field in any
// message. The reason has the path of the message and the number of the field.
func TestUnknownFieldsAreRejected(t *testing.T) {
	for _, m := range apiMessages(t) {
		d := m.message.ProtoReflect().Descriptor()
		_, err := m.read(withUnknown(proto.Clone(m.message)))
		want := "unknown field 9999 of " + string(d.FullName()) + ": this build does not know it"
		var rejected RejectedError
		if !errors.As(err, &rejected) || !slices.Contains(rejected, Rejection{m.path, want}) {
			t.Errorf("%s: the reasons are %q, want %q among them", d.FullName(), rejected, Rejection{m.path, want})
		}
	}
}

// filteredListener returns a listener whose proxy has an HTTP filter. It uses TLS if context is not
// nil.
func filteredListener(t *testing.T, filter proto.Message, context *tlsv3.DownstreamTlsContext, change func(*hcmv3.HttpConnectionManager)) *listenerv3.Listener {
	t.Helper()
	h := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "r"}},
		HttpFilters: []*hcmv3.HttpFilter{
			{Name: "f", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, filter)}},
			{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}},
		},
	}
	change(h)
	c := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, h)}}}}
	if context != nil {
		c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t, context)}}
	}
	return &listenerv3.Listener{
		Name: "l", Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/l"}}}, FilterChains: []*listenerv3.FilterChain{c},
	}
}

// TestUnknownFieldsByPolicy verifies that WarnUnknownFields accepts a resource, unless the unknown
// field is in a message that decides which connections or requests are allowed.
func TestUnknownFieldsByPolicy(t *testing.T) {
	allow := func(change func(*rbacconfigv3.Policy)) *rbacv3.RBAC {
		p := &rbacconfigv3.Policy{
			Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Any{Any: true}}},
			Principals:  []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_Any{Any: true}}},
		}
		change(p)
		return &rbacv3.RBAC{Rules: &rbacconfigv3.RBAC{Policies: map[string]*rbacconfigv3.Policy{"one": p}}}
	}
	unchanged, unchangedHCM := func(*rbacconfigv3.Policy) {}, func(*hcmv3.HttpConnectionManager) {}
	withTLS := func(change func(*tlsv3.DownstreamTlsContext)) *tlsv3.DownstreamTlsContext {
		m := &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "s"}}}}
		change(m)
		return m
	}
	const filter = "filter_chains[0].filters[0].typed_config"
	for name, c := range map[string]struct {
		listener *listenerv3.Listener
		reject   string // prefix of the reason with RejectUnknownFields; "" if it accepts the resource
		warn     bool   // WarnUnknownFields accepts the resource
		ignored  string // prefix of an ignored field with WarnUnknownFields
	}{
		"listener": {withUnknown(filteredListener(t, allow(unchanged), nil, unchangedHCM)), "unknown field 9999 of envoy.config.listener.v3.Listener", true, ": unknown field 9999"},
		"connection manager": {
			filteredListener(t, allow(unchanged), nil, func(h *hcmv3.HttpConnectionManager) { withUnknown(h) }),
			filter + ": unknown field 9999 of envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", true, filter + ": unknown field 9999",
		},
		"inside an ignored field": {
			filteredListener(t, allow(unchanged), nil, func(h *hcmv3.HttpConnectionManager) { h.Tracing = withUnknown(&hcmv3.HttpConnectionManager_Tracing{}) }),
			"", true, filter + ".tracing",
		},
		"filter": {
			filteredListener(t, withUnknown(allow(unchanged)), nil, unchangedHCM),
			filter + ".http_filters[0].typed_config: unknown field 9999 of envoy.extensions.filters.http.rbac.v3.RBAC", false, "",
		},
		"nested in a filter": {
			filteredListener(t, allow(func(p *rbacconfigv3.Policy) { withUnknown(p.GetPrincipals()[0]) }), nil, unchangedHCM),
			filter + ".http_filters[0].typed_config.rules.policies[one].principals[0]: unknown field 9999 of envoy.config.rbac.v3.Principal", false, "",
		},
		"enum value in a filter": {
			filteredListener(t, &rbacv3.RBAC{Rules: &rbacconfigv3.RBAC{Action: 77}}, nil, unchangedHCM),
			filter + ".http_filters[0].typed_config.rules.action: found the number 77, expected", false, "",
		},
		"TLS": {
			filteredListener(t, allow(unchanged), withTLS(func(m *tlsv3.DownstreamTlsContext) { withUnknown(m) }), unchangedHCM),
			"filter_chains[0].transport_socket.typed_config: unknown field 9999 of envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", false, "",
		},
		"certificate validation": {
			filteredListener(t, allow(unchanged), withTLS(func(m *tlsv3.DownstreamTlsContext) {
				m.CommonTlsContext.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
					DefaultValidationContext: withUnknown(&tlsv3.CertificateValidationContext{}), ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: "a"},
				}}
			}), unchangedHCM),
			"filter_chains[0].transport_socket.typed_config.common_tls_context.combined_validation_context.default_validation_context: unknown field 9999", false, "",
		},
		"filter chain match": {
			func() *listenerv3.Listener {
				l := filteredListener(t, allow(unchanged), nil, unchangedHCM)
				l.FilterChains[0].FilterChainMatch = withUnknown(&listenerv3.FilterChainMatch{})
				return l
			}(),
			"filter_chains[0].filter_chain_match: unknown field 9999 of envoy.config.listener.v3.FilterChainMatch", false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := marshaled(t, c.listener)
			_, err := ReadListener(body, allCapabilities())
			if got := errorText(err); !strings.HasPrefix(got, c.reject) || (got == "") != (c.reject == "") {
				t.Errorf("rejected because of\n%q, want\n%q", got, c.reject)
			}
			caps := allCapabilities()
			caps.UnknownFields = config.WarnUnknownFields
			l, err := ReadListener(body, caps)
			if c.warn != (err == nil) {
				t.Fatalf("with warn: error %v, want accepted: %t", err, c.warn)
			}
			if c.warn && !slices.ContainsFunc(l.Ignored, func(field string) bool { return strings.HasPrefix(field, c.ignored) }) {
				t.Errorf("with warn: ignored fields %q, want %q", l.Ignored, c.ignored)
			}
			if want := btoi(c.warn && c.reject != ""); c.warn && len(UnknownFields(l.Ignored)) != want {
				t.Errorf("counted %d unknown fields, want %d", len(UnknownFields(l.Ignored)), want)
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestUnknownRouteConditions verifies that both policies reject an unknown route condition with the
// path of the route, even if only that route has changed.
func TestUnknownRouteConditions(t *testing.T) {
	table := func(second func(*routev3.RouteMatch)) []byte {
		m := &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}}}}
		for _, change := range []func(*routev3.RouteMatch){func(*routev3.RouteMatch) {}, second} {
			match := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
			change(match)
			m.VirtualHosts[0].Routes = append(m.VirtualHosts[0].Routes, &routev3.Route{
				Match: match, Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
			})
		}
		return marshaled(t, m)
	}
	for _, policy := range []config.UnknownFields{config.RejectUnknownFields, config.WarnUnknownFields} {
		caps := Capabilities{UnknownFields: policy}
		previous, err := ReadRoutes(table(func(*routev3.RouteMatch) {}), caps)
		if err != nil {
			t.Fatal(err)
		}
		for want, change := range map[string]func(*routev3.RouteMatch){
			"virtual_hosts[0].routes[1].match: unknown field 9999 of envoy.config.route.v3.RouteMatch: this build does not know it": func(m *routev3.RouteMatch) { withUnknown(m) },
			"virtual_hosts[0].routes[1].match.headers[0]: unknown field 9999 of envoy.config.route.v3.HeaderMatcher: this build does not know it": func(m *routev3.RouteMatch) {
				m.Headers = []*routev3.HeaderMatcher{withUnknown(&routev3.HeaderMatcher{Name: "a"})}
			},
		} {
			if _, err := previous.Update(table(change), caps); errorText(err) != want {
				t.Errorf("policy %d: rejected because of %v, want %s", policy, err, want)
			}
		}
	}
}

// TestUnknownFieldsOfUnchangedRoutesAreStillReported verifies that Update reports the unknown
// fields of routes that it does not parse again.
func TestUnknownFieldsOfUnchangedRoutesAreStillReported(t *testing.T) {
	caps := Capabilities{UnknownFields: config.WarnUnknownFields}
	m := &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{withUnknown(&routev3.VirtualHost{Name: "v", Domains: []string{"*"}, Routes: []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: withUnknown(&routev3.DirectResponseAction{Status: 200})},
	}}})}}
	first, err := ReadRoutes(marshaled(t, m), caps)
	if err != nil {
		t.Fatal(err)
	}
	other := &routev3.VirtualHost{Name: "new", Domains: []string{"new"}}
	m.VirtualHosts = append([]*routev3.VirtualHost{other}, m.VirtualHosts...)
	second, err := first.Update(marshaled(t, m), caps)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"virtual_hosts[1]: unknown field 9999 of envoy.config.route.v3.VirtualHost: this build does not know it",
		"virtual_hosts[1].routes[0].direct_response: unknown field 9999 of envoy.config.route.v3.DirectResponseAction: this build does not know it",
	}
	if !slices.Equal(second.Ignored, want) {
		t.Errorf("ignored fields: %q, want %q", second.Ignored, want)
	}
}

// TestFieldOfWrongTypeIsUnknown verifies that a value of the wrong type is reported: protobuf
// decodes it as an unknown field.
func TestFieldOfWrongTypeIsUnknown(t *testing.T) {
	body := marshaled(t, &clusterv3.Cluster{Name: "c", ConnectTimeout: nil})
	body = protowire.AppendTag(body, 4, protowire.VarintType) // connect_timeout
	body = protowire.AppendVarint(body, 1)
	_, err := ReadCluster(body, Capabilities{})
	const want = "unknown encoding of field 4 (connect_timeout) of envoy.config.cluster.v3.Cluster: expected a value of type message"
	if errorText(err) != want {
		t.Errorf("rejected because of %v, want %s", err, want)
	}
}

// TestUnknownFieldsInWellKnownTypes verifies that unknown fields in well-known types, such as
// Duration, are found.
func TestUnknownFieldsInWellKnownTypes(t *testing.T) {
	_, err := ReadCluster(marshaled(t, &clusterv3.Cluster{Name: "c", ConnectTimeout: withUnknown(durationpb.New(1))}), Capabilities{})
	const want = "connect_timeout: unknown field 9999 of google.protobuf.Duration: this build does not know it"
	if errorText(err) != want {
		t.Errorf("rejected because of %v, want %s", err, want)
	}
}

// TestUnknownFieldsReasonIsBounded verifies that many unknown fields cause a limited number of
// reasons.
func TestUnknownFieldsReasonIsBounded(t *testing.T) {
	var b []byte
	for n := range 100_000 {
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(unknownFieldNumber+n), protowire.VarintType), 1)
	}
	m := &clusterv3.Cluster{Name: "c"}
	m.ProtoReflect().SetUnknown(b)
	for range 3 {
		m.HealthChecks = append(m.HealthChecks, withUnknown(&corev3.HealthCheck{}))
	}
	_, err := ReadCluster(marshaled(t, m), Capabilities{})
	var rejected RejectedError
	if !errors.As(err, &rejected) || len(rejected) < maxUnknownFields || len(rejected) > 2*maxUnknownFields {
		t.Errorf("got %d reasons, want %d and those of the health checks", len(rejected), maxUnknownFields)
	}
}
