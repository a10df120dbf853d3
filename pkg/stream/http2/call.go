package http2

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// watchAfter is how long a response has to be pending before the engine watches a client of another
// protocol for a disconnect. The watch costs a goroutine, and most responses arrive sooner.
const watchAfter = 250 * time.Millisecond

// maxInterims is the maximum number of interim responses from a host before the final one. Each is
// forwarded to a client that may not read.
const maxInterims = 32

// call is an exchange on an upstream connection.
//
// The goroutine that works on a call owns it: first the one that opens its stream and sends its
// request, later the one that delivers an event while the call is waiting. While a goroutine owns
// the call, events only change its state. The states, guarded by the UpstreamConn's mu:
//
//	busy ──── yield ────▶ waiting ──── answered ────▶ busy (owned by the delivering goroutine)
//	  └── answered ──▶ busy (the owner continues instead of waiting)
type call struct {
	muxStream
	u      *UpstreamConn
	x      *protocol.Exchange
	e      *exchange     // x's Caller if it is an exchange of this engine, else nil
	number atomic.Uint64 // unique in the engine; 0: the call is not in use

	// resumes: x resumes on the goroutine that delivers the response. If false, a goroutine waits
	// for wake.
	resumes bool
	wake    chan struct{}

	// Guarded by u.mu.
	waits    links[call] // in u.queue: the call waits until a stream may be opened
	busy     bool        // a goroutine works on the call
	answered bool        // x.Response has a final head, or err is set
	err      error       // a Fault: why there is no response
	unsent   bool        // the stream was opened; the waiting goroutine has to send the body
	ended    bool        // the head ended the request
	informed int         // number of interim responses received
	read     time.Time   // when the final head was read
	interims []interim   // interim responses to forward

	text    []byte // x.Response holds views of it
	body    answer
	sending *sending // the goroutine that sends the request's body; nil: none was started
}

// waiting identifies the connection and the call on which an exchange waits for a response. number
// is that of the call; no other call has it.
type waiting struct {
	client *UpstreamConn
	call   *call
	number uint64
}

// interim is an interim response.
type interim struct {
	status int
	header protocol.Header
}

// newCall returns a call that is not in use.
func (e *Engine) newCall() *call {
	k, ok := e.calls.Get().(*call)
	if !ok {
		k = &call{wake: make(chan struct{}, 1)}
		k.body.k = k
	}
	return k
}

// begin assigns k to x.
func (k *call) begin(u *UpstreamConn, x *protocol.Exchange, e *exchange, resumes bool) {
	k.wire, k.u, k.x, k.e, k.resumes = &u.muxConn, u, x, e, resumes
	k.writable.L = &u.mu
	k.cut, k.stalled, k.sent = nil, false, 0
	k.busy, k.answered, k.unsent, k.ended, k.err = true, false, false, false, nil
	k.informed = 0
	k.body.closed = false
	k.in.start(&k.muxStream, &x.Response.Trailer, 0)
	k.number.Store(u.engine.numbers.Add(1))
}

// yield ends the ownership of k, which then waits for an event. It returns false if k resumes and
// was answered meanwhile: then the caller still owns k.
func (k *call) yield() bool {
	k.u.mu.Lock()
	defer k.u.mu.Unlock()
	if k.resumes && k.answered {
		return false
	}
	k.busy = false
	return true
}

// setResult records that k has a response, or that it failed with err. u.mu is held. If it returns
// true, the caller owns k and has to resume the exchange after it releases u.mu.
func (k *call) setResult(err error) (mine bool) {
	k.answered, k.err = true, err
	if !k.resumes {
		k.rouse()
		return false
	}
	mine = !k.busy
	k.busy = true
	return mine
}

// rouse wakes the goroutine that waits.
func (k *call) rouse() {
	select {
	case k.wake <- struct{}{}:
	default: // it is already signaled
	}
}

// goOn resumes x after k was answered.
func (k *call) goOn(b *batch) {
	e := k.e
	e.batch = b
	e.resume(b, contained(k.receive))
}

// opened continues a call that resumes, after it left the queue.
func (k *call) opened(b *batch) {
	if k.stream != nil {
		k.upload(b)
	}
	if !k.yield() {
		k.goOn(b)
	}
}

// head processes the head of a response, which is the session's last event. It returns the function
// to call without u.mu, or nil. u.mu is held.
func (k *call) head(e *syntax.Event, b *batch) func(*batch) {
	if k.answered {
		return nil // the call has failed: the response is discarded
	}
	r := &k.x.Response
	if err := k.take(e); err != nil {
		return k.fail(err)
	}
	if r.Status < 200 && r.Status != 101 {
		if k.informed++; k.informed > maxInterims {
			return k.fail(protocol.Faultf(protocol.UpstreamMalformed, "more than %d interim responses", maxInterims))
		}
		k.interims = append(k.interims, interim{r.Status, r.Header})
		r.Status, r.Header, k.text = 0, protocol.Header{}, nil
		return k.inform()
	}
	r.Version = "HTTP/2.0"
	k.read = b.now
	// The per-try timeout applies only to the head: TestTheTimeOfATryEndsWithTheHead.
	if !k.x.PerTryDeadline.IsZero() {
		k.deadline = k.x.Deadline
		k.u.arm(k.deadline)
	}
	if e.End {
		k.in.end()
	}
	if k.setResult(nil) {
		k.u.ready = append(k.u.ready, k)
	}
	return nil
}

// take stores the head that has arrived in x.Response. The error is nil or the Fault of a recovered
// panic. u.mu is held.
func (k *call) take(e *syntax.Event) (err error) {
	defer protocol.RecoverPanic(&err)
	k.text = k.u.state.TakeResponse(e.Stream, &k.x.Response, k.text[:0])
	return nil
}

// inform makes the owner of k forward the interim responses. If k has no owner, it returns the
// function that forwards them, to be called without u.mu. u.mu is held.
func (k *call) inform() func(*batch) {
	if !k.resumes {
		k.rouse()
		return nil
	}
	if k.busy {
		return nil // the goroutine that works on the call forwards them
	}
	k.busy = true
	return func(b *batch) {
		k.pass()
		if !k.yield() {
			k.goOn(b)
		}
	}
}

// pass forwards the interim responses that have arrived.
func (k *call) pass() {
	k.u.mu.Lock()
	list := k.interims
	k.interims = nil
	k.u.mu.Unlock()
	if k.x.Caller == nil {
		return
	}
	for i := range list {
		err := contained(func() error { return k.x.Caller.SendInterim(list[i].status, &list[i].header) })
		protocol.PanicIn(err).Log(k.u.engine.log, "forwarding an interim response")
		if err != nil {
			return // the client has disconnected: its engine reports that
		}
	}
}

// await blocks the goroutine of Serve until k is answered, and returns the error of receive.
func (k *call) await() error {
	var patience <-chan time.Time
	var sent <-chan struct{}
	if k.e == nil && k.x.Caller != nil {
		t := time.NewTimer(watchAfter)
		defer t.Stop()
		patience = t.C
	}
	on := waiting{k.u, k, k.number.Load()}
	for {
		select {
		case <-k.wake:
		case <-patience:
			patience = nil
			if k.sending != nil {
				sent = k.sending.done // until the upload ends, it notices a disconnect
				continue
			}
			defer k.x.Caller.OnDisconnect(on.abandon)()
		case <-sent:
			sent = nil
			defer k.x.Caller.OnDisconnect(on.abandon)()
		}
		k.pass()
		k.u.mu.Lock()
		done, send := k.answered, k.unsent
		k.unsent = false
		k.u.mu.Unlock()
		if send {
			k.upload(k.batch())
		}
		if done {
			return k.receive()
		}
	}
}

// receive sets the body or the tunnel of x's response. If the call failed, it releases the call and
// returns the Fault.
func (k *call) receive() error {
	x, u := k.x, k.u
	if len(k.interims) > 0 {
		k.pass()
	}
	if k.err == nil {
		x.Record.UpstreamFirstByte = k.read
		x.Response.Source = protocol.UpstreamResponse
		if s := x.Response.Status; s == 101 || x.Request.Method == "CONNECT" && x.Request.Upgrade == "" && s/100 == 2 {
			u.mu.Lock()
			k.answerIdle = 0 // idle timeouts of both connections apply to the tunnel
			u.mu.Unlock()
			x.Response.SetTunnel(newTunnel(k))
			return nil
		}
		x.Response.SetBody(&k.body)
		return nil
	}
	err := k.err
	if errors.Is(err, errAnswerIdle) {
		x.PerTryDeadline = time.Time{} // the exchange is idle, not only this attempt: no retry
	}
	started := k.end()
	x.ResetResponse()
	if started && protocol.ReasonOf(err).Traits().SafeToRetry && !k.rewind() {
		err = protocol.Faultf(protocol.UpstreamReset, "a part of the request body was already sent: %w", err)
	}
	k.free()
	u.o.OnRelease(!u.closing.Load())
	return err
}

// rewind rewinds the request's body, and reports whether the request can be sent again.
func (k *call) rewind() (again bool) {
	defer func() {
		if p := recover(); p != nil { // from the body of a filter
			k.u.engine.panicked("rereading a request body", p)
			again = false
		}
	}()
	x := k.x
	if x.Request.Body == nil {
		return true
	}
	r, ok := x.Request.Body.(protocol.Rewinder)
	return ok && r.Rewind()
}

// drop releases a call that was not sent, and returns err.
func (k *call) drop(err error) error {
	u := k.u
	k.free()
	u.o.OnRelease(!u.closing.Load())
	return err
}

func (k *call) batch() *batch {
	if k.e == nil {
		return nil
	}
	return k.e.batch
}

// free releases the stream and puts k back into the pool. Nothing reads the request any more.
func (k *call) free() {
	u, b := k.u, k.batch()
	_ = k.in.Close()
	u.mu.Lock()
	said := k.release(syntax.Cancel)
	k.number.Store(0)
	u.queue.remove(k)
	then := u.next(b.time())
	u.mu.Unlock()
	if said || len(then) > 0 {
		b.sends(u.outbox)
	}
	k.in.reset()
	select {
	case <-k.wake:
	default:
	}
	k.u, k.x, k.e, k.interims, k.sending = nil, nil, nil, nil, nil
	u.engine.calls.Put(k)
	callAll(then)(b)
}

// fail implements owner.
func (k *call) fail(why error) func(*batch) {
	k.sever(why)
	k.u.queue.remove(k)
	to := k.in.fail(why)
	if !k.answered {
		if k.setResult(why) {
			return k.goOn
		}
		return nil
	}
	if to == nil {
		return nil
	}
	return to.kick
}

// expire implements owner.
func (k *call) expire(why error) func(*batch) { return k.fail(why) }

// abandon fails the call because its client has disconnected.
func (w waiting) abandon() { w.client.abandon(w, nil) }

// abandon fails a call because its client has disconnected. It does nothing if the call belongs to
// another exchange by now.
func (u *UpstreamConn) abandon(on waiting, b *batch) {
	k := on.call
	if k.number.Load() != on.number {
		return
	}
	u.mu.Lock()
	if k.number.Load() != on.number {
		u.mu.Unlock()
		return
	}
	then := k.fail(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client disconnected before the upstream response was complete"))
	u.mu.Unlock()
	if then != nil {
		then(b)
	}
}

// answer is the body of a response; Close ends the call.
type answer struct {
	k      *call
	closed bool
}

// Read implements protocol.Body. Its errors are Faults. If the body is slow to arrive, Read watches
// a client of another protocol for a disconnect.
func (a *answer) Read(p []byte) (int, error) {
	k := a.k
	if k.e == nil && k.x.Caller != nil && (k.sending == nil || k.sending.over()) && !k.in.await(watchAfter) {
		on := waiting{k.u, k, k.number.Load()}
		defer k.x.Caller.OnDisconnect(on.abandon)()
	}
	return k.in.Read(p)
}

// Complete implements protocol.CompleteBody.
func (a *answer) Complete() (whole, empty bool) { return a.k.in.Complete() }

// Buffered implements protocol.Body.
func (a *answer) Buffered() int { return a.k.in.Buffered() }

// Close implements protocol.Body. It removes the body from the exchange, so that the engine does
// not close it again.
func (a *answer) Close() error {
	k := a.k
	if a.closed {
		return nil
	}
	a.closed = true
	u := k.u
	k.x.Response.BodyClosed(a)
	k.end()
	k.free()
	u.o.OnRelease(!u.closing.Load())
	return nil
}
