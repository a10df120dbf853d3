package protocol

import (
	"context"
	"errors"
)

// AsyncService is a Service that may return before the response is there. While an exchange is
// pending it holds no goroutine stack, so an engine with many requests in flight needs no goroutine
// for each (docs/decisions/0008).
//
// A service that does nothing after the next service has responded implements only Start:
//
//	func (t *timeout) Start(ctx context.Context, x *protocol.Exchange) error {
//		narrow(x, t.limit)
//		return t.next.Start(ctx, x)
//	}
//
// A service that does is also a Finisher, and pushes itself first:
//
//	func (f *forward) Start(ctx context.Context, x *protocol.Exchange) error {
//		f.route.RewriteRequest(x)
//		x.PushFinisher(f)
//		return f.next.Start(ctx, x)
//	}
//
// Both implement Serve with ServeSync. Async makes an AsyncService of any Service.
type AsyncService interface {
	Service

	// Start serves x as far as it can without waiting. It returns what Serve would, or ErrPending:
	// then the response comes later, and x already has another owner. Code that gets ErrPending
	// returns it and does not touch x any more. A service drops the response
	// (Exchange.ResetResponse) before it calls the next service again.
	Start(ctx context.Context, x *Exchange) error
}

// Finisher is the part of a service that runs after the next service has responded.
type Finisher interface {
	// Finish receives the result of the next service and returns the result that replaces it. If it
	// returns ErrPending, from Exchange.RunBlocking, the exchange is pending again.
	Finish(ctx context.Context, x *Exchange, err error) error
}

// ErrPending is the error that Start and Finish return when the response comes later. It is not a
// failure and never reaches a Finisher.
var ErrPending = errors.New("protocol: pending")

// BlockingRunner is a Caller that keeps no goroutine for an exchange while it is pending.
type BlockingRunner interface {
	// RunBlocking runs s on a goroutine that may block. It returns the result of s, or ErrPending.
	RunBlocking(ctx context.Context, s Service) error
}

// RunBlocking serves x with s, which may block. x has no response: Finish drops one before the
// call. Start and Finish call RunBlocking as the last thing they do.
func (x *Exchange) RunBlocking(ctx context.Context, s Service) error {
	if f, ok := x.Downstream.(BlockingRunner); ok {
		return f.RunBlocking(ctx, s)
	}
	return s.Serve(ctx, x)
}

// Async returns s as an AsyncService.
func Async(s Service) AsyncService {
	if s, ok := s.(AsyncService); ok {
		return s
	}
	return blockingService{s}
}

// blockingService makes an AsyncService of a Service that may block.
type blockingService struct{ Service }

func (w blockingService) Start(ctx context.Context, x *Exchange) error {
	return x.RunBlocking(ctx, w.Service)
}

// PushFinisher registers f to run when the next service has responded. Finishers run in reverse
// order.
func (x *Exchange) PushFinisher(f Finisher) { x.finishers = append(x.finishers, f) }

// StartAsync starts to serve x with s without blocking. It returns what Serve would; after
// ErrPending, the code that gets the response calls Resume.
func (x *Exchange) StartAsync(ctx context.Context, s AsyncService) error {
	return x.runFinishers(ctx, x.start(ctx, s), 0)
}

// Resume continues a pending exchange: err is the result of the service in which it was pending.
// Resume returns what StartAsync does.
func (x *Exchange) Resume(ctx context.Context, err error) error { return x.runFinishers(ctx, err, 0) }

// ServeSync implements Serve for an AsyncService, on a goroutine that may block. A panic becomes an
// error with a *PanicError.
func ServeSync(ctx context.Context, s AsyncService, x *Exchange) error {
	depth := len(x.finishers)
	return x.runFinishers(ctx, x.start(ctx, s), depth)
}

// start calls s.Start and returns a panic as an error.
func (x *Exchange) start(ctx context.Context, s AsyncService) (err error) {
	defer RecoverPanic(&err)
	return s.Start(ctx, x)
}

// runFinishers calls the finishers above depth until one makes the exchange pending again.
func (x *Exchange) runFinishers(ctx context.Context, err error, depth int) error {
	for err != ErrPending && len(x.finishers) > depth { //nolint:errorlint // it is never wrapped
		err = x.finish(ctx, err, depth)
	}
	return err
}

// finish calls finishers until one panics. The panic becomes the error that the remaining finishers
// receive.
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
