package outlier

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Stats records the recent results of a host. The goroutines that end exchanges write its counters
// without a lock. Each attempt is counted at most once:
//
//	no response                           when the attempt ends    RecordFailure
//	a response whose status is a failure  when the attempt ends    RecordHead
//	a response that is retried            when it is discarded     RecordExchanges
//	any other response                    when the exchange ends   RecordExchanges
//
// Other responses are counted at the end because they can still fail: a gRPC response has its
// status in the trailers. If nothing reports the end of the exchange, RecordHead counts them. A
// good response costs three reads and an addition; with SplitLocalOriginErrors, one more of each.
type Stats struct {
	detector *Detector // immutable
	host     Host      // immutable

	failures5xx, failuresGateway, failuresLocal atomic.Uint32 // numbers of failures in a row

	externalOrigin intervalCounts // of all attempts, without the failures that localOrigin counts
	localOrigin    intervalCounts // of all attempts; used only with SplitLocalOriginErrors

	ejections atomic.Uint64 // total

	hostsVersion int  // guarded by Detector.mu; Detector.hostsVersion of the last SetHosts that included the host
	ejected      bool // guarded by Detector.mu
	// backoffCount is the multiplier of the ejection time. It grows with each ejection, up to the
	// maximum time. If the host is not ejected at the end of an interval, it falls by one, not below
	// 0. Guarded by Detector.mu.
	backoffCount int
	ejectedUntil time.Duration // guarded by Detector.mu; end of the ejection, on the clock of Config.Now
}

// intervalCounts holds the counts of an interval.
type intervalCounts struct{ requests, failures atomic.Uint64 }

// takeAndReset returns the counts and resets them.
func (c *intervalCounts) takeAndReset() (requests, failures uint64) {
	return c.requests.Swap(0), c.failures.Swap(0)
}

// Ejections returns how often the host was ejected.
func (s *Stats) Ejections() uint64 { return s.ejections.Load() }

// RecordHead counts a response by the status in its head. It counts a good response only if final
// is true, which means that nothing will report the end of the exchange.
func (s *Stats) RecordHead(status int, final bool) {
	switch {
	case s.isFailureStatus(status):
		s.recordStatus(status, 1)
	case final:
		s.recordSuccess(1)
	}
}

// RecordRelay counts a relayed connection as one successful request.
func (s *Stats) RecordRelay() { s.recordSuccess(1) }

// RecordFailure counts an attempt without a response, if the host caused the failure.
func (s *Stats) RecordFailure(reason protocol.Reason) {
	if isLocalOriginFailure(reason) {
		s.recordLocalFailure(reason)
	}
}

// Outcome is the result of an exchange.
type Outcome struct {
	Protocol config.Protocol // downstream protocol
	Reason   protocol.Reason
	Status   int // status of the host's response; 0: none
	Code     int // RPC status code
}

// FailedAtEnd reports whether a response failed at its end although its head was good: it has the
// gRPC status of a server error, or the host interrupted it.
func (o *Outcome) FailedAtEnd() bool {
	switch {
	case o.Status == 0 || o.Status >= minServerErrorStatus:
		return false
	case o.Reason == protocol.ReasonNone:
		return o.hasGRPCError() && httpStatusOfGRPC(o.Code) >= minServerErrorStatus
	}
	return isLocalOriginFailure(o.Reason)
}

// hasGRPCError reports whether Code is a gRPC status that is not OK.
func (o *Outcome) hasGRPCError() bool { return o.Code > 0 && o.Protocol == config.HTTP2 }

// minServerErrorStatus is the first status of server errors.
const minServerErrorStatus = 500

// RecordExchanges counts n exchanges with the same result, whose last attempts were at the host, or
// one attempt whose response is discarded.
func (s *Stats) RecordExchanges(o Outcome, n int) {
	switch {
	case o.Status == 0 || s.isFailureStatus(o.Status): // RecordFailure or RecordHead has counted it
	case o.Reason == protocol.ReasonNone && o.hasGRPCError():
		s.recordStatus(httpStatusOfGRPC(o.Code), n)
	case o.Reason == protocol.ReasonNone:
		s.recordSuccess(n)
	case isLocalOriginFailure(o.Reason): // the host interrupted the response
		for range n {
			s.recordLocalFailure(o.Reason)
		}
	}
}

// isFailureStatus reports whether a status counts as a failure.
func (s *Stats) isFailureStatus(status int) bool {
	if codes := s.detector.config.FailureStatuses; len(codes) > 0 {
		return slices.Contains(codes, status)
	}
	return status >= minServerErrorStatus
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
func (s *Stats) recordLocalFailure(reason protocol.Reason) {
	cfg := s.detector.config.OutlierDetection
	if !cfg.SplitLocalOriginErrors {
		s.recordStatus(reason.Spec().HTTP, 1)
		return
	}
	s.localOrigin.requests.Add(1)
	s.localOrigin.failures.Add(1)
	s.countConsecutive(&s.failuresLocal, 1, cfg.ConsecutiveLocal, byLocal)
}

// recordSuccess counts n good responses.
func (s *Stats) recordSuccess(n int) {
	resetCounter(&s.failures5xx)
	resetCounter(&s.failuresGateway)
	s.recordReachable(n)
	s.externalOrigin.requests.Add(uint64(n)) //nolint:gosec // n is not negative
}

// recordStatus counts n responses with this status, or n failures that map to it.
func (s *Stats) recordStatus(status, n int) {
	if status < minServerErrorStatus && !s.isFailureStatus(status) {
		s.recordSuccess(n)
		return
	}
	s.recordReachable(n)
	s.externalOrigin.requests.Add(uint64(n)) //nolint:gosec // n is not negative
	if s.isFailureStatus(status) {
		s.externalOrigin.failures.Add(uint64(n)) //nolint:gosec // n is not negative
	}
	cfg := s.detector.config.OutlierDetection
	if status >= 502 && status <= 504 {
		s.countConsecutive(&s.failuresGateway, n, cfg.ConsecutiveGateway, byGateway)
	} else {
		resetCounter(&s.failuresGateway)
	}
	if status >= minServerErrorStatus {
		s.countConsecutive(&s.failures5xx, n, cfg.Consecutive5xx, by5xx)
	} else {
		resetCounter(&s.failures5xx)
	}
}

// recordReachable counts n exchanges for which the host was reachable.
func (s *Stats) recordReachable(n int) {
	if s.detector.config.SplitLocalOriginErrors {
		resetCounter(&s.failuresLocal)
		s.localOrigin.requests.Add(uint64(n)) //nolint:gosec // n is not negative
	}
}

// countConsecutive adds n to the failures in a row, and ejects the host when they reach the limit.
func (s *Stats) countConsecutive(count *atomic.Uint32, n int, cfg config.Consecutive, reason Reason) {
	if cfg.Failures <= 0 {
		return
	}
	total := count.Add(uint32(n))                                               //nolint:gosec // n is not negative
	if total >= uint32(cfg.Failures) && count.Swap(0) != 0 && cfg.Enforce > 0 { //nolint:gosec // above 0
		s.detector.ejectConsecutive(s, reason, cfg.Enforce)
	}
}

// reset resets the counts at the end of an ejection.
func (s *Stats) reset() {
	resetCounter(&s.failures5xx)
	resetCounter(&s.failuresGateway)
	resetCounter(&s.failuresLocal)
	s.externalOrigin.takeAndReset()
	s.localOrigin.takeAndReset()
}

// resetCounter resets count. It does not write a counter that is 0 already, so goroutines that
// record successes share its cache line.
func resetCounter(count *atomic.Uint32) {
	if count.Load() != 0 {
		count.Store(0)
	}
}

// httpStatusOfGRPC maps a gRPC status to an HTTP status. Server failures map to 500 and above, as
// in Envoy; all others map to 400.
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
