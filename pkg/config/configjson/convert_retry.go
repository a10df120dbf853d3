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
	if j.On.Kind() != document.String || p.On == 0 {
		return p
	}
	for _, list := range []struct {
		on   config.RetryOn
		keys []string
	}{
		{config.RetryStatusCodes, []string{"status_codes", "retriable_status_codes", "rpc_status_codes"}},
		{config.RetryHeaders, []string{"retriable_headers"}},
	} {
		some := false
		for _, key := range list.keys {
			at := j.Node.Get(key)
			some = some || at.Len() > 0
			if at.Len() > 0 && p.On&list.on == 0 {
				r.report.Warnf(at, "%s has no effect without %q in retry_on", key, list.on)
			}
		}
		if !some && p.On&list.on != 0 {
			r.report.Warnf(j.On, "%q has no effect without a list of them", list.on)
		}
	}
	return p
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
