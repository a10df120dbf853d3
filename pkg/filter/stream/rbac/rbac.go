// Package rbac implements the rbac filter, which allows or denies requests and connections by
// policies (role-based access control).
package rbac

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if err := rejectMatchers(c.Matcher, c.ShadowMatcher); err != nil {
		return err
	}
	_, _, err := c.compile()
	return err
}

// rejectMatchers rejects matching trees, also empty ones. An empty tree matches nothing and so
// allows no request, while a filter without rules allows every request.
func rejectMatchers(enforced, shadow map[string]any) error {
	for _, matcher := range []struct {
		key  string
		tree map[string]any
	}{{"matcher", enforced}, {"shadow_matcher", shadow}} {
		if matcher.tree != nil {
			return &document.KeyError{Key: matcher.key, Err: errors.New("matching trees are not supported yet")}
		}
	}
	return nil
}

func (c *Config) compile() (enforced, shadow *rules, err error) {
	if enforced, err = c.Rules.compile("rules"); err != nil {
		return nil, nil, err
	}
	shadow, err = c.Shadow.compile("shadow_rules")
	return enforced, shadow, err
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    name,
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{allowedMetric(), deniedMetric(), shadowAllowedMetric(), shadowDeniedMetric()},
	}
}

const name = "rbac"

func allowedMetric() metrics.Metric {
	return filter.Counter(name, "allowed", "Requests that the rules of the rbac filter allowed.")
}

func deniedMetric() metrics.Metric {
	return filter.Counter(name, "denied", "Requests that the rbac filter rejected.")
}

func shadowAllowedMetric() metrics.Metric {
	return filter.Counter(name, "shadow_allowed", "Requests that the shadow rules of the rbac filter would have allowed.")
}

func shadowDeniedMetric() metrics.Metric {
	return filter.Counter(name, "shadow_denied", "Requests that the shadow rules of the rbac filter would have rejected.")
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	enforced, shadow, err := c.compile()
	if err != nil {
		return nil, err
	}
	if enforced == nil && shadow == nil {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	f := rbac{pathsAsSent: c.PathsAsSent}
	if c.TrustedHops != nil {
		f.client = match.NewClientAddr("x-forwarded-for", *c.TrustedHops)
	}
	f.enforced = enforced.withCounters(env, allowedMetric(), deniedMetric(), c.Prefix)
	if c.ShadowMetadata {
		f.shadowKeys = shadowKeys{c.ShadowPrefix + "shadow_effective_policy_id", c.ShadowPrefix + "shadow_engine_result"}
	}
	f.shadow = shadow.withCounters(env, shadowAllowedMetric(), shadowDeniedMetric(), c.ShadowPrefix)
	return f.wrap, nil
}

// rbac is immutable; only its counters change.
type rbac struct {
	client           match.ClientAddr
	pathsAsSent      bool
	enforced, shadow countedRules
	shadowKeys       shadowKeys
	next             protocol.Service
}

// countedRules are rules with the counters of their decisions.
type countedRules struct {
	rules           *rules // nil: none
	allowed, denied *metrics.Counter
}

// withCounters returns r, which may be nil, with the counters of its decisions.
func (r *rules) withCounters(env filter.Env, allowed, denied metrics.Metric, prefix string) countedRules {
	return countedRules{r, env.Metrics.Counter(allowed, prefix), env.Metrics.Counter(denied, prefix)}
}

// wrap returns a service that runs f and then next.
func (f rbac) wrap(next protocol.Service) protocol.Service {
	f.next = next
	return &f
}

// Start implements protocol.Service.
func (f *rbac) Start(ctx context.Context, x *protocol.Exchange) error {
	e := evaluation{x: x}
	e.path, _, _ = strings.Cut(x.OriginalPath(), "?")
	policy, err := f.evaluate(&f.shadow, &e)
	f.recordShadow(x, policy, err)
	if _, err := f.evaluate(&f.enforced, &e); err != nil {
		return protocol.NewFault(protocol.ReasonDenied, err).WithEnvoyReply(envoyReply(err))
	}
	return f.next.Start(ctx, x)
}

// recordShadow stores the decision of the shadow rules in the metadata of x.
func (f *rbac) recordShadow(x *protocol.Exchange, policy string, err error) {
	if f.shadow.rules == nil || f.shadowKeys == (shadowKeys{}) {
		return
	}
	result := "allowed"
	if err != nil {
		result = "denied"
	}
	x.Metadata.Set(shadowNamespace, f.shadowKeys.result, result)
	x.Metadata.Del(shadowNamespace, f.shadowKeys.policy)
	if policy != "" {
		x.Metadata.Set(shadowNamespace, f.shadowKeys.policy, policy)
	}
}

// shadowNamespace is the metadata namespace of the decision of shadow rules, as in Envoy.
const shadowNamespace = "envoy.filters.http.rbac"

// shadowKeys are the metadata keys of the decision of shadow rules; empty: it is not stored.
type shadowKeys struct{ policy, result string }

// evaluate evaluates the rules and counts the decision. It returns the name of the policy that
// matched, if one did, and the error that denies e, or nil if e is allowed.
func (f *rbac) evaluate(counted *countedRules, e *evaluation) (policy string, err error) {
	if counted.rules == nil {
		return "", nil
	}
	policy, err = f.decide(counted.rules, e, counted == &f.enforced)
	if err != nil {
		counted.denied.Add(1)
	} else {
		counted.allowed.Add(1)
	}
	return policy, err
}

// Namespace and key of the metadata value that LOG sets, as in Envoy.
const (
	logNamespace = "envoy.common"
	logKey       = "access_log_hint"
)

// decide returns the decision of r. If prepare denies e, a DENY rule counts as matched, so that a
// later filter that reads the name of the policy does not skip the request.
func (f *rbac) decide(r *rules, e *evaluation, enforced bool) (policy string, err error) {
	if err := f.prepare(r, e); err != nil {
		if r.action == actionDeny && len(r.policies) > 0 {
			policy = r.policies[0].name
		}
		return policy, err
	}
	name, matched := r.matchingPolicy(e)
	switch {
	case r.action == actionAllow && !matched:
		return "", errNoPolicy
	case r.action == actionDeny && matched:
		return name, &policyDenial{name}
	case r.action == actionLog && enforced:
		hint := "false"
		if matched {
			hint = "true"
		}
		e.x.Metadata.Set(logNamespace, logKey, hint)
	}
	return name, nil
}

// policyDenial is the error of a request that matches a DENY policy.
type policyDenial struct{ policy string }

func (d *policyDenial) Error() string { return fmt.Sprintf("rbac: denied by policy %q", d.policy) }

// Errors that deny a request without a matching DENY policy.
var (
	errNoPolicy         = errors.New("rbac: not allowed by any policy")
	errAmbiguous        = errors.New("rbac: an application may read the path differently than the rules")
	errUnidentifiedCall = errors.New("rbac: the RPC request does not identify its method, or a provider may read it as another")
	errNoClient         = errors.New("rbac: x-forwarded-for has no valid client address")
)

// prepare finds the client address if r reads it. It returns an error, which denies the request, if
// a value that r reads is missing or ambiguous. This applies to ALLOW and DENY: a condition that
// does not match would let the request pass DENY rules. With pathsAsSent, prepare does not verify
// the path and the method.
func (f *rbac) prepare(r *rules, e *evaluation) error {
	if r.action == actionLog {
		e.client, _ = f.client.Address(e.x) // LOG denies nothing
		return nil
	}
	switch {
	case r.readsFields && match.HasUnreadableHeader(e.x):
		return errUnidentifiedCall
	case f.pathsAsSent:
	case r.readsPath && e.x.Request.Method != "" && isAmbiguous(e.path):
		return errAmbiguous
	case r.readsCall && match.IsUnidentifiedCall(e.x):
		return errUnidentifiedCall
	}
	if r.readsClient {
		var err error
		if e.client, err = f.client.Address(e.x); err != nil {
			return errNoClient
		}
	}
	return nil
}
