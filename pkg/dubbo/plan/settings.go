package plan

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// The parameters that determine how calls are made. hashAttachments, an extension of Weft, names
// the attachments that consistenthash uses instead of arguments.
const (
	keyTimeout      = "timeout"
	keyRetries      = "retries"
	keyBalance      = "loadbalance"
	keyCluster      = "cluster"
	hashAttachments = "hash.attachments"

	// defaultPrefix is the prefix of process-wide parameters, which yield to those of a service.
	defaultPrefix = "default."
)

const (
	defaultTimeout        = time.Minute // of a call without a configured timeout
	maxRetries            = 16
	maxMethods            = 256 // with their own routes, because anyone who can write to the registry can add methods
	maxTimeout            = 24 * time.Hour
	statusServiceNotFound = 60 // the status of a provider that does not have the service
)

// settings determine how calls of a service are made.
type settings struct {
	loadBalance string
	policy      config.LBPolicy
	hash        []config.HashPolicy
	forService  callSettings
	forMethods  map[string]callSettings // by method; only methods that differ from forService
}

// callSettings are the settings of a service, or of one of its methods.
type callSettings struct {
	timeout time.Duration // per attempt; 0: not configured
	retries int           // -1: not configured
}

// totalTimeout returns the timeout of a call with all its retries.
func (c callSettings) totalTimeout() time.Duration {
	switch {
	case c.timeout == 0:
		return defaultTimeout
	case c.retries > 0:
		return min(maxTimeout, c.timeout*time.Duration(c.retries+1))
	}
	return c.timeout
}

// retryPolicy returns the retry policy of a route, or nil for none. As in Dubbo, a response of the
// service itself, even an exception, is not retried.
func (c callSettings) retryPolicy() *config.RetryPolicy {
	if c.retries <= 0 {
		return nil
	}
	return &config.RetryPolicy{
		On:            config.Retry5xx | config.RetryReset | config.RetryConnectFailure | config.RetryRefusedStream | config.RetryStatusCodes,
		RPCCodes:      []int{statusServiceNotFound},
		NumRetries:    c.retries,
		PerTryTimeout: c.timeout,
	}
}

// readSettings combines the settings of a consumer and of the providers that get calls. If
// providers differ, it uses the longest timeout, the fewest retries, and the most common load
// balancing.
func readSettings(ref Reference, providers []*Provider, warn *warnings) settings {
	r := &settingsReader{providers: providers, warnings: warn}
	if len(r.providers) == 0 {
		r.providers = []*Provider{{Consumer: ref.Parameters}} // the parameters of the consumer still apply
	}
	s := settings{forService: r.callSettings(""), forMethods: map[string]callSettings{}}
	for _, method := range r.methods() {
		if c := r.callSettings(method); c != s.forService {
			s.forMethods[method] = c
		}
	}
	r.setLoadBalance(&s)
	return s
}

type settingsReader struct {
	providers []*Provider // at least one
	warnings  *warnings
}

// lookup returns the value of a key for one provider: of the method if it is not "", then of the
// service, then of the process. At each level the consumer's value takes precedence.
func lookup(consumer map[string]string, provider registry.URL, method, key string) string {
	if method != "" {
		if v := consumerFirst(consumer, provider, method+"."+key); v != "" {
			return v
		}
	}
	if v := consumerFirst(consumer, provider, key); v != "" {
		return v
	}
	return consumerFirst(consumer, provider, defaultPrefix+key)
}

func consumerFirst(consumer map[string]string, provider registry.URL, key string) string {
	if v := consumer[key]; v != "" {
		return v
	}
	return provider.Get(key)
}

// methods returns the names of the methods with their own timeout or retries, sorted; at most
// maxMethods of them.
func (r *settingsReader) methods() []string {
	names := map[string]struct{}{}
	collect := func(parameters iter.Seq2[string, string]) {
		for key := range parameters {
			method, ok := strings.CutSuffix(key, "."+keyTimeout)
			if !ok {
				method, ok = strings.CutSuffix(key, "."+keyRetries)
			}
			if ok && method != "" && method+"." != defaultPrefix && !strings.Contains(method, ".") {
				names[method] = struct{}{}
			}
		}
	}
	collect(maps.All(r.providers[0].Consumer))
	for i, p := range r.providers {
		if i > 0 && !maps.Equal(p.Consumer, r.providers[0].Consumer) {
			collect(maps.All(p.Consumer)) // a rule changed the parameters for this provider
		}
		collect(p.URL.Parameters.All())
	}
	list := slices.Sorted(maps.Keys(names))
	if len(list) > maxMethods {
		r.warnings.add(fmt.Sprintf("%d methods have their own timeouts or retries: methods after %q use those of the service", len(list), list[maxMethods-1]))
		list = list[:maxMethods]
	}
	return list
}

// callSettings returns the settings of a method, or the settings of the service if method is "".
func (r *settingsReader) callSettings(method string) callSettings {
	c := callSettings{retries: -1}
	var strategies []string
	for _, p := range r.providers {
		if strategy := p.Consumer[keyCluster]; strategy != "" {
			strategies = append(strategies, strategy)
		}
		if ms := r.number(p, method, keyTimeout); ms > 0 {
			c.timeout = max(c.timeout, min(maxTimeout, time.Duration(min(ms, int64(maxTimeout/time.Millisecond)))*time.Millisecond))
		}
		text := lookup(p.Consumer, p.URL, method, keyRetries)
		if text == "" {
			continue
		}
		retries := int(min(maxRetries, max(0, r.number(p, method, keyRetries))))
		if c.retries < 0 || retries < c.retries {
			c.retries = retries
		}
	}
	switch strategy := mostCommon(strategies); strategy {
	case "", "failover":
	case "failfast":
		c.retries = 0
	default:
		r.warnings.add(fmt.Sprintf("cluster %q is treated as failfast", strategy))
		c.retries = 0
	}
	return c
}

// number returns the value of a numeric parameter; 0: missing or invalid.
func (r *settingsReader) number(p *Provider, method, key string) int64 {
	text := lookup(p.Consumer, p.URL, method, key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.warnings.add(fmt.Sprintf("%s %q is not a number", key, text))
		return 0
	}
	return n
}

// setLoadBalance sets the most common load balancing policy of the providers.
func (r *settingsReader) setLoadBalance(s *settings) {
	policies := make([]string, 0, len(r.providers))
	for _, p := range r.providers {
		if policy := lookup(p.Consumer, p.URL, "", keyBalance); policy != "" {
			policies = append(policies, strings.ToLower(policy))
		}
	}
	if s.loadBalance = mostCommon(policies); s.loadBalance == "" {
		s.loadBalance = "random"
	}
	switch s.loadBalance {
	case "random":
		s.policy = config.Random
	case "roundrobin":
		s.policy = config.WeightedRoundRobin
	case "leastactive", "p2c", "adaptive":
		s.policy = config.LeastRequest
	case "shortestresponse":
		s.policy = config.PeakEWMA
	case "consistenthash":
		s.policy = config.RingHash
		r.setHash(s)
	default:
		s.policy = config.Random
		r.warnings.add(fmt.Sprintf("loadbalance %q is not supported: using random", s.loadBalance))
	}
}

// setHash reads the attachments that consistenthash uses.
func (r *settingsReader) setHash(s *settings) {
	for name := range strings.SplitSeq(lookup(r.providers[0].Consumer, r.providers[0].URL, "", hashAttachments), ",") {
		if name = strings.TrimSpace(name); name != "" {
			s.hash = append(s.hash, config.HashPolicy{Header: name})
		}
	}
	if len(s.hash) == 0 {
		r.warnings.add("loadbalance consistenthash hashes the attachments that " + hashAttachments + " lists, not arguments: the list is empty, so hosts are chosen at random")
	}
}
