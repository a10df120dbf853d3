package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// previousHostsPredicate is a retry predicate that Weft always applies: retries avoid hosts that
// were tried.
const previousHostsPredicate = "envoy.retry_host_predicates.previous_hosts"

func (p fieldReader) readRetry(m *routev3.RetryPolicy) *config.RetryPolicy {
	p.checkFields(m, []string{
		"retry_on", "num_retries", "per_try_timeout", "retriable_status_codes", "retriable_headers", "retry_back_off",
		"retry_host_predicate", "host_selection_retry_max_attempts", "retriable_request_headers", "rate_limited_retry_back_off",
	}, []string{"retry_priority", "retry_options_predicates"})
	for i, h := range m.GetRetryHostPredicate() {
		if h.GetName() != previousHostsPredicate && !strings.HasSuffix(h.GetTypedConfig().GetTypeUrl(), ".PreviousHostsPredicate") {
			p.field("retry_host_predicate").index(i).reject("%s is not supported, expected %s", h.GetName(), previousHostsPredicate)
		}
	}
	out := &config.RetryPolicy{
		NumRetries:    uint32Or(m.GetNumRetries(), 1),
		PerTryTimeout: p.field("per_try_timeout").readDuration(m.GetPerTryTimeout(), 0),
		Backoff:       config.Backoff{Base: 25 * time.Millisecond, Max: 250 * time.Millisecond},
		Extras:        &config.RetryExtras{AnyMethod: true},
	}
	for word := range strings.SplitSeq(m.GetRetryOn(), ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		condition := config.ParseRetryOn(word)
		if word == "reset-before-request" {
			condition = config.RetryConnectFailure | config.RetryRefusedStream
		}
		if condition == 0 {
			p.field("retry_on").key(word).ignore()
		}
		out.On |= condition
	}
	for _, c := range m.GetRetriableStatusCodes() {
		out.StatusCodes = append(out.StatusCodes, int(c))
	}
	for i, h := range m.GetRetriableHeaders() {
		out.Extras.ResponseHeaders = append(out.Extras.ResponseHeaders, p.field("retriable_headers").index(i).readHeader(h))
	}
	for i, h := range m.GetRetriableRequestHeaders() {
		out.Extras.RequestHeaders = append(out.Extras.RequestHeaders, p.field("retriable_request_headers").index(i).readHeader(h))
	}
	p.field("rate_limited_retry_back_off").readResetHeaders(m.GetRateLimitedRetryBackOff(), out.Extras)
	if b := m.GetRetryBackOff(); b != nil {
		out.Backoff.Base = p.field("retry_back_off").field("base_interval").readDuration(b.GetBaseInterval(), out.Backoff.Base)
		out.Backoff.Max = p.field("retry_back_off").field("max_interval").readDuration(b.GetMaxInterval(), 10*out.Backoff.Base)
		if out.Backoff.Max < out.Backoff.Base {
			p.field("retry_back_off").reject("max_interval is less than base_interval")
		}
	}
	return out
}

// readResetHeaders reads the headers that say how long to wait before a retry. m may be nil.
func (p fieldReader) readResetHeaders(m *routev3.RetryPolicy_RateLimitedRetryBackOff, out *config.RetryExtras) {
	const defaultMaxReset = 300 * time.Second
	if m == nil {
		return
	}
	out.MaxReset = p.field("max_interval").readDuration(m.GetMaxInterval(), defaultMaxReset)
	if len(m.GetResetHeaders()) == 0 {
		p.field("reset_headers").reject("is empty")
	}
	for i, h := range m.GetResetHeaders() {
		at := p.field("reset_headers").index(i)
		if h.GetName() == "" {
			at.field("name").reject("is required")
		}
		switch h.GetFormat() {
		case routev3.RetryPolicy_SECONDS, routev3.RetryPolicy_UNIX_TIMESTAMP:
		default:
			at.field("format").reject("%v is not supported", h.GetFormat())
		}
		out.ResetHeaders = append(out.ResetHeaders, config.ResetHeader{Name: h.GetName(), UnixTimestamp: h.GetFormat() == routev3.RetryPolicy_UNIX_TIMESTAMP})
	}
}
