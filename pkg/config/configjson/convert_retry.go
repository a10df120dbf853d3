package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// retryPolicy converts a retry_policy, and warns of lists that it does not look at.
func (r *reader) retryPolicy(j *retryJSON) *config.RetryPolicy {
	p := &config.RetryPolicy{
		On: r.retryOn(j.On), TryTimeout: j.TryTimeout, NumRetries: j.NumRetries,
		StatusCodes: j.StatusCodes, RPCCodes: j.RPCCodes,
		BackOff: config.BackOff{Base: j.BackOff.Base, Max: j.BackOff.Max},
	}
	for _, h := range j.Headers {
		p.Headers = append(p.Headers, config.RetryHeader(h))
	}
	switch b := &p.BackOff; {
	case b.Max == 0:
		b.Max = 10 * b.Base
	case b.Max < b.Base:
		r.report.Errorf(j.BackOff.Node.Get("max_interval"), "max_interval (%v) is less than base_interval (%v)", b.Max, b.Base)
	}
	r.checkRetryLists(j, p)
	return p
}

// retryLists are the lists of a retry_policy, and the words of retry_on that they need.
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

// checkRetryLists compares the lists of a policy with the words of retry_on. Without
// retry_on, a list stands for its word: who wrote it wants that. Otherwise lists without
// their words have no effect, nor have words that are written without their lists.
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
		if !some && hasWord(j.On.Text(), list.on) {
			r.report.Warnf(j.On, "%q has no effect without a list of them", list.on)
		}
	}
}

// implyRetryOn has a policy without retry_on retry what a list of it names.
func (r *reader) implyRetryOn(j *retryJSON, p *config.RetryPolicy, list retryList) {
	for _, key := range list.keys {
		if at := j.Node.Get(key); at.Len() > 0 {
			p.On |= list.on
			r.report.Warnf(at, "%s without retry_on is taken for \"retry_on\": %q: write that, true for lost connections and 5xx as well, or false for no retry", key, list.on)
		}
	}
}

// hasWord reports whether the word of an element is one of a list.
func hasWord(text string, on config.RetryOn) bool {
	for word := range strings.SplitSeq(text, ",") {
		if strings.EqualFold(strings.TrimSpace(word), on.String()) {
			return true
		}
	}
	return false
}

// retryOn reads a switch, or words separated by commas. A switch that came out of a
// variable is a word.
func (r *reader) retryOn(n document.Node) config.RetryOn {
	var on config.RetryOn
	for word := range strings.SplitSeq(n.Text(), ",") {
		switch word = strings.TrimSpace(word); word {
		case "", "false":
		case "true":
			on |= config.RetryUsual
		default:
			known, _ := choose(r.report, n, "condition of retry_on", word, config.RetryWords(), knownRetryWords())
			on |= config.RetryWord(known)
		}
	}
	return on
}

// knownRetryWords are all that Envoy has.
func knownRetryWords() []string {
	return append(slices.Clone(config.RetryWords()), "envoy-ratelimited", "reset-before-request", "http3-post-connect-failure")
}
