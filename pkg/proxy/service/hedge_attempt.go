package service

import (
	"context"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// attempt is one attempt of a hedge: an exchange whose Downstream is the attempt itself. The
// goroutine of run owns it until the hedge receives it, except where a comment below says
// otherwise.
type attempt struct {
	request     *hedgedRequest  // immutable
	budget      RetryBudget     // immutable; nil: nothing to release
	concurrent  bool            // immutable; launched while others ran
	recordStart int             // immutable; index of this attempt's first entry in x.Record.Attempts
	ctx         context.Context //nolint:containedctx // immutable; context of the exchange
	cancel      context.CancelFunc
	watch       stream.DisconnectWatch[struct{}]

	x       protocol.Exchange
	cluster hedgedCluster // cluster of the last chosen host; nil: no host was chosen
	err     error         // a Fault

	ended    bool // the hedge has received the attempt; owned by the hedge
	accepted bool // the response goes to the client; owned by the hedge

	// Guarded by request.mu.
	hosts     []protocol.Attempt // hosts that were chosen for the attempt
	abandoned bool               // the hedge no longer waits for the attempt
	done      bool               // the attempt has ended and goes to the hedge
}

// run serves the attempt and cancels it when ctx ends.
func (a *attempt) run(ctx context.Context) {
	defer context.AfterFunc(ctx, a.cancel)()
	a.err = attemptError(&a.x, a.serve())
	if a.budget != nil {
		a.budget.EndRetry()
	}
	r := a.request
	r.mu.Lock()
	abandoned := a.abandoned
	a.done = !abandoned
	r.mu.Unlock()
	if abandoned {
		a.discard()
		return
	}
	r.results <- a
}

func (a *attempt) serve() error {
	if err := a.request.request.fill(&a.x); err != nil {
		return err
	}
	return a.x.Serve(a.ctx, a.request.hedge.next)
}

// recordHost records the host of the attempt, and its cluster. It counts a concurrent attempt when
// that chooses its first host, because the cluster may be unknown before.
func (a *attempt) recordHost(host protocol.Host, cluster hedgedCluster) {
	r := a.request
	r.mu.Lock()
	isHedge := a.concurrent && len(a.hosts) == 0
	a.hosts = append(a.hosts, protocol.Attempt{Host: host})
	r.hosts = append(r.hosts, protocol.Attempt{Host: host})
	a.cluster, r.cluster = cluster, cluster
	r.mu.Unlock()
	if isHedge {
		cluster.Count(upstream.Hedged)
	}
	select {
	case r.hostChosen <- struct{}{}:
	default: // the hedge has a notification pending
	}
}

// attempts returns the entries of a for the record of the original exchange. If a has not ended,
// they contain only hosts.
func (a *attempt) attempts() []protocol.Attempt {
	if a.ended {
		return a.x.Record.Attempts[a.recordStart:]
	}
	a.request.mu.Lock()
	defer a.request.mu.Unlock()
	return a.hosts
}

// abandon abandons the attempt, which then ends as after a client disconnect.
func (a *attempt) abandon() {
	a.request.mu.Lock()
	a.abandoned = true
	done := a.done
	a.request.mu.Unlock()
	if done {
		a.discard()
		return
	}
	a.watch.NotifyDisconnect(a.runInBackground)
	a.cancel()
}

// discard drops the result and tells the host about a discarded response.
func (a *attempt) discard() {
	if h := a.x.Record.Host(); h != nil && a.err == nil {
		h.ResponseDiscarded(&a.x)
	}
	a.x.ResetResponse()
	a.cancel()
}

// runInBackground runs f on another goroutine.
func (a *attempt) runInBackground(f func()) { a.request.hedge.start(func(context.Context) { f() }) }

// SendInterim implements protocol.Downstream. It drops interim responses, because the hedge does
// not yet know which attempt the client gets.
func (a *attempt) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream. For an accepted attempt it watches the client of the
// original exchange.
func (a *attempt) OnDisconnect(notify func()) (stop func()) {
	if !a.accepted {
		return a.watch.Start(a.runInBackground, notify)
	}
	if c := a.request.x.Downstream; c != nil {
		return c.OnDisconnect(notify)
	}
	return func() {}
}

// Canceled implements protocol.Cancellable.
func (a *attempt) Canceled() bool { return a.watch.Disconnected() || a.request.x.Canceled() }

// acceptBody makes the body of the attempt the body of the client's response.
func (a *attempt) acceptBody(body protocol.Body) protocol.Body {
	if body == nil {
		a.cancel()
		return nil
	}
	b := &acceptedBody{Body: body, attempt: a, response: &a.request.x.Response}
	if m := xprotocol.MessageOf(body); m != nil {
		msg := &acceptedMessage{Message: m, body: b}
		b.wrapper = msg
		return msg
	}
	b.wrapper = b
	return b
}

// acceptedBody is the body of the accepted response. Closing it ends the attempt.
type acceptedBody struct {
	protocol.Body

	attempt  *attempt
	response *protocol.Response
	wrapper  protocol.Body // the value of response.Body
	complete bool
	closed   bool
}

// Read implements protocol.Body.
func (b *acceptedBody) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	if err == io.EOF && !b.complete {
		b.complete = true
		for name, value := range b.attempt.x.Response.Trailer.All() {
			b.response.Trailer.Add(name, value)
		}
	}
	return n, err
}

// Complete implements protocol.CompleteBody.
func (b *acceptedBody) Complete() (complete, empty bool) {
	if body, ok := b.Body.(protocol.CompleteBody); ok {
		return body.Complete()
	}
	return false, false
}

// Close implements protocol.Body. It removes the body from the exchange so that the engine does not
// close it again.
func (b *acceptedBody) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.response.BodyClosed(b.wrapper)
	defer b.attempt.cancel()
	return b.Body.Close()
}

// acceptedMessage is acceptedBody for RPC: engines read the frame of the embedded Message.
type acceptedMessage struct {
	*xprotocol.Message
	body *acceptedBody
}

// Close implements protocol.Body.
func (m *acceptedMessage) Close() error { return m.body.Close() }

// RecordHedgedHost wraps onHostSelected, which may be nil, so that hedged attempts record their
// host.
func RecordHedgedHost(onHostSelected func(x *protocol.Exchange, h *upstream.Host)) func(x *protocol.Exchange, h *upstream.Host) {
	return func(x *protocol.Exchange, h *upstream.Host) {
		if a, ok := x.Downstream.(*attempt); ok {
			a.recordHost(h, h.Cluster())
		}
		if onHostSelected != nil {
			onHostSelected(x, h)
		}
	}
}
