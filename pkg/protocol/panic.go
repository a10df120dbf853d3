package protocol

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is a panic that was recovered while an exchange was served.
type PanicError struct {
	Value any
	Stack []byte // stack of the goroutine that panicked
}

// NewPanic returns a PanicError for the value that recover returned. The deferred function that
// recovers calls it, so that the stack shows where the panic occurred. If recovered is a
// PanicError, NewPanic returns it, with its original stack.
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

// PanicLog is the part of slog.Logger that PanicError.Log uses.
type PanicLog interface {
	Error(msg string, args ...any)
}

// Log logs a recovered panic. doing describes the interrupted activity; args are additional
// attributes. Log of a nil PanicError does nothing.
func (p *PanicError) Log(log PanicLog, doing string, args ...any) {
	if p == nil {
		return
	}
	attrs := append([]any{"while", doing}, args...)
	log.Error("panic; this is a defect, please report it", append(attrs, "panic", p.Value, "stack", string(p.Stack))...)
}

// ServeRecovered calls service.Serve and returns a panic as an error with a *PanicError.
func ServeRecovered(ctx context.Context, service BlockingService, x *Exchange) (err error) {
	defer RecoverPanic(&err)
	return service.Serve(ctx, x)
}

// RecoverPanic recovers a panic of the function that defers it, and sets *err to a Fault with a
// *PanicError.
func RecoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = NewFault(Internal, NewPanic(p))
	}
}
