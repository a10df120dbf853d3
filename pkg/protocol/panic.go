package protocol

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is the error made of a panic that was recovered while an exchange was served.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// NewPanic returns a PanicError of the value that recover returned. The deferred function that
// recovers calls it, so that the stack shows what panicked. A PanicError that was thrown again
// keeps its first stack.
func NewPanic(recovered any) *PanicError {
	if p, ok := recovered.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: recovered, Stack: debug.Stack()}
}

// PanicIn returns the PanicError in err's chain, or nil.
func PanicIn(err error) *PanicError {
	p, _ := errors.AsType[*PanicError](err)
	return p
}

// Error implements error.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// PanicLog is the method of a slog.Logger that logs panics.
type PanicLog interface {
	Error(msg string, args ...any)
}

// Log logs a recovered panic: doing says what it interrupted, args are additional attributes. Log
// of a nil PanicError does nothing.
func (p *PanicError) Log(log PanicLog, doing string, args ...any) {
	if p == nil {
		return
	}
	all := append([]any{"while", doing}, args...)
	log.Error("panic; this is a defect, please report it", append(all, "panic", p.Value, "stack", string(p.Stack))...)
}

// ServeRecovered calls s.Serve and returns a panic as an error with a *PanicError.
func ServeRecovered(ctx context.Context, s BlockingService, x *Exchange) (err error) {
	defer RecoverPanic(&err)
	return s.Serve(ctx, x)
}

// RecoverPanic sets *err to a Fault with a *PanicError if the function that defers it panics.
func RecoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = NewFault(Internal, NewPanic(p))
	}
}
