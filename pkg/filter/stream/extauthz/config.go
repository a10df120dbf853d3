package extauthz

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Config is the filter's configuration: Envoy's ExtAuthz and ExtAuthzPerRoute in one.
type Config struct {
	HTTP     *HTTPService   `key:"http_service" doc:"An authorization service that speaks HTTP/1.1. A response with status 200 allows the request; any other status below 500 rejects it, and the client gets that response."`
	GRPC     *GRPCService   `key:"grpc_service" doc:"An authorization service that speaks gRPC: envoy.service.auth.v3.Authorization."`
	Version  string         `key:"transport_api_version" doc:"Version of the gRPC messages." enum:"V3" default:"V3" example:"\"V3\""`
	Disabled bool           `key:"disabled" doc:"Disables the check. Headers that only the service may set are still removed from requests." default:"false" example:"true"`
	Check    *CheckSettings `key:"check_settings" doc:"Overrides for a route; all other settings of the listener apply."`

	FailureModeAllow       *bool   `key:"failure_mode_allow" doc:"Whether requests pass if the service fails or its response is not valid (fail open). Absent: they are rejected (fail closed)." example:"true"`
	FailureModeAllowHeader bool    `key:"failure_mode_allow_header_add" doc:"Adds x-envoy-auth-failure-mode-allowed: true to requests that pass because the service failed." default:"false" example:"true"`
	OnError                *Status `key:"status_on_error" doc:"Response status if the service fails and the request is rejected; absent: 403."`

	Body               *BufferSettings `key:"with_request_body" doc:"Sends the request body to the service; the filter buffers it before the check. Absent: the body is not sent."`
	IncludeCertificate bool            `key:"include_peer_certificate" doc:"Sends the client certificate to a gRPC service, as percent-encoded PEM." default:"false" example:"true"`
	IncludeTLSSession  bool            `key:"include_tls_session" doc:"Sends the server name that the client requested in TLS (SNI) to a gRPC service." default:"false" example:"true"`

	Allowed    *ListStringMatcher `key:"allowed_headers" doc:"Headers to send to the service, in addition to Authorization. Absent: all headers to a gRPC service, only Authorization to an HTTP service."`
	Disallowed *ListStringMatcher `key:"disallowed_headers" doc:"Headers never to send to the service, regardless of the other keys."`

	EnabledMetadata *MetadataCondition `key:"filter_enabled_metadata" doc:"Checks only requests whose metadata matches this, such as the decision of shadow_rules of rbac; others pass. Absent: all requests."`

	ClearRouteCache bool                         `key:"clear_route_cache" doc:"Selects the route again after the service changed the request." unsupported:"clear_route_cache" example:"true"`
	Enabled         *match.RuntimeFractionConfig `key:"filter_enabled" doc:"Fraction of requests to check." unsupported:"filter_enabled"`
	Namespaces      []string                     `key:"metadata_context_namespaces" doc:"Metadata namespaces to send to the service." unsupported:"metadata_context_namespaces" example:"[\"shop\"]"`
}

// MetadataCondition is a condition on a metadata value that another filter set.
type MetadataCondition struct {
	Namespace string        `key:"filter" doc:"The namespace, usually the name of the filter." required:"true" example:"\"envoy.filters.http.rbac\""`
	Path      []MetadataKey `key:"path" doc:"Path to the value: its key, or several keys from the outermost object inward." required:"true"`
	Value     MetadataValue `key:"value" doc:"Condition on the value." required:"true"`
	Invert    bool          `key:"invert" doc:"Inverts the condition." default:"false" example:"true"`
}

// MetadataKey is one key in the path of a metadata value.
type MetadataKey struct {
	Key string `key:"key" doc:"The key." required:"true" example:"\"shadow_effective_policy_id\""`
}

// MetadataValue is a condition on a metadata value.
type MetadataValue struct {
	String match.StringMatcherConfig `key:"string_match" doc:"The value must match this." required:"true"`
}

// metadataCondition is a compiled MetadataCondition. It is immutable.
type metadataCondition struct {
	namespace, key string
	value          match.StringMatcher
	invert         bool
}

func (c *MetadataCondition) compile() (*metadataCondition, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // no condition
	}
	if len(c.Path) == 0 {
		return nil, errors.New("filter_enabled_metadata.path is empty")
	}
	keys := make([]string, len(c.Path))
	for i, k := range c.Path {
		keys[i] = k.Key
	}
	value, err := c.Value.String.Compile()
	if err != nil {
		return nil, fmt.Errorf("filter_enabled_metadata.value.string_match: %w", err)
	}
	return &metadataCondition{protocol.Namespace(c.Namespace), protocol.MetadataKey(keys...), value, c.Invert}, nil
}

// matches reports whether one of the values in m matches c; nil matches all metadata.
func (c *metadataCondition) matches(m *protocol.Metadata) bool {
	if c == nil {
		return true
	}
	matched := false
	for value := range m.Values(c.namespace, c.key) {
		matched = matched || c.value.Matches(value)
	}
	return matched != c.invert
}

// Status is an HTTP status.
type Status struct {
	Code int `key:"code" doc:"HTTP status." min:"400" max:"599" default:"403" example:"503"`
}

// BufferSettings limits how much of the body the authorization service receives.
type BufferSettings struct {
	MaxRequestBytes int  `key:"max_request_bytes" doc:"Maximum number of body bytes to send; they are buffered in memory." unit:"bytes" min:"1" max:"16777216" required:"true" example:"8192"`
	AllowPartial    bool `key:"allow_partial_message" doc:"Sends only the beginning of a larger body; otherwise such a request is rejected with 413." default:"false" example:"true"`
	Raw             bool `key:"pack_as_bytes" doc:"Sends the body to a gRPC service as bytes (raw_body) instead of text (body)." default:"false" example:"true"`
}

// CheckSettings is the configuration of one route.
type CheckSettings struct {
	Extensions map[string]string `key:"context_extensions" doc:"Additional values to send to a gRPC service." example:"{\"virtual_host\": \"shop\"}"`
	NoBody     bool              `key:"disable_request_body_buffering" doc:"Does not send the request body." default:"false" example:"true"`
	Body       *BufferSettings   `key:"with_request_body" doc:"Replaces the setting of the listener."`
}

// ListStringMatcher is a list of case-insensitive conditions on header names.
type ListStringMatcher struct {
	Patterns []match.StringMatcherConfig `key:"patterns" doc:"Conditions on the header name, of which one must match; a regular expression gets the name in lower case." required:"true"`
}

// HTTPService is an authorization service that speaks HTTP/1.1.
type HTTPService struct {
	Server     ServerURI             `key:"server_uri" doc:"The service." required:"true"`
	PathPrefix string                `key:"path_prefix" doc:"Prefix of the path in requests to the service; the original path follows." example:"\"/check\""`
	Request    AuthorizationRequest  `key:"authorization_request" doc:"The request to the service."`
	Response   AuthorizationResponse `key:"authorization_response" doc:"How to use the response of the service."`
}

// ServerURI identifies an HTTP server.
type ServerURI struct {
	URI     string        `key:"uri" doc:"URL of the service, for information only. Requests to the service have the host of the original request, or the cluster name for RPC requests." example:"\"http://authz.test\""`
	Cluster string        `key:"cluster" doc:"Cluster of the service." required:"true" refers:"cluster" example:"\"authz\""`
	Timeout time.Duration `key:"timeout" doc:"Response timeout." default:"200ms" min:"1ms" max:"10m" example:"\"250ms\""`
}

// AuthorizationRequest selects what an HTTP service receives in addition to method, host, path and
// Authorization.
type AuthorizationRequest struct {
	Allowed *ListStringMatcher `key:"allowed_headers" doc:"Headers to send in addition to those of allowed_headers above."`
	Add     []Header           `key:"headers_to_add" doc:"Headers to set on requests to the service; they replace those of the original request."`
}

// Header is a header to set.
type Header struct {
	Key   string `key:"key" doc:"Header name." required:"true" example:"\"x-gateway\""`
	Value string `key:"value" doc:"Header value; %variables% are replaced." example:"\"%downstream_remote_ip%\""`
}

// AuthorizationResponse selects the headers that the filter uses from the responses of an HTTP
// service.
type AuthorizationResponse struct {
	Upstream *ListStringMatcher `key:"allowed_upstream_headers" doc:"Headers of an allowing response to set on the request to the application. Client headers of these names are removed, even if the response does not have them."`
	Append   *ListStringMatcher `key:"allowed_upstream_headers_to_append" doc:"Headers of an allowing response to add to the request to the application; client headers of these names are kept."`
	Client   *ListStringMatcher `key:"allowed_client_headers" doc:"Headers of a rejecting response to send to the client, in addition to Location and WWW-Authenticate; absent: all."`
	Success  *ListStringMatcher `key:"allowed_client_headers_on_success" doc:"Headers of an allowing response to add to the response to the client."`
	Metadata *ListStringMatcher `key:"dynamic_metadata_from_headers" doc:"Headers of an allowing response to store in the metadata of the request."`
}

// GRPCService is an authorization service that speaks gRPC.
type GRPCService struct {
	Cluster  string         `key:"cluster" doc:"Cluster of the service; short for envoy_grpc." refers:"cluster" example:"\"authz\""`
	Envoy    *EnvoyGRPC     `key:"envoy_grpc" doc:"The service, in Envoy's format."`
	Google   map[string]any `key:"google_grpc" doc:"Envoy's client based on the Google gRPC library." unsupported:"google_grpc"`
	Timeout  time.Duration  `key:"timeout" doc:"Response timeout." default:"200ms" min:"1ms" max:"10m" example:"\"250ms\""`
	Metadata []Header       `key:"initial_metadata" doc:"Headers to set on requests to the service."`
}

// EnvoyGRPC identifies a gRPC server.
type EnvoyGRPC struct {
	Cluster   string `key:"cluster_name" doc:"Cluster of the service." required:"true" refers:"cluster" example:"\"authz\""`
	Authority string `key:"authority" doc:"Value of :authority in requests to the service; empty: the name of the cluster." example:"\"authz.test\""`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	switch {
	case c.HTTP != nil && c.GRPC != nil:
		return errors.New("expected one of http_service and grpc_service")
	case c.HTTP == nil && c.GRPC == nil && !c.Disabled && c.Check == nil:
		return errors.New("expected http_service or grpc_service; for a route also disabled or check_settings")
	}
	if key := c.misplacedKey(); key != "" {
		return &document.KeyError{Key: key, Err: fmt.Errorf("%s requires http_service or grpc_service: without them, a route can only set disabled and check_settings", key)}
	}
	if s := c.Check; s != nil && s.NoBody && s.Body != nil {
		return &document.KeyError{Key: "check_settings", Err: errors.New("with_request_body and disable_request_body_buffering are mutually exclusive")}
	}
	if _, err := c.EnabledMetadata.compile(); err != nil {
		return err
	}
	_, err := c.compile()
	return err
}

// misplacedKey returns a key of c that has an effect only with an authorization service, if c
// configures none. Otherwise it returns "". A security filter must not ignore a setting.
func (c *Config) misplacedKey() string {
	if c.HTTP != nil || c.GRPC != nil {
		return ""
	}
	switch {
	case c.FailureModeAllow != nil:
		return "failure_mode_allow"
	case c.FailureModeAllowHeader:
		return "failure_mode_allow_header_add"
	case c.OnError != nil:
		return "status_on_error"
	case c.Body != nil:
		return "with_request_body"
	case c.IncludeCertificate:
		return "include_peer_certificate"
	case c.IncludeTLSSession:
		return "include_tls_session"
	case c.Allowed != nil:
		return "allowed_headers"
	case c.Disallowed != nil:
		return "disallowed_headers"
	}
	return ""
}

// failsOpen reports whether requests pass when the service fails.
func (c *Config) failsOpen() bool { return c.FailureModeAllow != nil && *c.FailureModeAllow }

// errorStatus returns the status of a rejection when the service fails.
func (c *Config) errorStatus() int {
	if c.OnError == nil {
		return 403
	}
	return c.OnError.Code
}

// inherit returns the effective configuration of a route. If route configures no service, only its
// disabled and check_settings override the listener's configuration.
func inherit(listener, route any) any {
	base, override := listener.(*Config), route.(*Config) //nolint:forcetypeassert // both are values that StreamFilterFactory.Config created
	if override.HTTP != nil || override.GRPC != nil {
		return override
	}
	merged := *base
	merged.Disabled = override.Disabled
	if override.Check != nil {
		merged.Check = override.Check
	}
	return &merged
}

// rules are the compiled rules for the data that the service receives and for the parts of its
// responses that the filter uses.
type rules struct {
	sentHeaders      headerMatchers // headers that the service receives; nil: see allHeaders
	allHeaders       bool           // sentHeaders is nil, and the service receives every header
	unsentHeaders    headerMatchers
	mutation         *router.Mutation // additional headers that the service receives
	upstreamHeaders  headerMatchers   // headers of a response that replace headers of the request
	appendedHeaders  headerMatchers   // headers of a response that are added to the request
	clientHeaders    headerMatchers   // headers of a rejection for the client
	allClientHeaders bool             // clientHeaders is nil, and the client gets every header
	successHeaders   headerMatchers   // headers of a response for the client of an allowed request
	metadataHeaders  headerMatchers   // headers of a response that become metadata
	body             *BufferSettings  // nil: the service does not receive the body
	context          map[string]string
}

func (c *Config) compile() (*rules, error) {
	r := &rules{body: c.Body}
	if s := c.Check; s != nil {
		r.context = s.Extensions
		switch {
		case s.NoBody:
			r.body = nil
		case s.Body != nil:
			r.body = s.Body
		}
	}
	lists := []struct {
		key  string
		from *ListStringMatcher
		to   *headerMatchers
	}{{"allowed_headers", c.Allowed, &r.sentHeaders}, {"disallowed_headers", c.Disallowed, &r.unsentHeaders}}
	var add []Header
	var addKey string
	if h := c.HTTP; h != nil {
		if err := h.validate(); err != nil {
			return nil, &document.KeyError{Key: "http_service", Err: err}
		}
		add, addKey = h.Request.Add, "http_service.authorization_request.headers_to_add"
		lists = append(lists, []struct {
			key  string
			from *ListStringMatcher
			to   *headerMatchers
		}{
			{"http_service.authorization_request.allowed_headers", h.Request.Allowed, &r.sentHeaders},
			{"http_service.authorization_response.allowed_upstream_headers", h.Response.Upstream, &r.upstreamHeaders},
			{"http_service.authorization_response.allowed_upstream_headers_to_append", h.Response.Append, &r.appendedHeaders},
			{"http_service.authorization_response.allowed_client_headers", h.Response.Client, &r.clientHeaders},
			{"http_service.authorization_response.allowed_client_headers_on_success", h.Response.Success, &r.successHeaders},
			{"http_service.authorization_response.dynamic_metadata_from_headers", h.Response.Metadata, &r.metadataHeaders},
		}...)
		r.allClientHeaders = h.Response.Client == nil
	}
	if g := c.GRPC; g != nil {
		if (g.Cluster == "") == (g.Envoy == nil) {
			return nil, &document.KeyError{Key: "grpc_service", Err: errors.New("expected one of envoy_grpc and cluster")}
		}
		add, addKey = g.Metadata, "grpc_service.initial_metadata"
		r.allHeaders = c.Allowed == nil
	}
	for _, l := range lists {
		if l.from == nil {
			continue
		}
		matchers, err := match.CompileStringMatchers("patterns", l.from.Patterns)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.key, err)
		}
		for i := range matchers {
			*l.to = append(*l.to, matchers[i].IgnoreCase())
		}
	}
	var m config.HeaderMutation
	for _, h := range add {
		if protocol.EqualFold(h.Key, "host") || strings.HasPrefix(h.Key, ":") {
			return nil, fmt.Errorf("%s: header %q cannot be set: Weft sets the host and the pseudo-headers of requests to the service", addKey, h.Key)
		}
		m.Add = append(m.Add, config.HeaderValue{Name: h.Key, Value: h.Value})
	}
	var err error
	r.mutation, err = router.CompileMutation(m)
	return r, err
}

func (h *HTTPService) validate() error {
	if p := h.PathPrefix; p != "" && (p[0] != '/' || strings.ContainsAny(p, "?# \r\n")) {
		return errors.New("path_prefix is not a valid path: expected a leading slash, no query and no spaces")
	}
	if h.Server.URI == "" {
		return nil
	}
	u, err := url.Parse(h.Server.URI)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("server_uri.uri: %q is not a valid http or https URL", h.Server.URI)
	}
	return nil
}

// headerMatchers are conditions on header names.
type headerMatchers []match.StringMatcher

// matchesAnySpelling reports whether a condition matches name or its spelling with "-" instead of
// "_". CGI applications, for example, treat X_User as X-User.
func (m headerMatchers) matchesAnySpelling(name string) bool {
	if len(m) == 0 {
		return false
	}
	name = strings.ToLower(name)
	return match.AnyMatches(m, name) || strings.Contains(name, "_") && match.AnyMatches(m, strings.ReplaceAll(name, "_", "-"))
}

// matches reports whether a condition matches name exactly as spelled, except for case.
func (m headerMatchers) matches(name string) bool {
	return len(m) > 0 && match.AnyMatches(m, strings.ToLower(name))
}
