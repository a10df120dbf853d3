package http2

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// watchAfter is how long an answer may take before a caller of another protocol is
// watched for having gone: watching costs a goroutine, and most answers come sooner.
const watchAfter = 250 * time.Millisecond

// maxInterims is how many interim (1xx) responses a host may send before the final one:
// each is passed on, to a caller that may not read.
const maxInterims = 32

// call is an exchange on an upstream connection.
//
// Who works on a call owns it: whoever opens its stream and sends its request first,
// and then whoever has something for the one that waits. What comes meanwhile is
// left to them. The states, guarded by the client's mu:
//
//	busy ──── pause ────▶ waiting ──── answered ────▶ busy (whoever answered goes on)
//	  └── answered ──▶ busy (it goes on itself, instead of waiting)
type call struct {
	muxStream
	u      *UpstreamConn
	x      *protocol.Exchange
	e      *exchange     // x's Caller, if it is one of ours
	number atomic.Uint64 // of all calls of the engine; 0: it is nobody's

	// resumes: x goes on on the goroutine of whoever answers; otherwise one waits
	// for wake.
	resumes bool
	wake    chan struct{}

	// Guarded by u.mu.
	waits    links[call] // in u.queue: it waits until a stream may be opened
	busy     bool        // a goroutine works on it
	answered bool        // x.Response has a head, or err is set
	err      error       // a Fault: why there is no answer
	unsent   bool        // its stream was opened; the goroutine that waits is to send the content
	ended    bool        // the request has been sent to its end
	informed int         // interim answers that have come
	read     time.Time   // when the head of the answer was read
	interims []interim   // to be passed on

	text    []byte // what x.Response is views of
	body    answer
	sending *sending // the goroutine that sends the request's content; nil: none
}

// waiting says on which connection, and as which call of it, an exchange waits for
// an answer. A number comes only once.
type waiting struct {
	client *UpstreamConn
	call   *call
	number uint64
}

// interim is an answer before the final one.
type interim struct {
	status int
	header protocol.Header
}

// newCall returns a call that is nobody's.
func (e *Engine) newCall() *call {
	k, ok := e.calls.Get().(*call)
	if !ok {
		k = &call{wake: make(chan struct{}, 1)}
		k.body.k = k
	}
	return k
}

// begin makes k the call of x.
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

// yield ends the work on k, which then waits, and reports false if it was answered
// meanwhile: then it is still the caller's. One on which a goroutine waits always
// waits.
func (k *call) yield() bool {
	k.u.mu.Lock()
	defer k.u.mu.Unlock()
	if k.resumes && k.answered {
		return false
	}
	k.busy = false
	return true
}

// setResult notes that k has an answer, or never will. u.mu is held. Whoever gets true
// is to call resume, with u.mu released.
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
	default: // it will look anyway
	}
}

// resume lets x go on, whose call was answered.
func (k *call) goOn(b *batch) {
	e := k.e
	e.batch = b
	e.resume(b, contained(k.receive))
}

// opened goes on with a call that resumes and had waited for its stream.
func (k *call) opened(b *batch) {
	if k.stream != nil {
		k.upload(b)
	}
	if !k.yield() {
		k.goOn(b)
	}
}

// head takes the head of an answer, which is the session's last event. u.mu is held.
func (k *call) head(e *syntax.Event, b *batch) func(*batch) {
	if k.answered {
		return nil // with a fault: the answer is not wanted
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
	if !k.x.PerTryDeadline.IsZero() { // it was for the head: TestTheTimeOfATryEndsWithTheHead
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

// take makes the head that has arrived x.Response. u.mu is held. The error is the Fault
// that a panic became.
func (k *call) take(e *syntax.Event) (err error) {
	defer protocol.RecoverPanic(&err)
	k.text = k.u.state.TakeResponse(e.Stream, &k.x.Response, k.text[:0])
	return nil
}

// inform has interim answers passed on. u.mu is held.
func (k *call) inform() func(*batch) {
	if !k.resumes {
		k.rouse()
		return nil
	}
	if k.busy {
		return nil // whoever is on it does it
	}
	k.busy = true
	return func(b *batch) {
		k.pass()
		if !k.yield() {
			k.goOn(b)
		}
	}
}

// pass passes on the interim answers that have come.
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
		protocol.PanicIn(err).Log(k.u.engine.log, "passing on an interim response")
		if err != nil {
			return // the caller is gone: its engine tells
		}
	}
}

// await waits on the caller's goroutine until x is answered.
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
				sent = k.sending.done // until then it is the upload that notices
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

// receive ends the wait: x has its answer, or the Fault that is returned.
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
			k.answerIdle = 0 // the tunnel's peers say how long it may be idle
			u.mu.Unlock()
			x.Response.SetTunnel(newTunnel(k))
			return nil
		}
		x.Response.SetBody(&k.body)
		return nil
	}
	err := k.err
	if errors.Is(err, errAnswerIdle) {
		x.PerTryDeadline = time.Time{} // the exchange as a whole is idle, not this try alone
	}
	started := k.end()
	x.ResetResponse()
	if started && protocol.ReasonOf(err).Traits().SafeToRetry && !k.rewind() {
		err = protocol.Faultf(protocol.UpstreamReset, "the request's content had been sent in part: %w", err)
	}
	k.free()
	u.o.OnRelease(!u.closing.Load())
	return err
}

// rewind reports whether the request can be sent again from its start.
func (k *call) rewind() (again bool) {
	defer func() {
		if p := recover(); p != nil { // of a body that a filter made
			k.u.engine.panicked("reading a request's content again", p)
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

// drop is the end of a call that was not sent, because of err.
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

// free gives the stream back and makes k nobody's. Its request is not read any more.
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

// fail is owner's.
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

// expire is owner's.
func (k *call) expire(why error) func(*batch) { return k.fail(why) }

// abandon ends the call that is waited for, because its caller is gone.
func (w waiting) abandon() { w.client.abandon(w, nil) }

// abandon ends a call whose caller is gone.
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
	then := k.fail(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the caller has gone while the upstream was answering"))
	u.mu.Unlock()
	if then != nil {
		then(b)
	}
}

// answer is the content of an answer; closing it ends the call.
type answer struct {
	k      *call
	closed bool
}

// Read is protocol.Body's. Its errors are Faults. A caller of another protocol is
// watched for having gone if content is long in coming.
func (a *answer) Read(p []byte) (int, error) {
	k := a.k
	if k.e == nil && k.x.Caller != nil && (k.sending == nil || k.sending.over()) && !k.in.await(watchAfter) {
		on := waiting{k.u, k, k.number.Load()}
		defer k.x.Caller.OnDisconnect(on.abandon)()
	}
	return k.in.Read(p)
}

// Complete is protocol.CompleteBody's.
func (a *answer) Complete() (whole, empty bool) { return a.k.in.Complete() }

// Buffered is protocol.Body's.
func (a *answer) Buffered() int { return a.k.in.Buffered() }

// Close is protocol.Body's. It takes itself out of the exchange, so that the engine
// does not close it again.
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
