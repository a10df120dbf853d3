package protocol

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is the error that a panic while an exchange was served has become.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// NewPanic returns the Panic of what recover has returned. The deferred function that
// recovers calls it, so that the stack shows what panicked. A Panic that was thrown
// again keeps its first stack.
func NewPanic(recovered any) *PanicError {
	if p, ok := recovered.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: recovered, Stack: debug.Stack()}
}

// PanicIn returns the panic that err is, or nil.
func PanicIn(err error) *PanicError {
	p, _ := errors.AsType[*PanicError](err)
	return p
}

// Error is error's.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// PanicLog is the method of a slog.Logger that logs panics.
type PanicLog interface {
	Error(msg string, args ...any)
}

// Log logs a panic that was contained: doing says what it interrupted, args are more
// attributes. Log of a nil Panic does nothing.
func (p *PanicError) Log(log PanicLog, doing string, args ...any) {
	if p == nil {
		return
	}
	all := append([]any{"while", doing}, args...)
	log.Error("panic; this is a defect, please report it", append(all, "panic", p.Value, "stack", string(p.Stack))...)
}

// ServeRecovered is s.Serve, whose panic becomes an error, a *Panic.
func ServeRecovered(ctx context.Context, s Service, x *Exchange) (err error) {
	defer RecoverPanic(&err)
	return s.Serve(ctx, x)
}

// RecoverPanic makes a panic of the function that defers it an error, a *Panic.
func RecoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = NewFault(Internal, NewPanic(p))
	}
}
