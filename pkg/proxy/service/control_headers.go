package service

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Headers by which internal clients control Envoy's router.
const (
	timeoutHeader           = "x-envoy-upstream-rq-timeout-ms"
	perTryTimeoutHeader     = "x-envoy-upstream-rq-per-try-timeout-ms"
	streamDurationHeader    = "x-envoy-upstream-stream-duration-ms"
	altResponseHeader       = "x-envoy-upstream-rq-timeout-alt-response"
	altStatNameHeader       = "x-envoy-upstream-alt-stat-name"
	maxRetriesHeader        = "x-envoy-max-retries"
	retryOnHeader           = "x-envoy-retry-on"
	retryOnGRPCHeader       = "x-envoy-retry-grpc-on"
	retriableStatusesHeader = "x-envoy-retriable-status-codes"
	retriableHeadersHeader  = "x-envoy-retriable-header-names"
	hedgeHeader             = "x-envoy-hedge-on-per-try-timeout"
)

// controlHeaders lists the headers that controlName knows.
//
//nolint:gochecknoglobals // a constant table
var controlHeaders = [...]string{
	timeoutHeader, perTryTimeoutHeader, streamDurationHeader, altResponseHeader, altStatNameHeader, maxRetriesHeader,
	retryOnHeader, retryOnGRPCHeader, retriableStatusesHeader, retriableHeadersHeader, hedgeHeader, expectedTimeoutHeader,
}

// controlName returns the constant for a header that controls the router, or "" for other headers.
func controlName(name string) string {
	if !protocol.HasPrefixFold(name, "x-envoy-") {
		return ""
	}
	for _, header := range controlHeaders {
		if protocol.EqualFold(name, header) {
			return header
		}
	}
	return ""
}

// overrides are the settings of a route that the headers of one request override.
type overrides struct {
	forward         config.Forward // the settings of the route with the overrides
	changed         bool           // forward differs from the settings of the route
	expectedTimeout bool           // the timeout is that of x-envoy-expected-rq-timeout-ms
	maxDuration     time.Duration  // maximum duration of the exchange; 0: no limit
	altResponse     bool           // the response to a timeout is 204
}

// Limits of values in headers.
const (
	maxHeaderRetries = 255
	maxHeaderTimeout = math.MaxInt32 * time.Millisecond
)

// readOverrides returns the settings of f with those in h. It ignores invalid values, as Envoy does.
func readOverrides(f *config.Forward, h *protocol.Header, respectExpected bool) overrides {
	o := overrides{forward: *f}
	retry := config.RetryPolicy{NumRetries: 1, Backoff: config.Backoff{Base: 25 * time.Millisecond, Max: 250 * time.Millisecond}}
	if f.Retry != nil {
		retry = *f.Retry
	}
	timeout := timeoutHeader
	if _, ok := h.Lookup(expectedTimeoutHeader); ok && respectExpected {
		timeout, o.expectedTimeout = expectedTimeoutHeader, true
	}
	if d, ok := headerTimeout(h, timeout); ok {
		o.forward.Timeout, o.forward.GRPCTimeout, o.changed = d, config.GRPCTimeout{Ignore: true}, true
	}
	o.maxDuration, _ = headerTimeout(h, streamDurationHeader)
	if d, ok := headerTimeout(h, perTryTimeoutHeader); ok {
		retry.PerTryTimeout, o.forward.Retry, o.changed = d, &retry, true
	}
	if o.readRetry(&retry, h) {
		o.forward.Retry, o.changed = &retry, true
	}
	if value := h.Get(hedgeHeader); value == "true" || value == "false" {
		o.setHedge(value == "true")
	}
	_, o.altResponse = h.Lookup(altResponseHeader)
	return o
}

// readRetry changes the conditions and the number of retries in p. It reports whether h has any of
// them.
func (o *overrides) readRetry(p *config.RetryPolicy, h *protocol.Header) (changed bool) {
	for i := range h.Len() {
		value := h.At(i).Value
		switch controlName(h.At(i).Name) {
		case retryOnHeader:
			on, _ := parseRetryOn(value, isHTTPCondition)
			p.On |= on
		case retryOnGRPCHeader:
			on, _ := parseRetryOn(value, isGRPCCondition)
			p.On |= on
		case maxRetriesHeader:
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			p.NumRetries = int(min(n, maxHeaderRetries)) //nolint:gosec // bounded by min
		case retriableStatusesHeader:
			codes := slices.Clip(p.StatusCodes) // the route owns the list
			for word := range strings.SplitSeq(value, ",") {
				if code, err := strconv.Atoi(strings.TrimSpace(word)); err == nil {
					codes = append(codes, code)
				}
			}
			p.StatusCodes = codes
		case retriableHeadersHeader:
			extras := p.Extra() // the route owns p.Extras
			extras.Headers = slices.Clip(extras.Headers)
			for word := range strings.SplitSeq(value, ",") {
				if name := strings.TrimSpace(word); name != "" {
					extras.Headers = append(extras.Headers, config.RetryHeader{Name: name})
				}
			}
			p.Extras = &extras
		default:
			continue
		}
		changed = true
	}
	return changed
}

// setHedge enables or disables hedged attempts after the per-try timeout.
func (o *overrides) setHedge(enable bool) {
	hedge := config.HedgePolicy{InitialRequests: 1}
	if o.forward.Hedge != nil {
		hedge = *o.forward.Hedge
	}
	if hedge.OnPerTryTimeout == enable {
		return
	}
	hedge.OnPerTryTimeout = enable
	o.forward.Hedge, o.changed = nil, true
	if hedge.Enabled() {
		o.forward.Hedge = &hedge
	}
}

// headerTimeout returns the value of a header in milliseconds.
func headerTimeout(h *protocol.Header, name string) (time.Duration, bool) {
	value, ok := h.Lookup(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, false
	}
	return time.Duration(min(n, uint64(maxHeaderTimeout/time.Millisecond))) * time.Millisecond, true //nolint:gosec // bounded by min
}

// parseRetryOn returns the conditions in a list for which allowed returns true. valid reports
// whether these are all of them.
func parseRetryOn(list string, allowed func(config.RetryOn) bool) (on config.RetryOn, valid bool) {
	valid = true
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		condition := config.ParseRetryOn(word)
		if word == "reset-before-request" {
			condition = config.RetryConnectFailure | config.RetryRefusedStream
		}
		switch {
		case word == "":
		case condition != 0 && allowed(condition):
			on |= condition
		default:
			valid = valid && isUnsupportedCondition(word)
		}
	}
	return on, valid
}

func isGRPCCondition(on config.RetryOn) bool { return on&retryOnAnyGRPC != 0 }
func isHTTPCondition(on config.RetryOn) bool { return on&retryOnAnyGRPC == 0 }

// isUnsupportedCondition reports whether word is a condition that Envoy knows and that has no effect
// in Weft.
func isUnsupportedCondition(word string) bool {
	return word == "envoy-ratelimited" || word == "http3-post-connect-failure"
}

// checkControls returns a Fault for the first header of names whose value is invalid.
func checkControls(h *protocol.Header, names []string) error {
	for _, name := range names {
		value, ok := h.Lookup(name)
		if !ok {
			continue
		}
		var valid bool
		switch name {
		case retryOnHeader:
			_, valid = parseRetryOn(value, isHTTPCondition)
		case retryOnGRPCHeader:
			_, valid = parseRetryOn(value, isGRPCCondition)
		default:
			_, err := strconv.ParseUint(value, 10, 64)
			valid = err == nil
		}
		if !valid {
			return protocol.Faultf(protocol.MalformedRequest, "%s has an invalid value", name)
		}
	}
	return nil
}

// altResponse makes 204 the response to a request that timed out.
type altResponse struct{}

// Finish implements protocol.Finisher.
func (altResponse) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if reason := protocol.ReasonOf(err); err == nil || reason != protocol.UpstreamTimeout && reason != protocol.ReasonPerTryTimeout {
		return err
	}
	x.LocalReplyError(err)
	x.LocalReply(204, "", "")
	return nil
}
