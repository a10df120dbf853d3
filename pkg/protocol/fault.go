package protocol

import (
	"errors"
	"fmt"
)

// ErrNotSent in the chain of a Fault means that no byte of the request was sent, because the
// connection had ended. Its absence means nothing.
var ErrNotSent = errors.New("nothing of the request was sent")

// ErrNotReceived is in the chain of a Fault if a request was written, in full or in part, but the
// peer closed the connection before it received all of it (RFC 9112 9.3.1). The peer cannot have
// read the whole request, but may have acted on a part of it: only idempotent requests can be
// resent.
var ErrNotReceived = errors.New("the connection was closed before the peer received the whole request")

// Fault is an error that fails one exchange. Its Reason determines the local reply.
type Fault struct {
	Reason Reason
	Err    error // what happened and where; nil if the reason is enough

	envoy *EnvoyReply // nil: that of the reason
}

// NewFault returns a Fault with reason and err, which may be nil.
func NewFault(reason Reason, err error) *Fault { return &Fault{Reason: reason, Err: err} }

// Faultf returns a Fault whose Err is fmt.Errorf(format, args...).
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

// ReasonOf returns the reason of the first Fault in err's chain: ReasonNone for nil, Internal for
// an error without a Fault.
func ReasonOf(err error) Reason {
	if err == nil {
		return ReasonNone
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Reason
	}
	return Internal
}
