package proxy

import (
	"context"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// attempt is one attempt of a hedge: an exchange with itself as Caller. The goroutine of run owns
// it until the hedge receives it, except where a comment below says otherwise.
type attempt struct {
	race   *hedgedRequest  // immutable
	budget RetryBudget     // immutable; nil: nothing to release
	beside bool            // immutable; launched while others ran
	first  int             // immutable; index of its first attempt in x.Record
	ctx    context.Context //nolint:containedctx // immutable; of the exchange; it ends with it
	cancel context.CancelFunc
	watch  stream.DisconnectWatch[struct{}]

	x   protocol.Exchange
	err error // a Fault

	ended    bool // the hedge has received it; owned by the hedge
	accepted bool // its response goes to the client; owned by the hedge

	// Guarded by race.mu.
	hosts    []protocol.Attempt // hosts that it was sent to
	canceled bool               // the hedge has abandoned it
	done     bool               // it has ended and goes to the hedge
}

// run serves the attempt and cancels it when life ends.
func (a *attempt) run(life context.Context) {
	defer context.AfterFunc(life, a.cancel)()
	a.err = attemptError(&a.x, a.serve())
	if a.budget != nil {
		a.budget.EndRetry()
	}
	r := a.race
	r.mu.Lock()
	left := a.canceled
	a.done = !left
	r.mu.Unlock()
	if left {
		a.discard()
		return
	}
	r.ended <- a
}

func (a *attempt) serve() error {
	if err := a.race.request.fill(&a.x); err != nil {
		return err
	}
	return protocol.ServeRecovered(a.ctx, a.race.h.next, &a.x)
}

// chose records the host of the attempt.
func (a *attempt) chose(host, cluster protocol.Named) {
	r := a.race
	r.mu.Lock()
	a.hosts = append(a.hosts, protocol.Attempt{Host: host})
	r.hosts = append(r.hosts, protocol.Attempt{Host: host})
	r.cluster = cluster
	r.mu.Unlock()
	select {
	case r.moved <- struct{}{}:
	default: // the hedge has a notification pending
	}
}

// attempts returns the attempts for the record. If the attempt has not ended, they contain only
// hosts.
func (a *attempt) attempts() []protocol.Attempt {
	if a.ended {
		return a.x.Record.Attempts[a.first:]
	}
	a.race.mu.Lock()
	defer a.race.mu.Unlock()
	return a.hosts
}

// leave abandons the attempt; it ends soon, as after a client disconnect.
func (a *attempt) leave() {
	a.race.mu.Lock()
	a.canceled = true
	over := a.done
	a.race.mu.Unlock()
	if over {
		a.discard()
		return
	}
	a.watch.NotifyDisconnect(a.inBackground)
	a.cancel()
}

// discard drops the result and tells the host about a discarded response.
func (a *attempt) discard() {
	if h, ok := a.x.Record.Host().(dropped); ok && a.err == nil {
		h.ResponseDiscarded(&a.x)
	}
	a.x.ResetResponse()
	a.cancel()
}

// inBackground runs f on another goroutine.
func (a *attempt) inBackground(f func()) { a.race.h.start(func(context.Context) { f() }) }

// SendInterim implements protocol.Downstream. It drops interim responses, because the hedge does
// not yet know which attempt the client gets.
func (a *attempt) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream. For an accepted attempt it watches the client
// itself.
func (a *attempt) OnDisconnect(gone func()) (stop func()) {
	if !a.accepted {
		return a.watch.Start(a.inBackground, gone)
	}
	if c := a.race.x.Caller; c != nil {
		return c.OnDisconnect(gone)
	}
	return func() {}
}

// Canceled implements protocol.Cancellable.
func (a *attempt) Canceled() bool { return a.watch.Ended() || a.race.x.Canceled() }

// acceptBody makes the body of the attempt the body of the client's response.
func (a *attempt) acceptBody(body protocol.Body) protocol.Body {
	if body == nil {
		a.cancel()
		return nil
	}
	b := &wonBody{Body: body, from: a, to: &a.race.x.Response}
	if m := xprotocol.MessageOf(body); m != nil {
		f := &wonMessage{Message: m, body: b}
		b.self = f
		return f
	}
	b.self = b
	return b
}

// wonBody is the body of the accepted response. Closing it ends the attempt.
type wonBody struct {
	protocol.Body

	from   *attempt
	to     *protocol.Response
	self   protocol.Body // the value of to.Body
	whole  bool
	closed bool
}

// Read implements protocol.Body.
func (b *wonBody) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	if err == io.EOF && !b.whole {
		b.whole = true
		for name, value := range b.from.x.Response.Trailer.All() {
			b.to.Trailer.Add(name, value)
		}
	}
	return n, err
}

// Complete implements protocol.CompleteBody.
func (b *wonBody) Complete() (whole, empty bool) {
	if w, ok := b.Body.(protocol.CompleteBody); ok {
		return w.Complete()
	}
	return false, false
}

// Close implements protocol.Body. It removes the body from the exchange so that the engine does not
// close it again.
func (b *wonBody) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.to.BodyClosed(b.self)
	defer b.from.cancel()
	return b.Body.Close()
}

// wonMessage is wonBody for RPC, where engines look for the frame.
type wonMessage struct {
	*xprotocol.Message
	body *wonBody
}

// Close implements protocol.Body.
func (m *wonMessage) Close() error { return m.body.Close() }

// noting wraps chosen so that hedged attempts record the host that they chose.
func noting(chosen func(x *protocol.Exchange, h *upstream.Host)) func(x *protocol.Exchange, h *upstream.Host) {
	return func(x *protocol.Exchange, h *upstream.Host) {
		if a, ok := x.Caller.(*attempt); ok {
			a.chose(h, h.Cluster())
		}
		if chosen != nil {
			chosen(x, h)
		}
	}
}
