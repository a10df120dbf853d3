package config

import (
	"strings"
	"time"
)

// RetryPolicy says when a request is retried, on another host if there is one.
type RetryPolicy struct {
	On            RetryOn       // conditions for a retry; 0: none
	PerTryTimeout time.Duration // per attempt, until the head of its response; 0: only the route timeout
	NumRetries    int           // maximum retries
	StatusCodes   []int         // for RetryStatusCodes: HTTP statuses; for RPC responses, their HTTP equivalents
	RPCCodes      []int         // for RetryStatusCodes: status codes of the RPC protocol
	Backoff       Backoff
	Extras        *RetryExtras // nil: the zero value; see Extra
}

// RetryExtras are the settings of a RetryPolicy that few routes have. config.json has keys only for
// Headers.
type RetryExtras struct {
	Headers []RetryHeader // for RetryHeaders: one match is enough
	// ResponseHeaders are further conditions on the headers of a response, for RetryHeaders. One match
	// is enough. They have a Matcher.
	ResponseHeaders []HeaderMatch
	// RequestHeaders limits retries to requests that match one of the conditions; none: all requests.
	RequestHeaders []HeaderMatch
	// AnyMethod also retries requests with methods that are not idempotent, as Envoy does: the policy
	// is the operator's permission.
	AnyMethod bool
	// ResetHeaders are the headers of a response that say how long to wait before the retry. The first
	// valid one replaces RetryPolicy.Backoff.
	ResetHeaders []ResetHeader
	MaxReset     time.Duration // values of ResetHeaders above it are invalid
}

// Extra returns p.Extras, or the zero value if that is nil.
func (p *RetryPolicy) Extra() (e RetryExtras) {
	if p.Extras != nil {
		e = *p.Extras
	}
	return e
}

// ResetHeader is a response header with the time at which the limit of a host ends.
type ResetHeader struct {
	Name          string
	UnixTimestamp bool // the value is the time in seconds since 1970; false: a number of seconds
}

// RetryHeader is a response header that causes a retry.
type RetryHeader struct {
	Name  string
	Value string // one of the headers with the name must have it; "": any value
}

// Backoff is the delay of retries: a random time up to a bound that grows with each retry of a
// request. The zero value means no delay.
type Backoff struct {
	Base time.Duration // bound of the first retry
	Max  time.Duration // maximum bound; at least Base
}

// Bound returns the bound of the n-th retry, counted from 1: (2^n - 1) times Base, as in Envoy,
// limited to Max.
func (b Backoff) Bound(n int) time.Duration {
	d := b.Base
	for ; n > 1 && d < b.Max; n-- {
		d = 2*d + b.Base
	}
	return min(d, b.Max)
}

// RetryOn is a set of results of an attempt that cause a retry.
type RetryOn uint32

// The elements of the set, with the meanings of Envoy's retry_on.
const (
	Retry5xx               RetryOn = 1 << iota // a response with status 500 to 599, or no response
	RetryGatewayError                          // a response with status 502, 503 or 504, or no response
	RetryReset                                 // no response: a lost connection, a malformed response, a per-try timeout, or no connection to the host
	RetryConnectFailure                        // no connection to the host, or the host refused the request unprocessed (REFUSED_STREAM in HTTP/2)
	RetryRefusedStream                         // the same as RetryConnectFailure
	Retry4xx                                   // a response with status 409
	RetryStatusCodes                           // a response with one of the policy's StatusCodes or RPCCodes
	RetryHeaders                               // a response with one of the policy's Headers
	RetryCanceled                              // grpc-status 1
	RetryDeadlineExceeded                      // grpc-status 4
	RetryResourceExhausted                     // grpc-status 8
	RetryInternal                              // grpc-status 13
	RetryUnavailable                           // grpc-status 14

	// RetryOnDefault is the default of a policy.
	RetryOnDefault = Retry5xx | RetryStatusCodes | RetryHeaders | RetryUnavailable
)

// retryOnNames are the names of the RetryOn elements, from the lowest bit.
//
//nolint:gochecknoglobals // a constant table
var retryOnNames = [...]string{
	"5xx", "gateway-error", "reset", "connect-failure", "refused-stream", "retriable-4xx",
	"retriable-status-codes", "retriable-headers",
	"cancelled", "deadline-exceeded", "resource-exhausted", "internal", "unavailable",
}

// RetryOnNames returns the names of all elements in the order of their bits.
func RetryOnNames() []string { return retryOnNames[:] }

// ParseRetryOn returns the element with a name, or 0 if the name is unknown.
func ParseRetryOn(name string) RetryOn {
	for bit, elementName := range retryOnNames {
		if elementName == name {
			return 1 << bit
		}
	}
	return 0
}

// String returns the names of the elements of on, separated by commas.
func (on RetryOn) String() string {
	var names []string
	for bit, name := range retryOnNames {
		if on&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
