package config

import (
	"strings"
	"time"
)

// RetryPolicy says when a request is tried again, on another host.
type RetryPolicy struct {
	On          RetryOn       // what is tried again; 0: nothing
	TryTimeout  time.Duration // for one try, until the head of its answer; 0: the global timeout only
	NumRetries  int           // most tries after the first
	StatusCodes []int         // of RetryStatusCodes: HTTP's, of RPC answers their HTTP view
	RPCCodes    []int         // of RetryStatusCodes: in an RPC protocol's own numbers
	Headers     []RetryHeader // of RetryHeaders: one of them is enough
	BackOff     BackOff
}

// RetryHeader is a field of an answer that asks for another try.
type RetryHeader struct {
	Name  string
	Value string // what one of the fields of that name must be; "": anything
}

// BackOff is how long retries wait: any time up to a bound that grows from one retry
// of a request to the next. The zero value: not at all.
type BackOff struct {
	Base time.Duration // the bound of the first retry
	Max  time.Duration // no bound is larger; not less than Base
}

// Bound returns the bound for the retry with that number, of which the first is 1:
// (2^n - 1) times Base, as Envoy has it, and no more than Max.
func (b BackOff) Bound(n int) time.Duration {
	d := b.Base
	for ; n > 1 && d < b.Max; n-- {
		d = 2*d + b.Base
	}
	return min(d, b.Max)
}

// RetryOn is a set of what may become of a try that is worth another one.
type RetryOn uint32

// The elements of the set. Their words are Envoy's.
const (
	Retry5xx               RetryOn = 1 << iota // an answer of 500 to 599, or none
	RetryGatewayError                          // an answer of 502, 503 or 504, or none
	RetryReset                                 // no answer: the connection was lost, the try took too long, nobody was there
	RetryConnectFailure                        // the host cannot have looked at the request
	RetryRefusedStream                         // the same: of HTTP/2, REFUSED_STREAM
	Retry4xx                                   // an answer of 409
	RetryStatusCodes                           // an answer with one of the policy's StatusCodes or RPCCodes
	RetryHeaders                               // an answer with one of the policy's Headers
	RetryCancelled                             // grpc-status 1
	RetryDeadlineExceeded                      // grpc-status 4
	RetryResourceExhausted                     // grpc-status 8
	RetryInternal                              // grpc-status 13
	RetryUnavailable                           // grpc-status 14

	// RetryUsual is what a policy without a choice of its own has.
	RetryUsual = Retry5xx | RetryStatusCodes | RetryHeaders | RetryUnavailable
)

// retryWords are the words of RetryOn, from the lowest bit.
//
//nolint:gochecknoglobals // a constant table
var retryWords = [...]string{
	"5xx", "gateway-error", "reset", "connect-failure", "refused-stream", "retriable-4xx",
	"retriable-status-codes", "retriable-headers",
	"cancelled", "deadline-exceeded", "resource-exhausted", "internal", "unavailable",
}

// RetryWords returns the word of every element, in the order of their bits.
func RetryWords() []string { return retryWords[:] }

// RetryWord returns the element that a word means, 0 if it means none.
func RetryWord(word string) RetryOn {
	for bit, known := range retryWords {
		if known == word {
			return 1 << bit
		}
	}
	return 0
}

// String returns the words of on, separated by commas.
func (on RetryOn) String() string {
	var words []string
	for bit, word := range retryWords {
		if on&(1<<bit) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}
