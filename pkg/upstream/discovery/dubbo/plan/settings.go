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
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// The parameters that decide how calls are made. The attachments that consistenthash goes
// by are said in hashAttachments, which is Weft's own: arguments are not read.
const (
	keyTimeout      = "timeout"
	keyRetries      = "retries"
	keyBalance      = "loadbalance"
	keyCluster      = "cluster"
	hashAttachments = "hash.attachments"

	// byDefault is what parameters of a whole process begin with, which count for less
	// than those of a service.
	byDefault = "default."
)

const (
	defaultTimeout = time.Minute // of a call that nobody says anything about
	mostRetries    = 16
	mostMethods    = 256 // that have routes of their own: whoever can write to a registry names them
	longest        = 24 * time.Hour
	notFound       = 60 // the status of a provider that does not have the service
)

// settings are how calls of a service are made.
type settings struct {
	loadBalance string
	policy      config.Policy
	hash        []config.HashPolicy
	forService  calls
	forMethods  map[string]calls // those that differ
}

// calls are how calls of a service, or a method of it, are made.
type calls struct {
	timeout time.Duration // for one try; 0: nothing is said
	retries int           // -1: nothing is said
}

// whole is how long a call may take with its retries.
func (c calls) whole() time.Duration {
	switch {
	case c.timeout == 0:
		return defaultTimeout
	case c.retries > 0:
		return min(longest, c.timeout*time.Duration(c.retries+1))
	}
	return c.timeout
}

// retry returns the policy of a route; nil: none. What is tried again is what is no answer of the
// service: Dubbo does not look further, either.
func (c calls) retry() *config.RetryPolicy {
	if c.retries <= 0 {
		return nil
	}
	return &config.RetryPolicy{
		On:         config.Retry5xx | config.RetryReset | config.RetryConnectFailure | config.RetryRefusedStream | config.RetryStatusCodes,
		RPCCodes:   []int{notFound},
		NumRetries: c.retries,
		TryTimeout: c.timeout,
	}
}

// readSettings returns the settings that a consumer and providers that get calls say.
// Where providers differ, the longest timeout and the fewest retries count, and the
// balancing of most of them.
func readSettings(w Reference, providers []*Provider, n *warnings) settings {
	r := &settingsReader{providers: providers, notes: n}
	if len(r.providers) == 0 {
		r.providers = []*Provider{{Consumer: w.Parameters}} // so that what the consumer says counts
	}
	s := settings{forService: r.calls(""), forMethods: map[string]calls{}}
	for _, method := range r.methods() {
		if c := r.calls(method); c != s.forService {
			s.forMethods[method] = c
		}
	}
	r.balance(&s)
	return s
}

type settingsReader struct {
	providers []*Provider // one at least
	notes     *warnings
}

// lookup returns what is said of a key, for one provider: of a method if that is not "",
// then of the service, each time by the consumer first, then of a whole process.
func lookup(consumer map[string]string, provider registry.URL, method, key string) string {
	if method != "" {
		if v := first(consumer, provider, method+"."+key); v != "" {
			return v
		}
	}
	if v := first(consumer, provider, key); v != "" {
		return v
	}
	return first(consumer, provider, byDefault+key)
}

func first(consumer map[string]string, provider registry.URL, key string) string {
	if v := consumer[key]; v != "" {
		return v
	}
	return provider.Get(key)
}

// methods returns the names of the methods that something is said of, in order: of too
// many the first.
func (r *settingsReader) methods() []string {
	names := map[string]struct{}{}
	note := func(parameters iter.Seq2[string, string]) {
		for key := range parameters {
			method, ok := strings.CutSuffix(key, "."+keyTimeout)
			if !ok {
				method, ok = strings.CutSuffix(key, "."+keyRetries)
			}
			if ok && method != "" && method+"." != byDefault && !strings.Contains(method, ".") {
				names[method] = struct{}{}
			}
		}
	}
	note(maps.All(r.providers[0].Consumer))
	for i, p := range r.providers {
		if i > 0 && !maps.Equal(p.Consumer, r.providers[0].Consumer) {
			note(maps.All(p.Consumer)) // a rule is about it
		}
		note(p.URL.Parameters.All())
	}
	all := slices.Sorted(maps.Keys(names))
	if len(all) > mostMethods {
		r.notes.add(fmt.Sprintf("timeouts or retries of %d methods: those after %q have the service's", len(all), all[mostMethods-1]))
		all = all[:mostMethods]
	}
	return all
}

// calls returns what is said of a method, or of the service.
func (r *settingsReader) calls(method string) calls {
	c := calls{retries: -1}
	var ways []string
	for _, u := range r.providers {
		if way := u.Consumer[keyCluster]; way != "" {
			ways = append(ways, way)
		}
		if ms := r.number(u, method, keyTimeout); ms > 0 {
			c.timeout = max(c.timeout, min(longest, time.Duration(min(ms, int64(longest/time.Millisecond)))*time.Millisecond))
		}
		text := lookup(u.Consumer, u.URL, method, keyRetries)
		if text == "" {
			continue
		}
		retries := int(min(mostRetries, max(0, r.number(u, method, keyRetries))))
		if c.retries < 0 || retries < c.retries {
			c.retries = retries
		}
	}
	switch way := mostCommon(ways); way {
	case "", "failover":
	case "failfast":
		c.retries = 0
	default:
		r.notes.add(fmt.Sprintf("cluster %q is treated as failfast", way))
		c.retries = 0
	}
	return c
}

// number returns the number that a parameter is; 0: it is not there, or none.
func (r *settingsReader) number(u *Provider, method, key string) int64 {
	text := lookup(u.Consumer, u.URL, method, key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.notes.add(fmt.Sprintf("%s %q is no number", key, text))
		return 0
	}
	return n
}

// balance chooses the policy.
func (r *settingsReader) balance(s *settings) {
	words := make([]string, 0, len(r.providers))
	for _, u := range r.providers {
		if word := lookup(u.Consumer, u.URL, "", keyBalance); word != "" {
			words = append(words, strings.ToLower(word))
		}
	}
	if s.loadBalance = mostCommon(words); s.loadBalance == "" {
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
		r.hash(s)
	default:
		s.policy = config.Random
		r.notes.add(fmt.Sprintf("loadbalance %q is not known: random", s.loadBalance))
	}
}

// hash finds out what consistenthash goes by.
func (r *settingsReader) hash(s *settings) {
	for name := range strings.SplitSeq(lookup(r.providers[0].Consumer, r.providers[0].URL, "", hashAttachments), ",") {
		if name = strings.TrimSpace(name); name != "" {
			s.hash = append(s.hash, config.HashPolicy{Header: name})
		}
	}
	if len(s.hash) == 0 {
		r.notes.add("loadbalance consistenthash goes by the attachments that " + hashAttachments + " names, not by arguments: it names none, so that hosts are chosen at random")
	}
}
