package protocol

import (
	"context"
	"errors"
)

// Service produces the response of an exchange. Router, filters, retry, timeout, cluster and
// upstream connection are all Services, nested. docs/services.md states the rules.
//
// A service that does nothing after the next service has responded calls it last:
//
//	func (t *timeout) Start(ctx context.Context, x *protocol.Exchange) error {
//		narrow(x, t.limit)
//		return t.next.Start(ctx, x)
//	}
//
// A service that processes the response is also a Finisher, and pushes itself first:
//
//	func (f *forward) Start(ctx context.Context, x *protocol.Exchange) error {
//		f.route.RewriteRequest(x)
//		x.PushFinisher(f)
//		return f.next.Start(ctx, x)
//	}
//
// A service that has to wait for anything but the next service passes the rest of its work to
// Exchange.RunBlocking, or is a BlockingFunc.
type Service interface {
	// Start serves x as far as it can without waiting. If it returns nil, x.Response is set. If it
	// returns an error, x.Response is not set, and service.Respond turns the error into a local
	// reply; a Fault in its chain sets the reason. ErrPending means that the response arrives
	// later, and that another goroutine already owns x: code that gets ErrPending returns it and no
	// longer uses x. A service drops the response (Exchange.ResetResponse) before it calls the next
	// service again.
	//
	// ctx lives as long as the connection: the deadline of a request is x.Deadline.
	Start(ctx context.Context, x *Exchange) error
}

// ServiceFunc makes a Service of a function that does not wait.
type ServiceFunc func(ctx context.Context, x *Exchange) error

// Start implements Service.
func (f ServiceFunc) Start(ctx context.Context, x *Exchange) error { return f(ctx, x) }

// Finisher is the part of a service that runs after the next service has responded.
type Finisher interface {
	// Finish receives the result of the next service and returns the result that replaces it. If it
	// returns ErrPending, from Exchange.RunBlocking, the exchange is pending again.
	Finish(ctx context.Context, x *Exchange, err error) error
}

// ErrPending is the error that Start and Finish return if the response arrives later. It is not a
// failure and is never passed to a Finisher.
var ErrPending = errors.New("protocol: pending")

// BlockingService produces the response of an exchange on a goroutine that may wait.
type BlockingService interface {
	// Serve returns what Service.Start does, except ErrPending.
	Serve(ctx context.Context, x *Exchange) error
}

// BlockingFunc makes a BlockingService, and a Service, of a function that may wait.
type BlockingFunc func(ctx context.Context, x *Exchange) error

// Serve implements BlockingService.
func (f BlockingFunc) Serve(ctx context.Context, x *Exchange) error { return f(ctx, x) }

// Start implements Service.
func (f BlockingFunc) Start(ctx context.Context, x *Exchange) error { return x.RunBlocking(ctx, f) }

// BlockingRunner is a Downstream that keeps no goroutine for an exchange while it is pending.
type BlockingRunner interface {
	// RunBlocking runs s on a goroutine that may wait. It returns the result of s, or ErrPending.
	RunBlocking(ctx context.Context, s BlockingService) error
}

// RunBlocking serves x with s on a goroutine that may wait. If that is not the caller's goroutine,
// RunBlocking returns ErrPending. x must have no response, so a Finish that calls RunBlocking drops
// the response first. The call must be the last action of Start or Finish.
func (x *Exchange) RunBlocking(ctx context.Context, s BlockingService) error {
	if f, ok := x.Downstream.(BlockingRunner); ok {
		return f.RunBlocking(ctx, s)
	}
	return s.Serve(ctx, x)
}

// PushFinisher registers f to run when the next service has responded. Finishers run in reverse
// order.
func (x *Exchange) PushFinisher(f Finisher) { x.finishers = append(x.finishers, f) }

// Start starts to serve x with s, without waiting. It returns the result of s and of the finishers.
// After ErrPending, the code that gets the response calls Resume. A panic becomes an error with a
// *PanicError.
func (x *Exchange) Start(ctx context.Context, s Service) error {
	return x.runFinishers(ctx, x.start(ctx, s), 0)
}

// Resume continues a pending exchange. err is the result of the service in which it was pending.
// The result of Resume has the same meaning as the result of Start.
func (x *Exchange) Resume(ctx context.Context, err error) error { return x.runFinishers(ctx, err, 0) }

// Serve serves x with s on a goroutine that may wait, and returns when there is a response. A panic
// becomes an error with a *PanicError. An engine calls Serve if the exchange owns its goroutine; a
// BlockingService calls it for the next service.
func (x *Exchange) Serve(ctx context.Context, s Service) error {
	depth := len(x.finishers)
	return x.runFinishers(ctx, x.start(ctx, s), depth)
}

// start calls s.Start and returns a panic as an error.
func (x *Exchange) start(ctx context.Context, s Service) (err error) {
	defer RecoverPanic(&err)
	return s.Start(ctx, x)
}

// runFinishers calls the finishers from the last one down to index depth. It stops when one makes
// the exchange pending again.
func (x *Exchange) runFinishers(ctx context.Context, err error, depth int) error {
	for err != ErrPending && len(x.finishers) > depth { //nolint:errorlint // ErrPending is never wrapped
		err = x.finish(ctx, err, depth)
	}
	return err
}

// finish calls the finishers down to index depth until one panics or returns ErrPending. The panic
// becomes the error that the remaining finishers receive.
func (x *Exchange) finish(ctx context.Context, err error, depth int) (result error) {
	defer RecoverPanic(&result)
	for n := len(x.finishers) - 1; n >= depth && err != ErrPending; n-- { //nolint:errorlint // ErrPending is never wrapped
		f := x.finishers[n]
		x.finishers[n] = nil
		x.finishers = x.finishers[:n]
		err = f.Finish(ctx, x, err)
	}
	return err
}
