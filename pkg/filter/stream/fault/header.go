package fault

import (
	"strconv"
	"time"

	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Headers of requests with header_delay and header_abort, as in Envoy.
const (
	delayHeader        = "x-envoy-fault-delay-request" // milliseconds
	delayPercentHeader = "x-envoy-fault-delay-request-percentage"
	abortHeader        = "x-envoy-fault-abort-request" // HTTP status
	abortGRPCHeader    = "x-envoy-fault-abort-grpc-request"
	abortPercentHeader = "x-envoy-fault-abort-request-percentage"
)

// maxHeaderDelay is the maximum delay that a header can request.
const maxHeaderDelay = time.Hour

// delayFor returns the delay of x; 0: none.
func (f *fault) delayFor(x *protocol.Exchange) time.Duration {
	if f.config.Delay.Header == nil {
		if f.selects(f.delayed) {
			return f.config.Delay.Fixed
		}
		return 0
	}
	milliseconds, ok := numberIn(x, delayHeader, 0, uint64(maxHeaderDelay/time.Millisecond))
	if !ok || !f.selectsByHeader(x, f.delayed, delayPercentHeader) {
		return 0
	}
	return time.Duration(milliseconds) * time.Millisecond
}

// abortStatus is the status of a local reply.
type abortStatus struct {
	http    int
	grpc    int // replaces http
	hasGRPC bool
}

// abortFor returns the status with which x is aborted. ok is false if x is not aborted.
func (f *fault) abortFor(x *protocol.Exchange) (status abortStatus, ok bool) {
	c := &f.config.Abort
	if c.Header == nil {
		status.http = c.Status
		if c.GRPC != nil {
			status.grpc, status.hasGRPC = *c.GRPC, true
		}
		return status, f.selects(f.aborted)
	}
	if status.http, ok = numberIn(x, abortHeader, 200, 599); !ok {
		status.grpc, ok = numberIn(x, abortGRPCHeader, 0, 16)
		status.hasGRPC = ok
	}
	return status, ok && f.selectsByHeader(x, f.aborted, abortPercentHeader)
}

// numberIn returns the value of a header, a number in a range. ok is false if the header is missing
// or has another value.
func numberIn(x *protocol.Exchange, header string, low, high uint64) (n int, ok bool) {
	text, ok := x.Request.Header.Lookup(header)
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseUint(text, 10, 32)
	if err != nil || value < low || value > high {
		return 0, false
	}
	return int(value), true
}

// selects takes one random sample and reports whether fraction includes it.
func (f *fault) selects(fraction match.Fraction) bool {
	return !fraction.IsZero() && fraction.Includes(f.random())
}

// selectsByHeader is selects for a fraction that a header, a percentage, can lower.
func (f *fault) selectsByHeader(x *protocol.Exchange, fraction match.Fraction, header string) bool {
	if fraction.IsZero() {
		return false
	}
	sample := f.random()
	if percent, ok := numberIn(x, header, 0, 100); ok {
		limit, err := match.FractionFromPercent(float64(percent))
		if err != nil || limit.IsZero() || !limit.Includes(sample) {
			return false
		}
	}
	return fraction.Includes(sample)
}
