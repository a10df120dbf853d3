// Package jwtauthn implements the jwt_authn filter, which rejects requests without a token (RFC
// 7519) of a trusted issuer.
package jwtauthn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Factory returns the filter factory. Its filters share the fetched keys.
func Factory() filter.StreamFilterFactory { return newFactory(time.Now) }

// newFactory is Factory with now as the clock.
func newFactory(now func() time.Time) filter.StreamFilterFactory {
	cache := &jwksCache{byConfig: make(map[RemoteJWKS]*remoteKeys)}
	return filter.StreamFilterFactory{
		Name:    "jwt_authn",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		Inherit: inherit,
		New:     func(cfg any, env filter.Env) (filter.Filter, error) { return build(cfg, env, cache, now) },
		Metrics: []metrics.Metric{requestsMetric()},
	}
}

func requestsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_jwt_authn_requests_total", Help: "Requests that the jwt_authn filter checked against a rule, by result: allowed or denied.", Kind: metrics.KindCounter, Labels: []string{"result"}}
}

func build(cfg any, env filter.Env, cache *jwksCache, now func() time.Time) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	a := authn{
		rules:           c.Rules,
		providers:       make(map[string]*provider, len(c.Providers)),
		bypassPreflight: c.BypassPreflight,
		challengeRealm:  c.ChallengeRealm,
		allowed:         env.Metrics.Counter(requestsMetric(), "allowed"),
		denied:          env.Metrics.Counter(requestsMetric(), "denied"),
	}
	for i := range a.rules {
		if r := a.rules[i].Requires; r != nil {
			a.allRequirements = append(a.allRequirements, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		p := c.Providers[name]
		prov := &provider{config: p, verifier: newVerifier(&p, now), headers: tokenHeaders(&p), params: tokenParams(&p)}
		if p.Remote != nil {
			prov.source = cache.getOrCreate(*p.Remote, env.ClusterClient, now)
		} else {
			set, err := p.Local.keys()
			if err != nil {
				return nil, fmt.Errorf("providers.%s: %w", name, err)
			}
			prov.source = staticKeys(set)
		}
		a.providers[name] = prov
		for _, h := range p.ClaimHeaders {
			a.reservedHeaders = append(a.reservedHeaders, h.Header)
		}
		if p.PayloadHeader != "" {
			a.reservedHeaders = append(a.reservedHeaders, p.PayloadHeader)
		}
	}
	return func(next protocol.Service) protocol.Service {
		a := a
		a.next = next
		return &a
	}, nil
}

// authn is immutable; only its counters change.
type authn struct {
	rules           []Rule
	allRequirements []*Requirement // of all rules
	providers       map[string]*provider
	reservedHeaders []string // headers that only the filter may set
	bypassPreflight bool     // CORS preflights need no token
	challengeRealm  bool     // challenges have the URL of the request as realm
	allowed, denied *metrics.Counter
	next            protocol.Service
}

// Start implements protocol.Service. It moves the exchange to a blocking goroutine only if it
// has to wait for keys.
func (a *authn) Start(ctx context.Context, x *protocol.Exchange) error {
	rules := a.requirementsFor(x)
	if len(rules) == 0 {
		for _, name := range a.reservedHeaders {
			removeAllSpellings(&x.Request.Header, name)
		}
		return a.next.Start(ctx, x)
	}
	err := a.evaluate(x, rules, doNotWait)
	switch {
	case errors.Is(err, errMustWait):
		return x.RunBlocking(ctx, protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			return a.serveAfterFetch(ctx, x, rules)
		}))
	case err != nil:
		return a.reject(x, err)
	}
	return a.next.Start(ctx, x)
}

// serveAfterFetch evaluates x on a goroutine that may wait for keys, and serves x if it is allowed.
func (a *authn) serveAfterFetch(ctx context.Context, x *protocol.Exchange, rules []*Requirement) error {
	err := a.evaluate(x, rules, func(fetched <-chan struct{}) error { return awaitKeys(ctx, x, fetched) })
	switch {
	case errors.Is(err, errUndecided):
		return err
	case err != nil:
		return a.reject(x, err)
	}
	return x.Serve(ctx, a.next)
}

// errMissing means that the request has no token. The challenge for the client then has no error
// code.
var errMissing = errors.New("the request has no token")

// reject rejects x with a local reply for err (RFC 6750 3).
func (a *authn) reject(x *protocol.Exchange, err error) error {
	a.denied.Add(1)
	if isForbidden(err) {
		x.LocalReplyError(protocol.NewFault(protocol.ReasonDenied, err).WithEnvoyReply(envoyReply(err))) // another token would not help: 403
		return nil
	}
	x.LocalReplyError(protocol.NewFault(protocol.Unauthenticated, err).WithEnvoyReply(envoyReply(err)))
	var parameters []string
	if a.challengeRealm {
		parameters = append(parameters, ` realm="`+filter.RequestURL(x)+`"`)
	}
	if !errors.Is(err, errMissing) {
		parameters = append(parameters, ` error="invalid_token"`)
	}
	x.Response.Header.Add("WWW-Authenticate", "Bearer"+strings.Join(parameters, ","))
	return nil
}

// requirementsFor returns the requirements that x must satisfy: for each variant of the original
// path, the requirement of the first rule that matches the variant. x must satisfy all of them, so
// that no spelling of a path bypasses a rule. If the path has too many variants, or the RPC call is
// unidentified, x must satisfy every rule.
func (a *authn) requirementsFor(x *protocol.Exchange) []*Requirement {
	if a.bypassPreflight && isPreflight(x) {
		return nil
	}
	paths, ok := pathVariants(pathOf(x))
	if !ok || match.IsUnidentifiedCall(x) {
		return a.allRequirements
	}
	var requirements []*Requirement
	for _, p := range paths {
		i := slices.IndexFunc(a.rules, func(r Rule) bool { return r.Match.matches(p) })
		if i >= 0 && a.rules[i].Requires != nil && !slices.Contains(requirements, a.rules[i].Requires) {
			requirements = append(requirements, a.rules[i].Requires)
		}
	}
	return requirements
}

// isPreflight reports whether x is a CORS-preflight request (Fetch standard). A browser sends it
// without credentials to learn whether a script may send the actual request.
func isPreflight(x *protocol.Exchange) bool {
	h := &x.Request.Header
	return x.Request.Method == "OPTIONS" && h.Get("origin") != "" && h.Get("access-control-request-method") != ""
}

// pathOf returns the path that rules match: the original path, or /service/method for an RPC call
// with the path "/", which dubbo_stream sets for routes.
func pathOf(x *protocol.Exchange) string {
	path, h := x.OriginalPath(), &x.Request.Header
	if x.Request.Method == "" && path == "/" {
		return "/" + h.Get(xprotocol.FieldService) + "/" + h.Get(xprotocol.FieldMethod)
	}
	return path
}

// evaluate returns nil if x is allowed, and then sets the headers and metadata from its tokens. If
// evaluate returns an error, x is unchanged. To wait for keys, it calls await; it returns the
// errors of await.
func (a *authn) evaluate(x *protocol.Exchange, rules []*Requirement, await awaitFunc) error {
	e := &evaluation{authn: a, x: x, await: await, results: map[*provider]tokenResult{}}
	for _, r := range rules {
		if err := e.evaluateRequirement(r, nil); err != nil {
			return err
		}
	}
	for _, name := range a.reservedHeaders {
		removeAllSpellings(&x.Request.Header, name)
	}
	for _, name := range slices.Sorted(maps.Keys(a.providers)) {
		p := a.providers[name]
		if result, ok := e.results[p]; ok && result.err == nil {
			p.applyClaims(x, result)
		}
	}
	a.allowed.Add(1)
	return nil
}

// evaluation evaluates requirements for one request.
type evaluation struct {
	*authn
	x       *protocol.Exchange
	await   awaitFunc
	results map[*provider]tokenResult // results of the providers evaluated so far
}

// tokenResult is the result of a provider for a request.
type tokenResult struct {
	err    error // nil for a valid token; errMissing; errUndecided; or the reason why the token is invalid
	token  string
	claims map[string]any
}

// evaluateRequirement returns nil if the request satisfies r. providers names the providers of the
// list that contains r; it is empty if no list contains r or the list names none. The error is
// errMissing if a token is missing and none is invalid.
func (e *evaluation) evaluateRequirement(r *Requirement, providers []string) error {
	switch {
	case r.Any != nil:
		return e.evaluateAny(r.Any.Requirements, r.providerNames(nil))
	case r.All != nil:
		return e.evaluateAll(r.All.Requirements, r.providerNames(nil))
	case r.Provider != "":
		return e.result(e.providers[r.Provider]).err
	}
	err := e.checkPresentTokens(providers)
	if r.AllowMissingOrFailed != nil && !errors.Is(err, errUndecided) {
		return nil
	}
	return err
}

func (e *evaluation) evaluateAny(list []Requirement, providers []string) error {
	var errs []error
	for i := range list {
		err := e.evaluateRequirement(&list[i], providers)
		if err == nil || errors.Is(err, errUndecided) {
			return err
		}
		if !errors.Is(err, errMissing) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return errMissing
	}
	return failures(errs)
}

// failures are the errors of the members of a requires_any list if none of them is satisfied.
type failures []error

// Error implements error.
func (f failures) Error() string { return errors.Join(f...).Error() }

// Unwrap returns the errors of the members, for package errors.
func (f failures) Unwrap() []error { return f }

// isForbidden reports whether err means that a token is valid except for its audience. In failures
// it ignores errors about another issuer, as Envoy does: such a token is not meant for the
// provider.
func isForbidden(err error) bool {
	var list failures
	if !errors.As(err, &list) {
		return errors.Is(err, errAudience)
	}
	forbidden := false
	for _, memberErr := range list {
		switch {
		case isForbidden(memberErr):
			forbidden = true
		case !errors.Is(memberErr, jwt.ErrTokenInvalidIssuer):
			return false
		}
	}
	return forbidden
}

func (e *evaluation) evaluateAll(list []Requirement, providers []string) error {
	missing := false
	for i := range list {
		err := e.evaluateRequirement(&list[i], providers)
		if errors.Is(err, errMissing) {
			missing = true // an invalid token in another member takes precedence
		} else if err != nil {
			return err
		}
	}
	if missing {
		return errMissing
	}
	return nil
}

// checkPresentTokens evaluates the named providers, or all providers if there are no names. It
// returns nil if one of them has a valid token or none has a token, else the error of an invalid
// token.
func (e *evaluation) checkPresentTokens(providers []string) error {
	if len(providers) == 0 {
		providers = slices.Collect(maps.Keys(e.providers))
	}
	var invalidErr error
	valid := false
	for _, name := range providers {
		err := e.result(e.providers[name]).err
		switch {
		case errors.Is(err, errUndecided):
			return err
		case err == nil:
			valid = true
		case !errors.Is(err, errMissing):
			invalidErr = err
		}
	}
	if valid {
		return nil
	}
	return invalidErr
}

// result returns the tokenResult of p, which it computes at the first call.
func (e *evaluation) result(p *provider) tokenResult {
	r, ok := e.results[p]
	if !ok {
		r = p.verifyToken(e.x, e.await)
		e.results[p] = r
	}
	return r
}
