package upstream

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// How an exchange counts for its host. Each attempt is counted once:
//
//	no response                           when the attempt ends    judge
//	a response that is bad by its head    when the attempt ends    judge
//	a response that is retried            when it is discarded     ResponseDiscarded
//	any other response                    when the exchange ends   observe
//
// so that a response which ends badly, such as a gRPC response with its status in trailers, does
// not count as good first. A good response costs three reads and an addition.

// intervalCounts holds the counts of an interval.
type intervalCounts struct{ requests, failures atomic.Uint64 }

// takeAndReset returns the counts and resets them.
func (w *intervalCounts) takeAndReset() (requests, failures uint64) {
	return w.requests.Swap(0), w.failures.Swap(0)
}

// recordAttempt counts the attempt at the host that has just ended with err, or with the response in x. x
// may be nil if there is none.
func (h *Host) recordAttempt(x *protocol.Exchange, err error) {
	r := h.outlierStats.Load()
	if r == nil {
		return
	}
	switch {
	case err != nil:
		r.recordFailure(err)
	case r.isBad(x.Response.Status):
		r.recordStatus(x.Response.Status, 1)
	case x.Record.Listener == nil: // no observer sees its end
		r.recordSuccess(1)
	}
}

// attemptOutcome is the result of an exchange.
type attemptOutcome struct {
	protocol string // of the downstream
	reason   protocol.Reason
	status   int // status of the host's response; 0: none
	code     int // RPC status code
}

// recordExchanges counts n exchanges with the same result, whose last attempts were at the host.
func (r *outlierStats) recordExchanges(e attemptOutcome, n int) {
	switch {
	case e.status == 0 || r.isBad(e.status): // judge has counted it
	case e.reason == protocol.ReasonNone && e.protocol == string(config.HTTP2) && e.code > 0:
		r.recordStatus(httpStatusOfGRPC(e.code), n)
	case e.reason == protocol.ReasonNone:
		r.recordSuccess(n)
	case isLocalOriginFailure(e.reason): // the response was cut short
		for range n {
			r.recordLocalFailure(e.reason)
		}
	}
}

// ResponseDiscarded records that the host's response in x is about to be discarded for a retry. It
// judges the response by its head.
func (h *Host) ResponseDiscarded(x *protocol.Exchange) {
	if x.Record.Listener == nil {
		return
	}
	e := attemptOutcome{x.Meta.Protocol, protocol.ReasonNone, x.Response.Status, protocol.GRPCStatus(&x.Response)}
	if e.isBad() {
		h.badResponses.Add(1)
	}
	if r := h.outlierStats.Load(); r != nil {
		r.recordExchanges(e, 1)
	}
}

// isBad reports whether a status counts as a failure.
func (r *outlierStats) isBad(status int) bool {
	if codes := r.detector.config.FailureStatuses; len(codes) > 0 {
		return slices.Contains(codes, status)
	}
	return status >= 500
}

// recordFailure counts an attempt without a response, if the host caused the failure.
func (r *outlierStats) recordFailure(err error) {
	reason := protocol.ReasonOf(err)
	var kept *notSent
	if errors.As(err, &kept) && reason != protocol.ConnectFailure && reason != protocol.ConnectTimeout {
		return // it waited for a connection, and there was none
	}
	if isLocalOriginFailure(reason) {
		r.recordLocalFailure(reason)
	}
}

// isLocalOriginFailure reports whether a reason is a failure of the host that Weft detected.
func isLocalOriginFailure(r protocol.Reason) bool {
	switch r { //nolint:exhaustive // all others say nothing about the host
	case protocol.ConnectFailure, protocol.ConnectTimeout, protocol.UpstreamReset, protocol.UpstreamClosed,
		protocol.UpstreamMalformed, protocol.UpstreamTimeout, protocol.ReasonPerTryTimeout, protocol.StreamIdle:
		return true
	}
	return false
}

// recordLocalFailure counts a failure that Weft detected.
func (r *outlierStats) recordLocalFailure(reason protocol.Reason) {
	cfg := r.detector.config
	if !cfg.SplitLocalOriginErrors {
		r.recordStatus(reason.Spec().HTTP, 1)
		return
	}
	r.localOrigin.requests.Add(1)
	r.localOrigin.failures.Add(1)
	r.countConsecutive(&r.failuresLocal, 1, cfg.ConsecutiveLocal, byLocal)
}

// recordSuccess counts n good responses.
func (r *outlierStats) recordSuccess(n int) {
	resetCounter(&r.failures5xx)
	resetCounter(&r.failuresGateway)
	r.recordReachable(n)
	r.externalOrigin.requests.Add(uint64(n)) //nolint:gosec // a length
}

// recordStatus counts n responses, or failures mapped to a status, that may be bad.
func (r *outlierStats) recordStatus(status, n int) {
	if status < 500 && !r.isBad(status) {
		r.recordSuccess(n)
		return
	}
	r.recordReachable(n)
	r.externalOrigin.requests.Add(uint64(n)) //nolint:gosec // a length
	if r.isBad(status) {
		r.externalOrigin.failures.Add(uint64(n)) //nolint:gosec // a length
	}
	cfg := r.detector.config
	if status >= 502 && status <= 504 {
		r.countConsecutive(&r.failuresGateway, n, cfg.ConsecutiveGateway, byGateway)
	} else {
		resetCounter(&r.failuresGateway)
	}
	if status >= 500 {
		r.countConsecutive(&r.failures5xx, n, cfg.Consecutive5xx, by5xx)
	} else {
		resetCounter(&r.failures5xx)
	}
}

// recordReachable counts n exchanges for which the host was reachable.
func (r *outlierStats) recordReachable(n int) {
	if r.detector.config.SplitLocalOriginErrors {
		resetCounter(&r.failuresLocal)
		r.localOrigin.requests.Add(uint64(n)) //nolint:gosec // a length
	}
}

// countConsecutive counts n failures in a row, and ejects the host when they are too many.
func (r *outlierStats) countConsecutive(count *atomic.Uint32, n int, c config.Consecutive, by detector) {
	if c.Failures <= 0 {
		return
	}
	now := count.Add(uint32(n))                                           //nolint:gosec // a length
	if now >= uint32(c.Failures) && count.Swap(0) != 0 && c.Enforce > 0 { //nolint:gosec // above 0
		r.detector.ejectConsecutive(r, by, c.Enforce)
	}
}

// reset resets the counts after an ejection.
func (r *outlierStats) reset() {
	resetCounter(&r.failures5xx)
	resetCounter(&r.failuresGateway)
	resetCounter(&r.failuresLocal)
	r.externalOrigin.takeAndReset()
	r.localOrigin.takeAndReset()
}

// resetCounter resets count, and writes only if needed: the counts of healthy hosts are only read.
func resetCounter(count *atomic.Uint32) {
	if count.Load() != 0 {
		count.Store(0)
	}
}

// httpStatusOfGRPC maps a gRPC status to an HTTP status, as the gRPC documentation and Envoy do. Server
// failures map to 500 and above.
func httpStatusOfGRPC(code int) int {
	switch code {
	case 2, 13, 15: // unknown, internal, data loss
		return 500
	case 12: // unimplemented
		return 501
	case protocol.GRPCUnavailable:
		return 503
	case 4: // deadline exceeded
		return 504
	default: // the client caused it, or nothing failed
		return 400
	}
}
