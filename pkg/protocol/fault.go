package protocol

import (
	"errors"
	"fmt"
)

// ErrNotSent is in the chain of a Fault of a request of which nothing was written: its
// connection had ended before.
var ErrNotSent = errors.New("nothing of the request was sent")

// ErrNotReceived is in the chain of a Fault of a request that was written, whole or in part,
// to a connection which its peer had closed before it received all of the request (RFC 9112
// 9.3.1): it has not acted on it.
var ErrNotReceived = errors.New("the connection was closed before the peer received the request")

// Fault is an error that costs one exchange; any other error that an engine's
// loop returns costs the connection.
type Fault struct {
	Reason Reason
	Err    error // what happened and where; nil when the reason says it all
}

// NewFault returns a fault with its cause; err may be nil.
func NewFault(reason Reason, err error) *Fault { return &Fault{Reason: reason, Err: err} }

// Faultf returns a fault whose cause is made as by fmt.Errorf.
func Faultf(reason Reason, format string, args ...any) *Fault {
	return &Fault{Reason: reason, Err: fmt.Errorf(format, args...)}
}

func (f *Fault) Error() string {
	if f.Err == nil {
		return f.Reason.Text()
	}
	return f.Reason.Text() + ": " + f.Err.Error()
}

func (f *Fault) Unwrap() error { return f.Err }

// ReasonOf returns the reason of the first Fault in err's chain: None for nil,
// Internal for an error that carries none.
func ReasonOf(err error) Reason {
	if err == nil {
		return ReasonNone
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Reason
	}
	return Internal
}
