package proxy

import (
	"context"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// attempt is one try of a race: an exchange of its own, of which it is the Caller. It
// belongs to the goroutine that run runs on, until the race receives it, but for what no
// comment below says otherwise of.
type attempt struct {
	race   *hedgedRequest  // immutable
	budget RetryBudget     // immutable; to be given back; nil: none
	beside bool            // immutable; it began while others ran
	first  int             // immutable; where its own attempts begin in x.Record
	ctx    context.Context //nolint:containedctx // immutable; of the exchange; it ends with it
	cancel context.CancelFunc
	watch  stream.DisconnectWatch[struct{}]

	x   protocol.Exchange
	err error // a Fault

	ended    bool // the race has received it; owned by the race
	accepted bool // its answer is the caller's; owned by the race

	// Guarded by race.mu.
	hosts    []protocol.Attempt // that it was sent to
	canceled bool               // nobody wants it
	done     bool               // it has ended, and the race has it, or soon will
}

// run serves the try, until life ends at most.
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

// chose notes where the try goes.
func (a *attempt) chose(host, cluster protocol.Named) {
	r := a.race
	r.mu.Lock()
	a.hosts = append(a.hosts, protocol.Attempt{Host: host})
	r.hosts = append(r.hosts, protocol.Attempt{Host: host})
	r.cluster = cluster
	r.mu.Unlock()
	select {
	case r.moved <- struct{}{}:
	default: // it will look anyway
	}
}

// attempts lists where the try went, for a record: of one that has not ended, no more
// than that.
func (a *attempt) attempts() []protocol.Attempt {
	if a.ended {
		return a.x.Record.Attempts[a.first:]
	}
	a.race.mu.Lock()
	defer a.race.mu.Unlock()
	return a.hosts
}

// leave gives the try up: it ends soon, as that of a caller that is gone.
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

// discard drops what the try brought; its host is told of an answer.
func (a *attempt) discard() {
	if h, ok := a.x.Record.Host().(dropped); ok && a.err == nil {
		h.ResponseDiscarded(&a.x)
	}
	a.x.ResetResponse()
	a.cancel()
}

// inBackground runs f beside the exchange.
func (a *attempt) inBackground(f func()) { a.race.h.start(func(context.Context) { f() }) }

// SendInterim is protocol.Downstream's: which try will be the caller's is not known yet, so that
// none has its interim answers passed on.
func (a *attempt) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect is protocol.Downstream's. Of a try whose answer was taken the caller is the one that
// asked.
func (a *attempt) OnDisconnect(gone func()) (stop func()) {
	if !a.accepted {
		return a.watch.Start(a.inBackground, gone)
	}
	if c := a.race.x.Caller; c != nil {
		return c.OnDisconnect(gone)
	}
	return func() {}
}

// Canceled is protocol.Cancellable's.
func (a *attempt) Canceled() bool { return a.watch.Ended() || a.race.x.Canceled() }

// acceptBody makes the content of the try's answer content of the caller's.
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

// wonBody is the content of an answer to a try. Closing it ends the try.
type wonBody struct {
	protocol.Body

	from   *attempt
	to     *protocol.Response
	self   protocol.Body // what to.Body is
	whole  bool
	closed bool
}

// Read is protocol.Body's.
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

// Complete is protocol.CompleteBody's.
func (b *wonBody) Complete() (whole, empty bool) {
	if w, ok := b.Body.(protocol.CompleteBody); ok {
		return w.Complete()
	}
	return false, false
}

// Close is protocol.Body's. It takes itself out of the exchange, so that the engine does
// not close it again.
func (b *wonBody) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.to.BodyClosed(b.self)
	defer b.from.cancel()
	return b.Body.Close()
}

// wonMessage is wonBody of RPC, whose frame engines look for.
type wonMessage struct {
	*xprotocol.Message
	body *wonBody
}

// Close is protocol.Body's.
func (m *wonMessage) Close() error { return m.body.Close() }

// noting has tries of a race note which host they chose.
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
