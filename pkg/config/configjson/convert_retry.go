package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// retryPolicy converts a retry_policy, and warns of lists without effect.
func (r *reader) retryPolicy(j *retryJSON) *config.RetryPolicy {
	p := &config.RetryPolicy{
		On: r.retryOn(j.On), PerTryTimeout: j.TryTimeout, NumRetries: j.NumRetries,
		StatusCodes: j.StatusCodes, RPCCodes: j.RPCCodes,
		Backoff: config.Backoff{Base: j.BackOff.Base, Max: j.BackOff.Max},
	}
	for _, h := range j.Headers {
		p.Headers = append(p.Headers, config.RetryHeader(h))
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

// retryLists returns the lists of a retry_policy and the retry_on elements that they need.
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

// checkRetryLists compares the lists of a policy with the words of retry_on. Without retry_on, a
// list implies its word. Otherwise a list without its word, or a word without its list, has no
// effect.
func (r *reader) checkRetryLists(j *retryJSON, p *config.RetryPolicy) {
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
		some := false
		for _, key := range list.keys {
			at := j.Node.Get(key)
			some = some || at.Len() > 0
			if at.Len() > 0 && p.On&list.on == 0 {
				r.report.Warnf(at, "%s has no effect without %q in retry_on", key, list.on)
			}
		}
		if !some && containsRetryOn(j.On.Text(), list.on) {
			r.report.Warnf(j.On, "%q has no effect without a list of statuses or headers", list.on)
		}
	}
}

// implyRetryOn adds the element of a list to a policy without retry_on.
func (r *reader) implyRetryOn(j *retryJSON, p *config.RetryPolicy, list retryList) {
	for _, key := range list.keys {
		if at := j.Node.Get(key); at.Len() > 0 {
			p.On |= list.on
			r.report.Warnf(at, "%s without retry_on means \"retry_on\": %q: set that explicitly, or set true to retry lost connections and 5xx too, or false for no retries", key, list.on)
		}
	}
}

// containsRetryOn reports whether a list of words contains the word of an element.
func containsRetryOn(text string, on config.RetryOn) bool {
	for word := range strings.SplitSeq(text, ",") {
		if strings.EqualFold(strings.TrimSpace(word), on.String()) {
			return true
		}
	}
	return false
}

// retryOn parses a boolean, or words separated by commas. A boolean from an environment variable is
// a string.
func (r *reader) retryOn(n document.Node) config.RetryOn {
	var on config.RetryOn
	for word := range strings.SplitSeq(n.Text(), ",") {
		switch word = strings.TrimSpace(word); word {
		case "", "false":
		case "true":
			on |= config.RetryOnDefault
		default:
			known, _ := choose(r.report, n, "condition of retry_on", word, config.RetryOnNames(), knownRetryOnNames())
			on |= config.ParseRetryOn(known)
		}
	}
	return on
}

// knownRetryOnNames returns all words of Envoy.
func knownRetryOnNames() []string {
	return append(slices.Clone(config.RetryOnNames()), "envoy-ratelimited", "reset-before-request", "http3-post-connect-failure")
}
