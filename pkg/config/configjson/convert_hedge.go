package configjson

import "github.com/weft-proxy/weft/pkg/config"

// hedgePolicy converts a hedge_policy, and warns of parts that have no effect with the route's
// retry policy.
func (r *reader) hedgePolicy(j *hedgeJSON, retry *config.RetryPolicy) *config.HedgePolicy {
	p := &config.HedgePolicy{InitialRequests: j.Initial, OnPerTryTimeout: j.OnTryTimeout}
	if c := j.Chance; c != nil {
		whole := map[string]uint32{"HUNDRED": 100, "TEN_THOUSAND": 10_000, "MILLION": config.Millionths}[c.Denominator]
		if whole > 0 && c.Numerator > whole {
			r.report.Errorf(j.Node.Get("additional_request_chance").Get("numerator"), "found %d, which is greater than the denominator (%d)", c.Numerator, whole)
		} else if whole > 0 {
			p.AdditionalRequestChance = c.Numerator * (config.Millionths / whole)
		}
	}
	const silent = config.Retry5xx | config.RetryGatewayError | config.RetryReset
	at := j.Node.Get("hedge_on_per_try_timeout")
	switch {
	case !p.OnPerTryTimeout:
	case retry == nil || retry.NumRetries == 0 || retry.On&silent == 0:
		r.report.Warnf(at, "hedge_on_per_try_timeout has no effect without a retry_policy that retries timeouts: expected retry_on, and num_retries of at least 1")
	case retry.PerTryTimeout == 0:
		r.report.Warnf(at, "hedge_on_per_try_timeout has an effect only on requests with a per-try timeout: expected retry_timeout")
	}
	return p
}
