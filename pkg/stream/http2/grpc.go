package http2

import (
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// The fields of gRPC over HTTP/2 that concern an intermediary.
const (
	contentType  = "content-type"
	grpcStatus   = "grpc-status"
	grpcMessage  = "grpc-message"
	grpcTimeout  = "grpc-timeout"
	codeUnknown  = 2
	codeInternal = 13
)

// timeoutUnits are the units of grpc-timeout from the smallest on.
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

// parseTimeout reads the value of grpc-timeout: one to eight digits and a unit.
func parseTimeout(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	unit := timeoutUnit(s[len(s)-1])
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if unit == 0 || err != nil {
		return 0, false
	}
	const longest = time.Duration(1<<63 - 1)
	if n > uint64(longest/unit) {
		return longest, true
	}
	return time.Duration(n) * unit, true
}

// formatTimeout writes d as grpc-timeout does, in the smallest unit in which it
// has at most eight digits, never as more than it is. d is positive.
func formatTimeout(d time.Duration) string {
	for _, unit := range []byte(timeoutUnits) {
		if n := d / timeoutUnit(unit); n < 100_000_000 {
			return strconv.FormatInt(int64(n), 10) + string(unit)
		}
	}
	return "99999999H"
}

// takeTimeout makes a gRPC request's timeout its deadline.
func takeTimeout(x *protocol.Exchange) {
	value, ok := x.Request.Header.Lookup(grpcTimeout)
	if !ok || !protocol.IsGRPC(&x.Request.Header) {
		return
	}
	if d, ok := parseTimeout(value); ok {
		x.Deadline = x.Meta.Start.Add(d)
	}
}

// passTimeout tells the next hop how much time is left of a gRPC request's
// timeout. It reports false if there is none left of any request's.
func passTimeout(x *protocol.Exchange, now time.Time) bool {
	until := x.Until()
	if until.IsZero() {
		return true
	}
	left := until.Sub(now)
	if left <= 0 {
		return false
	}
	if _, ok := x.Request.Header.Lookup(grpcTimeout); !ok || !protocol.IsGRPC(&x.Request.Header) {
		return true
	}
	x.Request.Header.Set(grpcTimeout, formatTimeout(left))
	return true
}

// replyGRPC makes a reply of Weft's own one that a gRPC caller understands: status
// 200, and what happened in fields of a head without content (trailers-only). Fields
// that filters and routes gave the reply stay.
func replyGRPC(x *protocol.Exchange, kind string) {
	code, text := codeOf(x)
	r := &x.Response
	if r.Body != nil {
		_ = r.Body.Close() // it is not sent
		r.Body = nil
	}
	r.Status, r.ContentLength = 200, -1
	r.Trailer.Reset()
	r.Header.Set(contentType, kind)
	r.Header.Set(grpcStatus, strconv.Itoa(code))
	if text != "" {
		r.Header.Set(grpcMessage, encodeMessage(text))
	}
}

// codeOf returns the grpc-status of a reply of Weft's own, and what it says.
func codeOf(x *protocol.Exchange) (code int, text string) {
	if r := x.Record.Reason; r != protocol.None {
		return r.Traits().GRPC, r.Text()
	}
	return codeOfHTTP(x.Response.Status), "HTTP status " + strconv.Itoa(x.Response.Status)
}

// codeOfHTTP returns what gRPC makes of the HTTP status of an answer that has no
// grpc-status (grpc: http-grpc-status-mapping).
func codeOfHTTP(status int) int {
	switch status {
	case 400:
		return codeInternal
	case 401:
		return 16 // UNAUTHENTICATED
	case 403:
		return 7 // PERMISSION_DENIED
	case 404:
		return 12 // UNIMPLEMENTED
	case 429, 502, 503, 504:
		return 14 // UNAVAILABLE
	}
	return codeUnknown
}

// encodeMessage writes a grpc-message: what is not printable ASCII, and '%', as
// "%XX".
func encodeMessage(s string) string {
	const hex = "0123456789ABCDEF"
	plain := true
	for i := range len(s) {
		plain = plain && isPlain(s[i])
	}
	if plain {
		return s
	}
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; isPlain(c) {
			out.WriteByte(c)
		} else {
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	return out.String()
}

func isPlain(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }
