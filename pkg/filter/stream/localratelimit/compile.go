package localratelimit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/router"
)

// plan is a compiled Config. It is immutable.
type plan struct {
	status            int
	enabled, enforced match.Fraction
	request, response *router.Mutation // nil: no changes
	defaultRate       *rate            // rate of the default bucket, token_bucket; nil: there is none
	perConnection     bool             // each connection has its own buckets
	defaultPool       int              // index in pools of the pool of default buckets; only with perConnection
	alwaysUsesDefault bool             // requests that match a descriptor also take a token from the default bucket
	limits            []compiledLimit
	fixedBuckets      int // number of descriptors that have one bucket each: those that are not dynamic
	pools             []rate
	maxDynamic        int
	client            match.ClientAddr
	resetsAtNextToken bool // x-ratelimit-reset is the time until the bucket has a token; false: until it is full
	addsHeaders       bool // responses have x-ratelimit headers
	resourceExhausted bool // gRPC clients get RESOURCE_EXHAUSTED; false: UNAVAILABLE
}

// compiledLimit is a compiled RateLimitConfig with the descriptors that its actions can make. The
// descriptors with the fewest empty values come first.
type compiledLimit struct {
	actions     []action
	descriptors []descriptor
}

// descriptor is a compiled Descriptor.
type descriptor struct {
	matchers []entryMatcher // one for each action
	rate     rate
	dynamic  bool // a value is empty, or perConnection is set: index refers to a pool, not a bucket
	index    int
}

// entryMatcher is a condition on the value of an entry.
type entryMatcher struct {
	matchesAny bool
	text       string
	addr       netip.Addr // only for address actions
}

// maxActions is the maximum number of actions of a rate limit. Each makes one entry of a
// descriptor.
const maxActions = 8

func (c *Config) compile() (*plan, error) {
	p := &plan{
		status:            c.Status.Code,
		alwaysUsesDefault: c.AlwaysConsumeDefault,
		maxDynamic:        c.MaxDynamic,
		perConnection:     c.PerConnection,
		resourceExhausted: c.ResourceExhausted,
		resetsAtNextToken: c.Reset == "next_token",
		addsHeaders:       c.HeadersOption == "DRAFT_VERSION_03",
	}
	if c.TrustedHops != nil {
		p.client = match.NewClientAddr("x-forwarded-for", *c.TrustedHops)
	}
	var err error
	if p.enabled, err = c.Enabled.Compile(match.AllRequests()); err != nil {
		return nil, &document.KeyError{Key: "filter_enabled", Err: err}
	}
	if p.enforced, err = c.Enforced.Compile(match.AllRequests()); err != nil {
		return nil, &document.KeyError{Key: "filter_enforced", Err: err}
	}
	if len(c.RequestAdd) > 0 {
		if p.request, err = router.CompileMutation(filter.HeaderMutation(c.RequestAdd, nil)); err != nil {
			return nil, &document.KeyError{Key: "request_headers_to_add_when_not_enforced", Err: err}
		}
	}
	if len(c.ResponseAdd) > 0 {
		if p.response, err = router.CompileResponseMutation(filter.HeaderMutation(c.ResponseAdd, nil)); err != nil {
			return nil, &document.KeyError{Key: "response_headers_to_add", Err: err}
		}
	}
	if c.Bucket != nil {
		r, compileErr := c.Bucket.compile()
		if compileErr != nil {
			return nil, &document.KeyError{Key: "token_bucket", Err: compileErr}
		}
		p.defaultRate = &r
		if p.perConnection {
			p.defaultPool = p.addPool(r)
		}
	}
	return p, p.addLimits(c)
}

// addLimits compiles the rate limits with their descriptors. It rejects rate limits and descriptors
// that do not match each other: otherwise a misspelled key would silently disable a limit.
func (p *plan) addLimits(c *Config) error {
	matched := make([]bool, len(c.Descriptors))
	for i := range c.Limits {
		keys, limit, err := c.Limits[i].compile()
		if err != nil {
			return fmt.Errorf("rate_limits[%d].%w", i, err)
		}
		for j := range c.Descriptors {
			d := &c.Descriptors[j]
			if !slices.EqualFunc(keys, d.Entries, func(key string, e Entry) bool { return key == e.Key }) {
				continue
			}
			matched[j] = true
			compiled, err := p.compileDescriptor(limit.actions, d)
			if err != nil {
				return fmt.Errorf("descriptors[%d].%w", j, err)
			}
			limit.descriptors = append(limit.descriptors, compiled)
		}
		if len(limit.descriptors) == 0 {
			return fmt.Errorf("rate_limits[%d]: no descriptor has the keys %q", i, keys)
		}
		slices.SortStableFunc(limit.descriptors, func(a, b descriptor) int { return a.emptyValues() - b.emptyValues() })
		p.limits = append(p.limits, limit)
	}
	if i := slices.Index(matched, false); i >= 0 {
		return fmt.Errorf("descriptors[%d]: no entry of rate_limits has actions with these keys in this order", i)
	}
	return nil
}

// addPool adds a pool with the rate r and returns its index.
func (p *plan) addPool(r rate) int {
	p.pools = append(p.pools, r)
	return len(p.pools) - 1
}

// emptyValues returns the number of empty values.
func (d *descriptor) emptyValues() (n int) {
	for i := range d.matchers {
		if d.matchers[i].matchesAny {
			n++
		}
	}
	return n
}

func (p *plan) compileDescriptor(actions []action, cfg *Descriptor) (descriptor, error) {
	r, err := cfg.Bucket.compile()
	if err != nil {
		return descriptor{}, fmt.Errorf("token_bucket: %w", err)
	}
	d := descriptor{rate: r, matchers: make([]entryMatcher, len(actions)), dynamic: p.perConnection}
	for i := range actions {
		value := cfg.Entries[i].Value
		m := entryMatcher{matchesAny: value == "", text: value}
		if actions[i].isAddress() && !m.matchesAny {
			prefix, err := match.ParsePrefix(value)
			if err != nil {
				return descriptor{}, fmt.Errorf("entries[%d].value: %w", i, err)
			}
			m.addr = prefix.Addr()
		}
		if d.matchers[i] = m; m.matchesAny {
			d.dynamic = true
		}
	}
	if d.dynamic {
		d.index = p.addPool(r)
	} else {
		d.index = p.fixedBuckets
		p.fixedBuckets++
	}
	return d, nil
}

func (l *RateLimitConfig) compile() (keys []string, limit compiledLimit, err error) {
	if n := len(l.Actions); n == 0 || n > maxActions {
		return nil, compiledLimit{}, fmt.Errorf("actions: found %d, want 1 to %d", n, maxActions)
	}
	for i := range l.Actions {
		key, a, err := l.Actions[i].compile()
		if err != nil {
			return nil, compiledLimit{}, fmt.Errorf("actions[%d]: %w", i, err)
		}
		keys, limit.actions = append(keys, key), append(limit.actions, a)
	}
	return keys, limit, nil
}

func (a *Action) compile() (key string, compiled action, err error) {
	count := 0
	if h := a.Header; h != nil {
		count++
		key, compiled.kind = h.Key, actionHeader
		compiled.field, err = match.NewField(h.Name)
	}
	if a.Remote != nil {
		count++
		key, compiled.kind = "remote_address", actionAddress
		compiled.v4, compiled.v6 = 32, 128
	}
	if m := a.Masked; m != nil {
		count++
		key, compiled.kind = "masked_remote_address", actionAddress
		compiled.v4, compiled.v6 = m.V4, m.V6
	}
	if g := a.Always; g != nil {
		count++
		key, compiled.kind, compiled.text = g.Key, actionConstant, g.Value
	}
	if m := a.Match; m != nil {
		count++
		key, compiled.kind, compiled.text, compiled.expect = m.Key, actionMatch, m.Value, m.Expect
		compiled.headers, err = match.CompileHeaders("headers", m.Headers)
	}
	switch {
	case err != nil:
		return "", action{}, err
	case count != 1:
		return "", action{}, fmt.Errorf("found %d actions, want one", count)
	case key == "":
		return "", action{}, errors.New("descriptor_key is empty")
	case a.Match != nil && len(compiled.headers) == 0:
		return "", action{}, errors.New("headers is empty")
	}
	return key, compiled, nil
}
