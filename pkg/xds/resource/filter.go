package resource

import (
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	adaptivev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3"
	basicauthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/basic_auth/v3"
	bufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	cdnloopv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cdn_loop/v3"
	compressorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	csrfv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/csrf/v3"
	decompressorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/decompressor/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// Capabilities describes the filters of this build and the context in which readers parse
// resources.
type Capabilities struct {
	Filters           []filter.StreamFilterFactory
	ConnectionFilters []filter.ConnectionFilterFactory
	Runtime           *Runtime // values of runtime keys
	Node              Node
	UnknownFields     config.UnknownFields // policy for unknown fields
	// CheckRules rejects resources that violate the rules that the API declares for the values of
	// fields, as Envoy does. Only tests of single fields leave it false.
	CheckRules bool
}

func (c Capabilities) connectionFilterFactory(name string) *filter.ConnectionFilterFactory {
	for i := range c.ConnectionFilters {
		if c.ConnectionFilters[i].Name == name {
			return &c.ConnectionFilters[i]
		}
	}
	return nil
}

func (c Capabilities) streamFilterFactory(name string) *filter.StreamFilterFactory {
	for i := range c.Filters {
		if c.Filters[i].Name == name {
			return &c.Filters[i]
		}
	}
	return nil
}

// filterMapping maps an HTTP filter of the API to a filter of Weft. Most settings have the same
// names and the same form in both; see decodeFilter.
type filterMapping struct {
	name string // name in Weft
	// messages are the types of the settings in listeners and in routes.
	messages []proto.Message
	// adapt converts the settings to Weft's format, and reports ignored fields to p, the reader of the
	// settings; nil if the formats are the same.
	adapt func(settings *document.Value, p fieldReader) error
}

// filterMappings lists the supported filters.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var filterMappings = []filterMapping{
	{name: "cors", messages: []proto.Message{&corsv3.Cors{}, &corsv3.CorsPolicy{}}},
	{name: "fault", messages: []proto.Message{&faultv3.HTTPFault{}}, adapt: adaptFault},
	{name: "rbac", messages: []proto.Message{&rbacv3.RBAC{}, &rbacv3.RBACPerRoute{}}, adapt: adaptRBAC},
	{name: "jwt_authn", messages: []proto.Message{&jwtv3.JwtAuthentication{}}, adapt: adaptJWT},
	{name: "csrf", messages: []proto.Message{&csrfv3.CsrfPolicy{}}},
	{name: "ext_authz", messages: []proto.Message{&authzv3.ExtAuthz{}, &authzv3.ExtAuthzPerRoute{}}, adapt: adaptExtAuthz},
	{name: "local_ratelimit", messages: []proto.Message{&limitv3.LocalRateLimit{}}, adapt: adaptLocalRateLimit},
	{name: "header_to_metadata", messages: []proto.Message{&metadatav3.Config{}}},
	{name: "header_mutation", messages: []proto.Message{&mutationv3.HeaderMutation{}, &mutationv3.HeaderMutationPerRoute{}}, adapt: adaptHeaderMutation},
	{name: "basic_auth", messages: []proto.Message{&basicauthv3.BasicAuth{}, &basicauthv3.BasicAuthPerRoute{}}, adapt: adaptBasicAuth},
	{name: "buffer", messages: []proto.Message{&bufferv3.Buffer{}, &bufferv3.BufferPerRoute{}}, adapt: adaptBuffer},
	{name: "cdn_loop", messages: []proto.Message{&cdnloopv3.CdnLoopConfig{}}},
	{name: "compressor", messages: []proto.Message{&compressorv3.Compressor{}, &compressorv3.CompressorPerRoute{}}, adapt: adaptCompressor},
	{name: "decompressor", messages: []proto.Message{&decompressorv3.Decompressor{}}, adapt: adaptDecompressor},
	{name: "adaptive_concurrency", messages: []proto.Message{&adaptivev3.AdaptiveConcurrency{}}, adapt: adaptAdaptiveConcurrency},
	{name: "healthcheck", messages: []proto.Message{&healthv3.HealthCheck{}}, adapt: adaptHealthCheck},
}

func filterMappingOf(a *anypb.Any) *filterMapping {
	for i := range filterMappings {
		t := &filterMappings[i]
		if slices.ContainsFunc(t.messages, func(m proto.Message) bool { return isType(a, m) }) {
			return t
		}
	}
	return nil
}

// ignorableFilters returns the names of filters that Weft ignores. Each only observes requests,
// does what Weft does without a filter, or repeats a check of other listener settings
// (istio_authn).
func ignorableFilters() []string {
	return []string{
		"envoy.filters.http.grpc_stats", "envoy.filters.http.grpc_web_stats", "istio.metadata_exchange", "envoy.filters.http.peer_metadata",
		"istio.stats", "istio.alpn", "envoy.filters.http.upstream_codec", "istio.access_log", "istio_authn",
	}
}

// routerFilter is the type URL of the filter that ends every chain of HTTP filters.
const routerFilter = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"

// readHTTPFilters reads the HTTP filters of out. It adds the filters whose settings come from ECDS
// to l.
func (p fieldReader) readHTTPFilters(list []*hcmv3.HttpFilter, out *config.Proxy, l *Listener) {
	hasRouter, lastRejected := false, -1
	for i, f := range list {
		at := p.index(i)
		if at.readIstioFilter(f, out, l) {
			continue
		}
		packed := f.GetTypedConfig()
		switch {
		case packed.GetTypeUrl() == routerFilter:
			hasRouter = true
			out.RouterHeaders = at.field("typed_config").readRouter(packed)
			if f.GetDisabled() {
				at.field("disabled").reject("the router filter cannot be disabled")
			}
			continue
		case slices.Contains(ignorableFilters(), f.GetName()), strings.HasPrefix(f.GetName(), "istio.stats"):
			at.key(f.GetName()).ignore()
			continue
		case f.GetConfigDiscovery() != nil:
			if placeholder, dynamic, ok := at.readConfigDiscovery(f, l); ok {
				dynamic.proxy, dynamic.index = out, len(out.StreamFilters)
				out.StreamFilters = append(out.StreamFilters, placeholder)
			}
			continue
		}
		t := filterMappingOf(packed)
		if t == nil || p.report.capabilities.streamFilterFactory(t.name) == nil {
			if f.GetIsOptional() {
				at.key(f.GetName()).ignore()
				continue
			}
			at.reject("%s (%s) is not supported", f.GetName(), packed.GetTypeUrl())
			lastRejected = i
			continue
		}
		if f.GetDisabled() {
			at.checkDisabled(t.name)
		}
		if settings := at.field("typed_config").readSettings(t, packed); settings != nil {
			out.StreamFilters = append(out.StreamFilters, config.Filter{Name: t.name, Config: settings, RouteKey: f.GetName(), Disabled: f.GetDisabled()})
		}
	}
	if !hasRouter && (len(list) == 0 || lastRejected != len(list)-1) { // a rejected last filter may be meant as the router
		p.reject("the last filter is not a router")
	}
	out.StreamFilters = p.addMirror(out.StreamFilters)
}

// readRouter reads the settings of the router filter. It accepts the upstream filter
// upstream_codec, which is Envoy's default.
func (p fieldReader) readRouter(packed *anypb.Any) *config.RouterHeaders {
	m := &routerv3.Router{}
	if !p.unpack(packed, m) {
		return nil
	}
	p.checkFields(m, []string{"upstream_http_filters", "suppress_envoy_headers", "respect_expected_rq_timeout", "strict_check_headers"}, []string{"reject_connect_request_early_data"})
	for i, f := range m.GetUpstreamHttpFilters() {
		at := p.field("upstream_http_filters").index(i)
		if !slices.Contains(ignorableFilters(), f.GetName()) {
			at.reject("%s (%s) is not supported", f.GetName(), f.GetTypedConfig().GetTypeUrl())
		} else if f.GetName() != "envoy.filters.http.upstream_codec" {
			at.key(f.GetName()).ignore()
		}
	}
	out := &config.RouterHeaders{Suppress: m.GetSuppressEnvoyHeaders(), RespectExpectedTimeout: m.GetRespectExpectedRqTimeout()}
	for i, name := range m.GetStrictCheckHeaders() {
		if name = lower(name); !slices.Contains(config.StrictlyCheckedHeaders(), name) {
			p.field("strict_check_headers").index(i).reject("is %q, expected one of %s", name, strings.Join(config.StrictlyCheckedHeaders(), ", "))
			continue
		}
		out.StrictChecks = append(out.StrictChecks, name)
	}
	return out
}

// mirrorFilter is the name of the stream filter that mirrors requests. Its settings come from
// routes.
const mirrorFilter = "mirror"

// addMirror appends the mirror filter, which routes configure by request_mirror_policies.
func (p fieldReader) addMirror(filters []config.Filter) []config.Filter {
	if factory := p.report.capabilities.streamFilterFactory(mirrorFilter); factory != nil {
		filters = append(filters, config.Filter{Name: mirrorFilter, Config: factory.Config()})
	}
	return filters
}

// readPerFilter reads the settings of filters for a table, a virtual host or a route. The keys of
// the result are those of m: the names of the filters in listeners.
func (p fieldReader) readPerFilter(m map[string]*anypb.Any) map[string]any {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]any, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		packed := m[name]
		at := p.field("typed_per_filter_config").key(name)
		optional := false
		if wrapped := (&routev3.FilterConfig{}); isType(packed, wrapped) {
			if !at.unpack(packed, wrapped) {
				continue
			}
			packed, optional = wrapped.GetConfig(), wrapped.GetIsOptional()
			if wrapped.GetDisabled() || packed.GetTypeUrl() == "" {
				at.readFilterConfig(name, wrapped, out)
				continue
			}
		}
		t := filterMappingOf(packed)
		switch {
		case isType(packed, &jwtv3.PerRouteConfig{}):
			at.readRouteJWT(name, packed, out)
		case slices.Contains(ignorableFilters(), name), t == nil && optional:
			at.ignore()
		case t == nil || p.report.capabilities.streamFilterFactory(t.name) == nil:
			at.reject("%s is not supported", packed.GetTypeUrl())
		default:
			if settings := at.readSettings(t, packed); settings != nil {
				out[name] = settings
			}
		}
	}
	return out
}

// readFilterConfig enables or disables the filter with a name in out. It rejects a filter that runs
// before a route is selected: a filter with the name, or with the type of the settings, of such a
// filter.
func (p fieldReader) readFilterConfig(name string, m *routev3.FilterConfig, out map[string]any) {
	filterName := strings.TrimPrefix(name, "envoy.filters.http.")
	if filterName == "health_check" {
		filterName = "healthcheck"
	}
	if t := filterMappingOf(m.GetConfig()); t != nil {
		filterName = t.name
	}
	factory := p.report.capabilities.streamFilterFactory(filterName)
	switch {
	case slices.Contains(ignorableFilters(), name):
		p.ignore()
	case factory != nil && factory.Stage == filter.BeforeRoute && m.GetDisabled():
		p.field("disabled").rejectUnsupported()
	case factory != nil && factory.Stage == filter.BeforeRoute:
		p.reject("%s is not supported", name)
	case m.GetDisabled():
		out[name] = config.FilterDisabled{}
	default:
		out[name] = config.FilterEnabled{}
	}
}

// readSettings returns the settings of a filter in Weft's type, or nil if they are rejected.
func (p fieldReader) readSettings(t *filterMapping, packed *anypb.Any) any {
	m, ok := p.unpackAny(packed)
	if !ok {
		return nil
	}
	return p.decodeFilter(p.report.capabilities.streamFilterFactory(t.name).Config(), m, t.adapt)
}

// readRouteJWT reads the settings of a route for the jwt_authn filter with a name.
func (p fieldReader) readRouteJWT(name string, packed *anypb.Any, out map[string]any) {
	m, factory := &jwtv3.PerRouteConfig{}, p.report.capabilities.streamFilterFactory("jwt_authn")
	switch {
	case !p.unpack(packed, m):
	case factory == nil:
		p.rejectUnsupported()
	case m.GetDisabled():
		out[name] = config.FilterDisabled{}
	case m.GetRequirementName() == "":
		p.rejectOneof(m, "requirement_specifier", "disabled", "requirement_name")
	default:
		settings := document.NewObject(1)
		settings.Add("requirement_name", document.NewString(m.GetRequirementName()))
		if decoded := p.decodeSettings(factory.Config(), settings); decoded != nil {
			out[name] = decoded
		}
	}
}
