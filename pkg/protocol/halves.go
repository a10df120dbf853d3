package protocol

import (
	"context"
	"errors"
)

// AsyncService is a Service in two halves. Between them, while an answer is waited
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
type AsyncService interface {
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

// BlockingRunner is a Caller that keeps no stack for an exchange while it is pending.
type BlockingRunner interface {
	// RunBlocking lets s serve the exchange on a stack of its own, on which it may wait. It
	// returns what s did, or ErrPending.
	RunBlocking(ctx context.Context, s Service) error
}

// RunBlocking has s, which may wait, serve x, which has no answer: Finish drops one
// before. Called by Start and Finish, as the last thing that they do.
func (x *Exchange) RunBlocking(ctx context.Context, s Service) error {
	if f, ok := x.Caller.(BlockingRunner); ok {
		return f.RunBlocking(ctx, s)
	}
	return s.Serve(ctx, x)
}

// Async returns s as a Starter.
func Async(s Service) AsyncService {
	if s, ok := s.(AsyncService); ok {
		return s
	}
	return blockingService{s}
}

// blockingService is a Service that cannot be divided: it needs a stack.
type blockingService struct{ Service }

func (w blockingService) Start(ctx context.Context, x *Exchange) error {
	return x.RunBlocking(ctx, w.Service)
}

// PushFinisher has f called when the service that x is given to next has answered. The
// last that was said is the first that is called.
func (x *Exchange) PushFinisher(f Finisher) { x.finishers = append(x.finishers, f) }

// StartAsync starts to serve x by s, as an engine does that can do without a stack. It
// returns what Serve would; with ErrPending, whoever gets the answer calls Resume.
func (x *Exchange) StartAsync(ctx context.Context, s AsyncService) error {
	return x.runFinishers(ctx, x.start(ctx, s), 0)
}

// Resume goes on with a pending exchange: err is what the service returned, or
// would have, that it was pending in. It returns as Begin does.
func (x *Exchange) Resume(ctx context.Context, err error) error { return x.runFinishers(ctx, err, 0) }

// ServeSync is Serve of a Starter, on a stack that may wait. A panic becomes an error,
// a *Panic.
func ServeSync(ctx context.Context, s AsyncService, x *Exchange) error {
	depth := len(x.finishers)
	return x.runFinishers(ctx, x.start(ctx, s), depth)
}

// start is s.Start, whose panic is an error.
func (x *Exchange) start(ctx context.Context, s AsyncService) (err error) {
	defer RecoverPanic(&err)
	return s.Start(ctx, x)
}

// runFinishers calls the finishers above depth, until one makes the exchange pending
// again.
func (x *Exchange) runFinishers(ctx context.Context, err error, depth int) error {
	for err != ErrPending && len(x.finishers) > depth { //nolint:errorlint // it is never wrapped
		err = x.finish(ctx, err, depth)
	}
	return err
}

// finish is unwind up to a panic, which is an error for the finishers that are
// left.
func (x *Exchange) finish(ctx context.Context, err error, depth int) (result error) {
	defer RecoverPanic(&result)
	for n := len(x.finishers) - 1; n >= depth && err != ErrPending; n-- { //nolint:errorlint // it is never wrapped
		f := x.finishers[n]
		x.finishers[n] = nil
		x.finishers = x.finishers[:n]
		err = f.Finish(ctx, x, err)
	}
	return err
}
