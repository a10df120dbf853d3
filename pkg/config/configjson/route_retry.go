package configjson

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// retryJSON is a route's retry_policy: MOSN's keys, with Envoy's as aliases.
type retryJSON struct {
	Node        document.Node     `key:"."`
	On          document.Node     `key:"retry_on" choice:"retry,list" doc:"Conditions for a retry: true for 5xx responses, gRPC status unavailable (14), lost connections and the lists below; or names, separated by commas, from docs/routing.md." accept:"bool|string" example:"true"`
	TryTimeout  time.Duration     `key:"retry_timeout,per_try_timeout" doc:"Timeout of one attempt. 0s: only the timeout of the route applies." default:"0s" example:"\"1s\""`
	NumRetries  int               `key:"num_retries" doc:"Maximum number of retries of a request." unit:"retries" min:"0" max:"100" default:"1" example:"3"`
	StatusCodes []int             `key:"status_codes,retriable_status_codes" doc:"Further responses to retry: HTTP statuses, or for RPC their HTTP equivalents." min:"100" max:"599" example:"[429]"`
	RPCCodes    []int             `key:"rpc_status_codes" doc:"Further RPC responses to retry: statuses in the numbers of the RPC protocol." min:"1" max:"65535" example:"[100]"`
	Headers     []retryHeaderJSON `key:"retriable_headers" doc:"Further responses to retry: those with one of these headers."`
	BackOff     backOffJSON       `key:"retry_back_off" doc:"Delay of retries: a random time up to a bound that grows with each retry of a request."`

	HostPredicate document.Node `key:"retry_host_predicate" doc:"Hosts that are not tried again." accept:"list" ignored:"hosts that have been tried are skipped while another host exists" example:"[{\"name\": \"envoy.retry_host_predicates.previous_hosts\"}]"`
	HostAttempts  int           `key:"host_selection_retry_max_attempts" doc:"Maximum number of attempts to select another host." ignored:"Weft finds an untried host immediately if there is one" example:"3"`
	Priority      document.Node `key:"retry_priority" doc:"Priorities that retries prefer." accept:"object" unsupported:"retry_priority" example:"{\"name\": \"envoy.retry_priorities.previous_priorities\"}"`
	RateLimited   document.Node `key:"rate_limited_retry_back_off" doc:"Retry delays that responses request." accept:"object" unsupported:"rate_limited_retry_back_off" example:"{\"max_interval\": \"1s\"}"`
}

type retryHeaderJSON struct {
	Name  string `key:"name" doc:"Name of the header." required:"true" example:"\"x-try-again\""`
	Value string `key:"value" doc:"Required value of the header. Empty: any value." example:"\"yes\""`
}

type backOffJSON struct {
	Node document.Node `key:"."`
	Base time.Duration `key:"base_interval" doc:"Upper bound of the delay before the first retry. The bound for the second retry is three times as long, and for the third seven times. 0s: no delay." max:"1h" default:"25ms" example:"\"100ms\""`
	Max  time.Duration `key:"max_interval" doc:"Maximum value of the upper bound. 0s: ten times base_interval." max:"1h" default:"0s" example:"\"1s\""`
}

// hedgeJSON is a route's hedge_policy, with Envoy's keys.
type hedgeJSON struct {
	Node         document.Node `key:"."`
	Initial      int           `key:"initial_requests" doc:"Number of attempts that Weft sends immediately, each to a different host; at most the number of hosts of the cluster." unit:"requests" min:"1" max:"10" default:"1" example:"2"`
	Chance       *chanceJSON   `key:"additional_request_chance" doc:"Fraction of requests for which Weft immediately sends one more attempt. Absent: none."`
	OnTryTimeout bool          `key:"hedge_on_per_try_timeout" doc:"true: an attempt that exceeds retry_timeout continues, and another host is tried concurrently, if retry_policy retries timeouts and has retries left. false: the attempt ends." example:"true"`
}

type chanceJSON struct {
	Numerator   uint32 `key:"numerator" doc:"Numerator of the fraction." example:"25"`
	Denominator string `key:"denominator" doc:"Denominator of the fraction." enum:"HUNDRED|TEN_THOUSAND|MILLION" default:"HUNDRED" example:"\"MILLION\""`
}

// readRetryPolicy converts a retry_policy, and warns about lists without effect.
func (r *routeReader) readRetryPolicy(j *retryJSON) *config.RetryPolicy {
	p := &config.RetryPolicy{
		On: r.parseRetryOn(j.On), PerTryTimeout: j.TryTimeout, NumRetries: j.NumRetries,
		StatusCodes: j.StatusCodes, RPCCodes: j.RPCCodes,
		Backoff: config.Backoff{Base: j.BackOff.Base, Max: j.BackOff.Max},
	}
	if len(j.Headers) > 0 {
		p.Extras = &config.RetryExtras{}
		for _, h := range j.Headers {
			p.Extras.Headers = append(p.Extras.Headers, config.RetryHeader(h))
		}
	}
	switch b := &p.Backoff; {
	case b.Max == 0:
		b.Max = 10 * b.Base
	case b.Max < b.Base:
		r.report.Errorf(j.BackOff.Node.Get("max_interval"), "max_interval (%v) is less than base_interval (%v)", b.Max, b.Base)
	}
	r.checkRetryLists(j, p)
	return p
}

// retryLists returns the lists of a retry_policy, each with the element of retry_on that it
// requires.
func retryLists() []retryList {
	return []retryList{
		{config.RetryStatusCodes, []string{"status_codes", "retriable_status_codes", "rpc_status_codes"}},
		{config.RetryHeaders, []string{"retriable_headers"}},
	}
}

type retryList struct {
	on   config.RetryOn
	keys []string
}

// checkRetryLists compares the lists of a policy with the names in retry_on. Without retry_on, a
// list implies its name. Otherwise a list without its name, or a name without its list, has no
// effect.
func (r *routeReader) checkRetryLists(j *retryJSON, p *config.RetryPolicy) {
	switch {
	case !j.On.Exists():
		for _, list := range retryLists() {
			r.implyRetryOn(j, p, list)
		}
		return
	case j.On.Kind() != document.String || p.On == 0:
		return
	}
	for _, list := range retryLists() {
		hasValues := false
		for _, key := range list.keys {
			node := j.Node.Get(key)
			hasValues = hasValues || node.Len() > 0
			if node.Len() > 0 && p.On&list.on == 0 {
				r.report.Warnf(node, "%s has no effect without %q in retry_on", key, list.on)
			}
		}
		if !hasValues && containsRetryOn(j.On.Text(), list.on) {
			r.report.Warnf(j.On, "%q has no effect without a list of statuses or headers", list.on)
		}
	}
}

// implyRetryOn adds the element of a list to a policy without retry_on.
func (r *routeReader) implyRetryOn(j *retryJSON, p *config.RetryPolicy, list retryList) {
	for _, key := range list.keys {
		if node := j.Node.Get(key); node.Len() > 0 {
			p.On |= list.on
			r.report.Warnf(node, "%s without retry_on means \"retry_on\": %q: set that explicitly, or set true to retry lost connections and 5xx too, or false for no retries", key, list.on)
		}
	}
}

// containsRetryOn reports whether a comma-separated list contains the name of an element.
func containsRetryOn(text string, on config.RetryOn) bool {
	for name := range strings.SplitSeq(text, ",") {
		if strings.EqualFold(strings.TrimSpace(name), on.String()) {
			return true
		}
	}
	return false
}

// parseRetryOn parses a boolean, or names separated by commas. A boolean from an environment
// variable is a string.
func (r *routeReader) parseRetryOn(n document.Node) config.RetryOn {
	var on config.RetryOn
	for word := range strings.SplitSeq(n.Text(), ",") {
		switch word = strings.TrimSpace(word); word {
		case "", "false":
		case "true":
			on |= config.RetryOnDefault
		default:
			name, _ := choose(r.report, n, "condition of retry_on", word, config.RetryOnNames(), knownRetryOnNames())
			on |= config.ParseRetryOn(name)
		}
	}
	return on
}

// knownRetryOnNames returns all retry_on names of Envoy.
func knownRetryOnNames() []string {
	return append(slices.Clone(config.RetryOnNames()), "envoy-ratelimited", "reset-before-request", "http3-post-connect-failure")
}

// readHedgePolicy converts a hedge_policy, and warns about settings that have no effect with the
// retry policy of the route.
func (r *routeReader) readHedgePolicy(j *hedgeJSON, retry *config.RetryPolicy) *config.HedgePolicy {
	p := &config.HedgePolicy{InitialRequests: j.Initial, OnPerTryTimeout: j.OnTryTimeout}
	if c := j.Chance; c != nil {
		denominator := map[string]uint32{"HUNDRED": 100, "TEN_THOUSAND": 10_000, "MILLION": config.Millionths}[c.Denominator]
		if denominator > 0 && c.Numerator > denominator {
			r.report.Errorf(j.Node.Get("additional_request_chance").Get("numerator"), "found %d, which is greater than the denominator (%d)", c.Numerator, denominator)
		} else if denominator > 0 {
			p.AdditionalRequestChance = c.Numerator * (config.Millionths / denominator)
		}
	}
	const timeoutConditions = config.Retry5xx | config.RetryGatewayError | config.RetryReset
	node := j.Node.Get("hedge_on_per_try_timeout")
	switch {
	case !p.OnPerTryTimeout:
	case retry == nil || retry.NumRetries == 0 || retry.On&timeoutConditions == 0:
		r.report.Warnf(node, "hedge_on_per_try_timeout has no effect without a retry_policy that retries timeouts: expected retry_on, and num_retries of at least 1")
	case retry.PerTryTimeout == 0:
		r.report.Warnf(node, "hedge_on_per_try_timeout has an effect only on requests with a per-try timeout: expected retry_timeout")
	}
	return p
}
