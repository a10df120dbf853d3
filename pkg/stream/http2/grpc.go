package http2

import (
	"strconv"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Header fields of gRPC over HTTP/2 that the engine uses.
const (
	contentType = "content-type"
	grpcTimeout = "grpc-timeout"
)

// timeoutUnits are the units of grpc-timeout, smallest first.
const timeoutUnits = "numSMH"

func timeoutUnit(c byte) time.Duration {
	switch c {
	case 'n':
		return time.Nanosecond
	case 'u':
		return time.Microsecond
	case 'm':
		return time.Millisecond
	case 'S':
		return time.Second
	case 'M':
		return time.Minute
	case 'H':
		return time.Hour
	}
	return 0
}

// parseGRPCTimeout parses the value of grpc-timeout: one to eight digits and a unit.
func parseGRPCTimeout(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	unit := timeoutUnit(s[len(s)-1])
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if unit == 0 || err != nil {
		return 0, false
	}
	const maxDuration = time.Duration(1<<63 - 1)
	if n > uint64(maxDuration/unit) {
		return maxDuration, true
	}
	return time.Duration(n) * unit, true
}

// formatGRPCTimeout formats d for grpc-timeout in the smallest unit in which it has at most eight
// digits, rounded down. d is positive.
func formatGRPCTimeout(d time.Duration) string {
	for _, unit := range []byte(timeoutUnits) {
		if n := d / timeoutUnit(unit); n < 100_000_000 {
			return strconv.FormatInt(int64(n), 10) + string(unit)
		}
	}
	return "99999999H"
}

// setDeadlineFromGRPCTimeout sets x.Deadline from grpc-timeout if x is a gRPC request that has it.
func setDeadlineFromGRPCTimeout(x *protocol.Exchange) {
	value, ok := x.Request.Header.Lookup(grpcTimeout)
	if !ok || !protocol.IsGRPC(&x.Request.Header) {
		return
	}
	if d, ok := parseGRPCTimeout(value); ok {
		x.Deadline = x.Meta.Start.Add(d)
	}
}

// reduceGRPCTimeout reduces the grpc-timeout of a gRPC request to the remaining time. It returns
// false if the deadline of the request, gRPC or not, has passed.
func reduceGRPCTimeout(x *protocol.Exchange, now time.Time) bool {
	deadline := x.EffectiveDeadline()
	if deadline.IsZero() {
		return true
	}
	remaining := deadline.Sub(now)
	if remaining <= 0 {
		return false
	}
	if _, ok := x.Request.Header.Lookup(grpcTimeout); !ok || !protocol.IsGRPC(&x.Request.Header) {
		return true
	}
	x.Request.Header.Set(grpcTimeout, formatGRPCTimeout(remaining))
	return true
}
