package protocol

import (
	"context"
	"errors"
)

// Starter is a Service in two halves. Between them, while an answer is waited
// for, nothing of the exchange is on a stack, so that an engine with many
// exchanges under way needs none for each (docs/decisions/0008).
//
// Who has nothing to do after the service it calls has answered only starts:
//
//	func (t *timeout) Start(ctx context.Context, x *protocol.Exchange) error {
//		narrow(x, t.limit)
//		return t.next.Start(ctx, x)
//	}
//
// Who has is a Finisher, too, and says so before:
//
//	func (f *forward) Start(ctx context.Context, x *protocol.Exchange) error {
//		f.route.RewriteRequest(x)
//		x.Then(f)
//		return f.next.Start(ctx, x)
//	}
//
// Serve of both is Run. Halves makes a Starter of any Service.
type Starter interface {
	Service

	// Start is Serve as far as it goes without waiting. It returns what Serve
	// would, or ErrPending: the answer comes later, and x is already somebody else's.
	// Whoever gets ErrPending returns it and touches nothing of x any more. An answer
	// is dropped (Exchange.ResetResponse) before the next service is called again.
	Start(ctx context.Context, x *Exchange) error
}

// Finisher is what is left to do for a service when the one it called has
// answered.
type Finisher interface {
	// Finish is called with what the called service returned. What it returns
	// takes the place of that; ErrPending, from Exchange.Fork, defers it once more.
	Finish(ctx context.Context, x *Exchange, err error) error
}

// ErrPending is what Start and Finish return when the answer comes later. It is no
// failure and never reaches a Finisher.
var ErrPending = errors.New("protocol: pending")

// Forker is a Caller that keeps no stack for an exchange while it is pending.
type Forker interface {
	// Fork lets s serve the exchange on a stack of its own, on which it may wait. It
	// returns what s did, or ErrPending.
	Fork(ctx context.Context, s Service) error
}

// Fork has s, which may wait, serve x, which has no answer: Finish drops one
// before. Called by Start and Finish, as the last thing that they do.
func (x *Exchange) Fork(ctx context.Context, s Service) error {
	if f, ok := x.Caller.(Forker); ok {
		return f.Fork(ctx, s)
	}
	return s.Serve(ctx, x)
}

// Halves returns s as a Starter.
func Halves(s Service) Starter {
	if s, ok := s.(Starter); ok {
		return s
	}
	return whole{s}
}

// whole is a Service that cannot be divided: it needs a stack.
type whole struct{ Service }

func (w whole) Start(ctx context.Context, x *Exchange) error { return x.Fork(ctx, w.Service) }

// Then has f called when the service that x is given to next has answered. The
// last that was said is the first that is called.
func (x *Exchange) Then(f Finisher) { x.finishers = append(x.finishers, f) }

// Begin starts to serve x by s, as an engine does that can do without a stack. It
// returns what Serve would; with ErrPending, whoever gets the answer calls Resume.
func (x *Exchange) Begin(ctx context.Context, s Starter) error {
	return x.unwind(ctx, x.start(ctx, s), 0)
}

// Resume goes on with a pending exchange: err is what the service returned, or
// would have, that it was pending in. It returns as Begin does.
func (x *Exchange) Resume(ctx context.Context, err error) error { return x.unwind(ctx, err, 0) }

// Run is Serve of a Starter, on a stack that may wait. A panic becomes an error,
// a *Panic.
func Run(ctx context.Context, s Starter, x *Exchange) error {
	depth := len(x.finishers)
	return x.unwind(ctx, x.start(ctx, s), depth)
}

// start is s.Start, whose panic is an error.
func (x *Exchange) start(ctx context.Context, s Starter) (err error) {
	defer Recover(&err)
	return s.Start(ctx, x)
}

// unwind calls the finishers above depth, until one makes the exchange pending
// again.
func (x *Exchange) unwind(ctx context.Context, err error, depth int) error {
	for err != ErrPending && len(x.finishers) > depth { //nolint:errorlint // it is never wrapped
		err = x.finish(ctx, err, depth)
	}
	return err
}

// finish is unwind up to a panic, which is an error for the finishers that are
// left.
func (x *Exchange) finish(ctx context.Context, err error, depth int) (result error) {
	defer Recover(&result)
	for n := len(x.finishers) - 1; n >= depth && err != ErrPending; n-- { //nolint:errorlint // it is never wrapped
		f := x.finishers[n]
		x.finishers[n] = nil
		x.finishers = x.finishers[:n]
		err = f.Finish(ctx, x, err)
	}
	return err
}
