package filtertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Mode says how an engine and the service behind a filter serve an exchange. A filter that follows
// the contract of protocol.Service (docs/services.md) gives the client the same response in each
// mode in which the client does not disconnect. In PendingElsewhere the race detector reports a
// filter that touches an exchange after ErrPending.
type Mode string

// The modes of an exchange. The reason of the result is ReasonDownstreamDisconnect in Canceled if
// the filter calls the next service, and in DisconnectedWhileWaiting if the filter waits. Otherwise
// all modes have the same result.
//
// In DisconnectedWhileWaiting, the client disconnects as soon as the filter waits in RunBlocking,
// for example for a delay, for the response to a request that the filter sends, or for a SlowBody.
// The filter must then end the exchange without further delay. This mode runs only in a bubble of
// testing/synctest.
const (
	Sync             Mode = "sync"              // the next service responds in Start
	Pending          Mode = "pending"           // the response comes after Start has returned ErrPending
	PendingElsewhere Mode = "pending elsewhere" // another goroutine resumes the exchange, possibly before Start has returned
	OnGoroutine      Mode = "on a goroutine"    // the exchange has a goroutine on which the next service may wait
	Retried          Mode = "retried"           // the next service drops a response and waits for another one
	Canceled         Mode = "canceled"          // the client disconnects while the next service is pending

	DisconnectedWhileWaiting Mode = "disconnected while waiting" // the client disconnects while the filter itself waits
)

// Modes returns all modes, Sync first.
func Modes() []Mode {
	return []Mode{Sync, Pending, PendingElsewhere, OnGoroutine, Retried, Canceled, DisconnectedWhileWaiting}
}

// Result holds the request that the application received and the response that the client
// received.
type Result struct {
	Reason   protocol.Reason
	Status   int
	Response string // headers and body
	Request  string // first line, headers and body at the application; "": no request arrived
}

// ServeInMode serves x with f in front of an application that responds with 200, reads the response
// to its end, closes the bodies, and resets x. If probe is not nil, it also calls the observers
// that f registered with probe. It returns an error if f breaks the contract of protocol.Service.
func ServeInMode(ctx context.Context, mode Mode, f filter.Filter, x *protocol.Exchange, probe *Probe) (Result, error) {
	e := &contractEngine{mode: mode, x: x, requestBody: x.Request.Body, done: make(chan error, 1)}
	x.Downstream = e
	s := f(contractApplication{e})
	if mode == OnGoroutine {
		e.ownsGoroutine = true
	}
	err := e.afterStep(x.Start(ctx, s))
	for errors.Is(err, protocol.ErrPending) {
		if mode == PendingElsewhere && e.resumed {
			err = <-e.done // result of the goroutine that resumed x
			e.resumed = false
			err = e.afterStep(err) // x may be pending again
			continue
		}
		next := e.next
		if next == nil {
			return Result{}, errors.New("ErrPending, but nothing is pending")
		}
		e.next = nil
		err = e.afterStep(x.Resume(ctx, next()))
	}
	if e.next != nil {
		e.fail("the filter did not return ErrPending of the next service")
	}
	result := Result{Reason: x.Record.Reason, Request: e.receivedRequest}
	if err != nil {
		result.Reason = protocol.ReasonOf(err)
	} else {
		result.Status = x.Response.Status
		result.Response = FormatHeaders(&x.Response.Header)
		if body := x.Response.Body; body != nil {
			content, err := io.ReadAll(body)
			if err != nil {
				e.fail("reading the response: %v", err)
			}
			result.Response += "\n" + string(content)
			_ = body.Close() // the content has been read
		}
	}
	if body := x.Request.Body; body != nil {
		_ = body.Close() // the exchange has ended
	}
	if probe != nil {
		probe.CallObservers(x)
	}
	if n := len(e.callbacks.byID); n != 0 {
		e.fail("%d callbacks of OnDisconnect were not stopped", n)
	}
	if e.calls > 1 && mode != Retried {
		e.fail("the next service was called %d times", e.calls)
	}
	x.Reset()
	return result, errors.Join(e.violations...)
}

// contractEngine is the Downstream of an exchange. The goroutine that owns the exchange uses it.
// While another goroutine owns the exchange, ServeInMode also uses mode, resumed and done, and
// disconnectWaiting uses callbacks, requestBody and violations.
type contractEngine struct {
	mode            Mode
	x               *protocol.Exchange
	requestBody     protocol.Body // as the engine set it; nil: none
	ownsGoroutine   bool          // blocking services run on the caller's goroutine
	next            func() error  // completes the pending step; its error is passed to Resume
	resumed         bool          // PendingElsewhere: another goroutine owns the exchange
	done            chan error    // PendingElsewhere: the result of Resume
	pendingState    string        // describe(x) when the exchange became pending
	callbacks       callbacks     // registered with OnDisconnect and not stopped
	calls           int           // how often the application was called
	receivedRequest string        // the request as the application saw it
	violations      []error
}

func (e *contractEngine) fail(format string, args ...any) {
	e.violations = append(e.violations, fmt.Errorf(format, args...))
}

// afterStep verifies that the exchange did not change after it became pending.
func (e *contractEngine) afterStep(err error) error {
	if errors.Is(err, protocol.ErrPending) && !e.resumed {
		if current := describe(e.x); current != e.pendingState {
			e.fail("the exchange was changed after ErrPending:\n%s\nbefore:\n%s", current, e.pendingState)
		}
	}
	return err
}

// pend makes the exchange pending until next has been called.
func (e *contractEngine) pend(next func() error) error {
	e.next, e.pendingState = next, describe(e.x)
	return protocol.ErrPending
}

// describe formats the parts of an exchange that a filter may change.
func describe(x *protocol.Exchange) string {
	return fmt.Sprintf("%s %s%s %s body %p, response %d %s body %p, %d metadata, %v %v %q, deadline %v",
		x.Request.Method, x.Request.Authority, x.Request.Path, FormatHeaders(&x.Request.Header), x.Request.Body,
		x.Response.Status, FormatHeaders(&x.Response.Header), x.Response.Body,
		x.Metadata.Len(), x.Record.Reason, x.Record.Flags, x.Record.Detail, x.Deadline)
}

// SendInterim implements protocol.Downstream.
func (*contractEngine) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream. It calls f only in DisconnectedWhileWaiting: in
// Canceled, the application returns the Fault of a disconnect instead.
func (e *contractEngine) OnDisconnect(f func()) (stop func()) { return e.callbacks.add(f) }

// callbacks holds the functions that are registered with OnDisconnect. It is safe for concurrent
// use.
type callbacks struct {
	mu   sync.Mutex
	byID map[int]func() // guarded by mu
	next int            // guarded by mu; ID of the next callback
}

// add registers f. When stop returns, f has returned or will not be called.
func (c *callbacks) add(f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = make(map[int]func())
	}
	id := c.next
	c.next++
	c.byID[id] = f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.byID, id)
	}
}

// call calls all callbacks and returns their number.
func (c *callbacks) call() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.byID {
		f()
	}
	return len(c.byID)
}

// RunBlocking implements protocol.BlockingRunner.
func (e *contractEngine) RunBlocking(ctx context.Context, s protocol.BlockingService) error {
	if e.ownsGoroutine {
		return s.Serve(ctx, e.x)
	}
	return e.pend(func() error {
		e.ownsGoroutine = true
		result := make(chan error, 1)
		go func() { result <- protocol.ServeRecovered(ctx, s, e.x) }()
		if e.mode == DisconnectedWhileWaiting {
			e.disconnectWaiting(result)
		}
		err := <-result
		e.ownsGoroutine = false
		return err
	})
}

// disconnectWaiting disconnects the client if the service waits, that is, if it has not sent its
// result yet. It then verifies that the service ends.
func (e *contractEngine) disconnectWaiting(result <-chan error) {
	synctest.Wait()
	if len(result) > 0 {
		return
	}
	watchers := e.callbacks.call()
	if b, ok := e.requestBody.(*SlowBody); ok {
		b.disconnect()
		watchers++
	}
	if watchers == 0 {
		e.fail("the filter waits without a callback of OnDisconnect")
		return
	}
	if synctest.Wait(); len(result) == 0 {
		e.fail("the filter continues to wait after the client has disconnected")
	}
}

// contractApplication is the service behind the filter.
type contractApplication struct{ *contractEngine }

// Start implements protocol.Service.
func (a contractApplication) Start(ctx context.Context, x *protocol.Exchange) error {
	a.calls++
	switch {
	case a.mode == Canceled && a.ownsGoroutine:
		return newDisconnectFault()
	case a.mode == Canceled:
		return a.pend(newDisconnectFault)
	case a.mode == Retried:
		x.PushFinisher(retriedApplication(a))
		if a.ownsGoroutine {
			return a.respond("dropped")
		}
		return a.pend(func() error { return a.respond("dropped") })
	case a.mode == Sync || a.ownsGoroutine:
		return a.respond("response")
	case a.mode == PendingElsewhere:
		a.resumed = true
		go func() { a.done <- x.Resume(ctx, a.respond("response")) }()
		return protocol.ErrPending
	default:
		return a.pend(func() error { return a.respond("response") })
	}
}

func newDisconnectFault() error {
	return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection")
}

// respond reads the request and sets the response.
func (a contractApplication) respond(text string) error {
	r := &a.x.Request
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s %s", r.Method, r.Authority, r.Path, FormatHeaders(&r.Header))
	if body := r.Body; body != nil {
		content, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n%s", content)
		if rewinder, ok := body.(protocol.Rewinder); ok && a.mode == Retried {
			rewinder.Rewind()
		}
	}
	a.receivedRequest = b.String()
	a.x.LocalReply(200, "text/plain", text)
	a.x.Response.Header.Add("grpc-status", "0")
	a.x.Response.Source = protocol.UpstreamResponse
	return nil
}

// retriedApplication drops the first response and responds again.
type retriedApplication struct{ *contractEngine }

// Finish implements protocol.Finisher.
func (r retriedApplication) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		return err
	}
	x.ResetResponse()
	return x.RunBlocking(ctx, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		return contractApplication(r).respond("response")
	}))
}
