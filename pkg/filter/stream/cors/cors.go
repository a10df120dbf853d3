// Package cors implements the cors filter. It tells browsers which other origins may use a route
// (Fetch standard, CORS protocol) and responds to their preflights.
package cors

import (
	"context"
	"errors"
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration: Envoy's CorsPolicy.
type Config struct {
	Origins        []match.StringMatcherConfig `key:"allow_origin_string_match" doc:"Origins to allow; exact \"*\" means any." example:"[{\"exact\": \"https://shop.example.com\"}]"`
	Methods        string                      `key:"allow_methods" doc:"Methods to allow, as listed in the response to a preflight." example:"\"GET, PUT\""`
	Headers        string                      `key:"allow_headers" doc:"Request headers to allow." example:"\"content-type, x-tenant\""`
	Expose         string                      `key:"expose_headers" doc:"Response headers that pages of these origins may read." example:"\"x-request-id\""`
	MaxAge         string                      `key:"max_age" doc:"Number of seconds for which browsers may cache the response to a preflight." example:"\"600\""`
	Credentials    bool                        `key:"allow_credentials" doc:"Allows credentials, such as cookies; cannot be combined with the origin \"*\"." default:"false" example:"true"`
	PrivateNetwork bool                        `key:"allow_private_network_access" doc:"Allows pages from public networks to request this host in a private network (Private Network Access)." default:"false" example:"true"`
	Forward        bool                        `key:"forward_not_matching_preflights" doc:"true: preflights from other origins go to the application; false: they get a response that does not allow the request." default:"true" example:"false"`

	Enabled *match.RuntimeFractionConfig `key:"filter_enabled" doc:"Fraction of requests that the filter applies to; absent: all."`
	Shadow  *match.RuntimeFractionConfig `key:"shadow_enabled" doc:"Fraction of the requests not selected by filter_enabled, whose origin the filter only counts; absent: none."`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.compile()
	return err
}

// policy is a compiled Config. It is immutable.
type policy struct {
	Config
	origins         []match.StringMatcher
	originField     match.Field
	anyOrigin       bool
	enabled, shadow match.Fraction
}

func (c *Config) compile() (*policy, error) {
	p := &policy{Config: *c}
	var err error
	if p.origins, err = match.CompileStringMatchers("allow_origin_string_match", c.Origins); err != nil {
		return nil, err
	}
	for i := range p.origins {
		p.anyOrigin = p.anyOrigin || p.origins[i].IsExact("*")
	}
	if p.anyOrigin && c.Credentials {
		return nil, &document.KeyError{Key: "allow_credentials", Err: errors.New(`credentials cannot be allowed for any origin ("*"), because every page could act as the user; list the origins`)}
	}
	if age := c.MaxAge; strings.Trim(age, "0123456789") != "" && age != "-1" {
		return nil, &document.KeyError{Key: "max_age", Err: errors.New("the value is not a number of seconds")}
	}
	for _, list := range []struct{ key, value string }{{"allow_methods", c.Methods}, {"allow_headers", c.Headers}, {"expose_headers", c.Expose}} {
		if strings.ContainsFunc(list.value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, &document.KeyError{Key: list.key, Err: errors.New("the value has a control character (RFC 9110 5.5)")}
		}
	}
	if p.enabled, p.shadow, err = match.CompileFractions(c.Enabled, c.Shadow); err != nil {
		return nil, err
	}
	p.originField, err = match.NewField("origin")
	return p, err
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "cors",
		Stage:   filter.AfterRoute,
		Config:  func() any { return &Config{Forward: true} },
		New:     build,
		Metrics: []metrics.Metric{validMetric(), invalidMetric(), preflightsMetric()},
	}
}

func validMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_cors_origin_valid_total", Help: "Requests from origins that the cors filter allows.", Kind: metrics.KindCounter}
}

func invalidMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_cors_origin_invalid_total", Help: "Requests from origins that the cors filter does not allow.", Kind: metrics.KindCounter}
}

func preflightsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_cors_preflights_total", Help: "Preflights that got a local reply from the cors filter.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	p, err := cfg.(*Config).compile() //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	if err != nil {
		return nil, err
	}
	if len(p.origins) == 0 || p.enabled.IsZero() && p.shadow.IsZero() {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	c := cors{
		policy:     p,
		valid:      env.Metrics.Counter(validMetric()),
		invalid:    env.Metrics.Counter(invalidMetric()),
		preflights: env.Metrics.Counter(preflightsMetric()),
	}
	return c.wrap, nil
}

// cors is immutable; only its counters change.
type cors struct {
	policy                     *policy
	valid, invalid, preflights *metrics.Counter
	next                       protocol.Service
}

// wrap returns a copy of c in front of next.
func (c cors) wrap(next protocol.Service) protocol.Service {
	c.next = next
	return &c
}

// Start implements protocol.Service.
func (c *cors) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Method == "" { // RPC has no browser clients
		return c.next.Start(ctx, x)
	}
	if !c.policy.enabled.Sample() {
		if c.policy.shadow.Sample() {
			_, _ = c.evaluate(x) // shadow mode only counts
		}
		return c.next.Start(ctx, x)
	}
	origin, ok := c.evaluate(x)
	if isPreflight(x) && origin != "" && (ok || !c.policy.Forward) {
		c.preflights.Add(1)
		c.replyToPreflight(x, origin, ok)
		return nil
	}
	if ok {
		x.Metadata.Set(namespace, originKey, origin)
	}
	x.PushFinisher(c)
	return c.next.Start(ctx, x)
}

// Metadata key of an allowed origin. Finish reads it instead of the request header, which later
// filters may change.
const (
	namespace = "cors"
	originKey = "origin"
)

// evaluate returns the origin of a request, "" if it has none, and whether the policy allows the
// origin. It counts a request with an origin as valid or invalid.
func (c *cors) evaluate(x *protocol.Exchange) (origin string, ok bool) {
	origin, _, more := c.policy.originField.Value(x, 0)
	if origin == "" && !more {
		return "", false
	}
	// A browser sends one Origin header (RFC 6454 7.3). A request with several is not allowed.
	ok = !more && (c.policy.anyOrigin || match.AnyMatches(c.policy.origins, origin))
	if ok {
		c.valid.Add(1)
	} else {
		c.invalid.Add(1)
	}
	return origin, ok
}

// The headers of the CORS protocol.
const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	allowMethods     = "Access-Control-Allow-Methods"
	allowHeaders     = "Access-Control-Allow-Headers"
	allowPrivate     = "Access-Control-Allow-Private-Network"
	exposeHeaders    = "Access-Control-Expose-Headers"
	maxAge           = "Access-Control-Max-Age"
	requestMethod    = "Access-Control-Request-Method"
	requestPrivate   = "Access-Control-Request-Private-Network"
)

func isPreflight(x *protocol.Exchange) bool {
	return x.Request.Method == "OPTIONS" && x.Request.Header.Get(requestMethod) != ""
}

//nolint:gochecknoglobals // a constant
var corsResponse = protocol.EnvoyReply{Details: "cors_response"}

// replyToPreflight sends the local reply to a preflight.
func (c *cors) replyToPreflight(x *protocol.Exchange, origin string, ok bool) {
	privateNetwork := x.Request.Header.Get(requestPrivate) == "true"
	x.LocalReply(200, "", "")
	x.Record.EnvoyReply = &corsResponse
	h := &x.Response.Header
	addVaryOrigin(h)
	if !ok {
		return
	}
	h.Add(allowOrigin, origin)
	if c.policy.Credentials {
		h.Add(allowCredentials, "true")
	}
	for _, f := range [...]protocol.Field{{Name: allowMethods, Value: c.policy.Methods}, {Name: allowHeaders, Value: c.policy.Headers}, {Name: maxAge, Value: c.policy.MaxAge}} {
		if f.Value != "" {
			h.Add(f.Name, f.Value)
		}
	}
	if privateNetwork && c.policy.PrivateNetwork {
		h.Add(allowPrivate, "true")
	}
}

// Finish implements protocol.Finisher. It turns an error into a local reply with CORS headers,
// so that a page can read it. It does not do so for a panic.
func (c *cors) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		if protocol.PanicIn(err) != nil {
			return err // the engine counts and logs the panic
		}
		x.LocalReplyError(err)
	}
	h := &x.Response.Header
	addVaryOrigin(h)
	origin, ok := x.Metadata.Lookup(namespace, originKey)
	if !ok {
		return nil
	}
	for _, name := range [...]string{allowOrigin, allowCredentials, exposeHeaders} {
		h.Del(name) // the filter's values replace the host's values
	}
	h.Add(allowOrigin, origin)
	if c.policy.Credentials {
		h.Add(allowCredentials, "true")
	}
	if c.policy.Expose != "" {
		h.Add(exposeHeaders, c.policy.Expose)
	}
	return nil
}

// addVaryOrigin adds Origin to Vary, because the response depends on the origin, even if the
// request has none (Fetch standard, CORS protocol and HTTP caches).
func addVaryOrigin(h *protocol.Header) {
	for name, value := range h.All() {
		if !protocol.EqualFold(name, "Vary") {
			continue
		}
		for member := range strings.SplitSeq(value, ",") {
			if member = strings.Trim(member, " \t"); member == "*" || protocol.EqualFold(member, "Origin") {
				return
			}
		}
	}
	h.Add("Vary", "Origin")
}
