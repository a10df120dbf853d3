// Package csrf implements the csrf filter, which rejects unsafe requests that a browser sends on
// behalf of a page of another origin.
package csrf

import (
	"context"
	"errors"
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration: Envoy's CsrfPolicy.
type Config struct {
	Enabled    *match.RuntimeFractionConfig `key:"filter_enabled" doc:"Fraction of requests to reject if they come from another origin; absent: all."`
	Shadow     *match.RuntimeFractionConfig `key:"shadow_enabled" doc:"Fraction of the requests not selected by filter_enabled, which the filter counts without rejecting them; absent: none."`
	Additional []match.StringMatcherConfig  `key:"additional_origins" doc:"Origins to accept in addition to the host of the request, as host or host:port." example:"[{\"exact\": \"shop.example.com\"}]"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.compile()
	return err
}

// policy is a compiled Config.
type policy struct {
	enabled, shadow match.Fraction
	additional      []match.StringMatcher
}

func (c *Config) compile() (p policy, err error) {
	if p.enabled, p.shadow, err = match.CompileFractions(c.Enabled, c.Shadow); err != nil {
		return policy{}, err
	}
	p.additional, err = match.CompileStringMatchers("additional_origins", c.Additional)
	return p, err
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "csrf",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{validMetric(), invalidMetric(), missingMetric()},
	}
}

func validMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_csrf_request_valid_total", Help: "State-changing requests from an accepted origin.", Kind: metrics.KindCounter}
}

func invalidMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_csrf_request_invalid_total", Help: "State-changing requests from another origin.", Kind: metrics.KindCounter}
}

func missingMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_csrf_missing_source_origin_total", Help: "State-changing requests without a source origin, or with a repeated Origin or, without Origin, a repeated Referer.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	p, err := cfg.(*Config).compile() //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	if err != nil {
		return nil, err
	}
	if p.enabled.IsZero() && p.shadow.IsZero() {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	c := csrf{
		policy:  p,
		valid:   env.Metrics.Counter(validMetric()),
		invalid: env.Metrics.Counter(invalidMetric()),
		missing: env.Metrics.Counter(missingMetric()),
	}
	return c.wrap, nil
}

// csrf is immutable; only its counters change.
type csrf struct {
	policy                  policy
	valid, invalid, missing *metrics.Counter
	next                    protocol.Service
}

// wrap returns a copy of c in front of next.
func (c csrf) wrap(next protocol.Service) protocol.Service {
	c.next = next
	return &c
}

// Start implements protocol.Service.
func (c *csrf) Start(ctx context.Context, x *protocol.Exchange) error {
	if isUnsafe(x.Request.Method) {
		switch {
		case c.policy.enabled.Sample():
			if err := c.evaluate(x); err != nil {
				return protocol.NewFault(protocol.ReasonDenied, err).WithEnvoyReply(invalidOrigin)
			}
		case c.policy.shadow.Sample():
			_ = c.evaluate(x) // shadow mode only counts
		}
	}
	return c.next.Start(ctx, x)
}

// isUnsafe reports whether a method is unsafe. RPC requests have no method; browsers do not send
// them.
func isUnsafe(method string) bool {
	switch method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "CONNECT": // safe (RFC 9110 9.2.1), or not sent by a page
		return false
	}
	return true
}

// Reasons for a rejection.
var (
	errMissingOrigin = errors.New("csrf: the request has no origin or referer header, or repeats it")
	errOtherOrigin   = errors.New("csrf: the request comes from another origin")
)

// evaluate counts a request and returns the reason to reject it, or nil.
func (c *csrf) evaluate(x *protocol.Exchange) error {
	source, ok := sourceOf(&x.Request.Header)
	switch {
	case !ok:
		c.missing.Add(1)
		return errMissingOrigin
	case source == "":
	case protocol.EqualFold(source, x.OriginalAuthority()), match.AnyMatches(c.policy.additional, source):
		c.valid.Add(1)
		return nil
	}
	c.invalid.Add(1)
	return errOtherOrigin
}

// sourceOf returns the host and port of the page that sent a request, from Origin or, without it,
// from Referer. ok is false if both are missing, or if the header that sourceOf reads is repeated.
// source is "" if the header has no HTTP URL. This includes the origin "null": browsers send it if
// a page hides its origin or another site redirected the request. In that case Referer would still
// name the first page.
func sourceOf(h *protocol.Header) (source string, ok bool) {
	for _, name := range [...]string{"Origin", "Referer"} {
		origin := ""
		count := 0
		for field, value := range h.All() {
			if protocol.EqualFold(field, name) {
				origin, count = value, count+1
			}
		}
		switch {
		case count > 1:
			return "", false
		case origin != "":
			return hostOf(origin), true
		}
	}
	return "", false
}

// hostOf returns the host and port of an HTTP URL, or "" if url is not an HTTP URL.
func hostOf(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || !protocol.EqualFold(scheme, "http") && !protocol.EqualFold(scheme, "https") {
		return ""
	}
	if i := strings.IndexAny(rest, "/?#\\"); i >= 0 {
		rest = rest[:i]
	}
	if !protocol.IsAuthority(rest) { // also rejects user information, which browsers do not send
		return ""
	}
	return rest
}

//nolint:gochecknoglobals // a constant
var invalidOrigin = protocol.EnvoyReply{Body: "Invalid origin", Details: "csrf_origin_mismatch"}
