package http2

import (
	"errors"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

const (
	// firstRead and busyRead are how much is read at once, in bytes: the second
	// while reads fill the first.
	firstRead = 4 << 10
	busyRead  = 64 << 10
	// leastPart is how much of a DATA frame has to have come, in bytes, to be dealt
	// with before the rest: less is not worth a frame of its own.
	leastPart = 4 << 10
	// maxScratch is how large a scratch is kept for the next frames, in bytes.
	maxScratch = 16 << 10
	// leastCharge is the number of charges of a connection from which on they are added to
	// the budgets of its source address and its listener. A connection with fewer charges is
	// not closed for those of others, unless none of its requests was answered and its
	// address is over its budget.
	leastCharge = 16
)

// muxConn is one connection, of either side: what its two halves have in common.
type muxConn struct {
	engine     *Engine             // immutable
	conn       *network.Conn       // immutable
	outbox     *network.WriteQueue // immutable
	side       connSide            // immutable
	idle       time.Duration       // immutable; how long nothing may go on a stream; 0: for ever
	creditFrom int                 // immutable; how much of a stream's content is taken before its peer is told, in bytes

	mu       sync.Mutex
	state    *syntax.Session // guarded by mu; what it appends is put into the outbox with mu held
	lost     error           // guarded by mu; a Fault: the connection has ended
	stalled  fifo[muxStream] // guarded by mu; those that found the connection's window closed
	waiters  fifo[pump]      // guarded by mu; those that found the outbox full, once each
	awaiting bool            // guarded by mu; awaitRoom runs
	scratch  []byte          // guarded by mu; where state appends to
	alarm    connTimer

	// Of the reader's goroutine.
	in    *buffer.IoBuffer // nil: nothing is left
	event syntax.Event     // what the last frame meant
	busy  bool             // the last read filled its buffer
	read  int              // bytes, since something was flushed last
}

// connSide is what a wire is half of: a session or a Client.
type connSide interface {
	// happened deals with what concerns only this side: heads, settings, answers to
	// pings, GOAWAY. wire.mu is held. What it returns is called without.
	happened(e *syntax.Event, b *batch) func(b *batch)
	// reset and broken say what it means that the peer has reset a stream, and that
	// it broke a rule on one. They are Faults.
	reset(code syntax.Code) error
	broken(e *syntax.StreamError) error
	// chargeFrom returns the number of charges from which on charge is called. wire.mu is
	// held.
	chargeFrom(now time.Time) int
	// charge adds n charges to the budgets that the connection shares; its error ends the
	// connection. wire.mu is held.
	charge(n int, now time.Time) error
	timeoutSide
}

// timeoutSide is what the alarm asks a side.
type timeoutSide interface {
	// idleReason is why a stream ends on which nothing goes.
	idleReason() protocol.Reason
	// expired is called when the alarm rings, with wire.mu held. What it returns is
	// called without; next is when it wants to be called again.
	expired(b *batch) (then []func(*batch), next time.Time)
}

// init makes w that of conn. The side sets state.
func (w *muxConn) init(e *Engine, conn *network.Conn, side connSide) {
	w.engine, w.conn, w.side = e, conn, side
	w.outbox = network.NewOutbox(conn, e.start)
	w.stalled.links = func(l *muxStream) *links[muxStream] { return &l.queued }
	w.waiters.links = func(p *pump) *links[pump] { return &p.queued }
}

// enqueue puts frames that state has appended to scratch into the outbox, and
// reports whether there are any. mu is held.
func (w *muxConn) enqueue(frames []byte) (some bool) {
	if len(frames) > 0 {
		_ = w.queue(frames) // the reader finds out
	}
	return len(frames) > 0
}

// queue puts frames that state has appended to scratch into the outbox; the error says that
// the connection is lost. mu is held.
func (w *muxConn) queue(frames []byte) error {
	w.scratch = frames[:0]
	if cap(frames) > maxScratch {
		w.scratch = nil
	}
	return w.outbox.EndFrame(append(w.outbox.BeginFrame(len(frames)), frames...))
}

// startHead returns scratch for the frames of a header section, which put takes. Nothing is
// sent if what appends them panics: the caller recovers and resets the stream, and the
// connection goes on. The error is ErrOutboxFull, before anything is encoded: the peer has to
// see each section that was (RFC 9113 4.3). mu is held.
func (w *muxConn) startHead() ([]byte, error) {
	if w.outbox.Full() {
		return nil, network.ErrOutboxFull
	}
	if w.scratch == nil {
		w.scratch = make([]byte, 0, firstRead/8)
	}
	return w.scratch[:0], nil
}

// put queues what was appended to startHead's scratch, or returns why it was not; errors are
// Faults. mu is held.
func (w *muxConn) put(frames []byte, err error) error {
	switch {
	case err == nil:
		err = w.queue(frames)
	case !errors.Is(err, syntax.ErrNotOpen):
		return err
	}
	if err != nil {
		return goneFault(err)
	}
	return nil
}

// appendEnd sends the end of l's message, with trailers if there are any. mu is
// held.
func (w *muxConn) appendEnd(l *muxStream, trailer *protocol.Header) error {
	if l.cut != nil {
		return l.cut
	}
	dst, err := w.startHead()
	if err != nil {
		return goneFault(err)
	}
	if trailer != nil && trailer.Len() > 0 {
		return w.put(w.state.AppendTrailer(dst, l.stream, trailer))
	}
	dst, _, err = w.state.ReserveData(dst, l.stream, 0, true)
	return w.put(dst, err)
}

// goneFault is why nothing can be sent to a peer: it is gone, or does not want it.
func goneFault(err error) error { return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err) }

// block notes that l waits for its window, or for the connection's. mu is held.
func (w *muxConn) block(l *muxStream) {
	l.stalled = true
	if w.state.SendWindow() <= 0 {
		w.stalled.push(l)
	}
}

// unblock takes it back. mu is held.
func (w *muxConn) unblock(l *muxStream) {
	l.stalled = false
	w.stalled.remove(l)
	l.writable.Broadcast()
}

// windowGrown takes l back, whose window has grown, and returns what is to be called
// without mu. mu is held.
func (w *muxConn) windowGrown(l *muxStream) func(b *batch) {
	if l == nil || !l.stalled {
		return nil
	}
	w.unblock(l)
	return l.out.kick
}

// resumeBlocked has those go on that wait for the connection's window, in the order in which
// they began to, as long as there is any of it. Who waits for the window of a stream
// is left alone: thousands may, whom updates of the connection's would wake in vain.
func (w *muxConn) resumeBlocked(b *batch) {
	for {
		w.mu.Lock()
		if w.state.SendWindow() <= 0 || w.stalled.empty() {
			w.mu.Unlock()
			return
		}
		l := w.stalled.first
		w.unblock(l)
		w.mu.Unlock()
		l.out.kick(b)
	}
}

// resized takes back all that are stalled, for every stream's window may have changed,
// and returns what is to be called without mu. mu is held.
func (w *muxConn) resized() (all []func(b *batch)) {
	for s := range w.state.Streams() {
		if l := muxStreamOf(s); l != nil {
			if then := w.windowGrown(l); then != nil {
				all = append(all, then)
			}
		}
	}
	return all
}

// fill reads once. wait is called before it waits for something to read.
func (w *muxConn) fill(wait func(), b *batch) error {
	size := firstRead
	if w.busy {
		size = busyRead
	}
	if w.in != nil {
		// The beginning of a frame must not leave room for its end alone.
		w.reserve(max(size, w.in.Cap())-w.in.Len(), b)
	}
	n, err := w.conn.FillOnWait(&w.in, size, wait)
	if err != nil {
		if w.in != nil && w.in.Len() == 0 {
			w.release()
		}
		return err
	}
	w.busy = len(w.in.Tail()) == 0 || w.busy && n > firstRead
	w.read += n
	return nil
}

// partial reports whether a frame has begun and is not whole.
func (w *muxConn) partial() bool { return w.in != nil }

func (w *muxConn) release() {
	if w.in != nil {
		w.in.Release()
		w.in = nil
	}
}

// frames deals with every whole frame that there is. The error is a
// *syntax.ConnectionError.
func (w *muxConn) frames(b *batch) error {
	err := w.eachFrame(b)
	w.event = syntax.Event{} // a connection that waits holds no buffer
	switch {
	case w.in == nil || w.in.Len() > 0:
	case len(b.lent) > 0:
		b.hold(w.in)
		w.in = nil
	default:
		w.release()
	}
	return err
}

// eachFrame is frames without what comes behind.
func (w *muxConn) eachFrame(b *batch) error {
	limit := w.state.MaxFrameSize() // immutable
	for w.in != nil && w.in.Len() > 0 {
		f, n, err := syntax.ParseFrame(w.in.Bytes(), limit)
		if err != nil {
			return err
		}
		if n == 0 {
			return w.part(b)
		}
		if err := w.frame(f, b); err != nil {
			return err
		}
		w.in.Discard(n)
	}
	return nil
}

// part deals with a frame that is not whole: with the content that has come, so that
// it need not be moved to where there is room for all of it.
func (w *muxConn) part(b *batch) error {
	all := w.in.Bytes()
	if len(all) < syntax.FrameHeaderLen {
		return nil
	}
	left := frameLen(all) - len(all)
	f, rest := syntax.ParsePartialData(all, leastPart)
	if len(f.Payload) == 0 {
		w.reserve(left, b)
		return nil
	}
	if err := w.frame(f, b); err != nil {
		return err
	}
	w.restart(rest[:], left, b)
	return nil
}

// reserve makes room for n bytes behind those that are not dealt with.
func (w *muxConn) reserve(n int, b *batch) {
	switch {
	case len(b.lent) == 0:
		w.in.Reserve(n)
	case len(w.in.Tail()) < n: // what is lent is not moved
		w.restart(w.in.Bytes(), n, b)
	}
}

// restart is reserve where only rest is not dealt with, which is a part of the buffer
// only if that is lent.
func (w *muxConn) restart(rest []byte, n int, b *batch) {
	if len(b.lent) == 0 {
		w.in.Reset()
		_, _ = w.in.Write(rest) // never fails
		w.in.Reserve(n)
		return
	}
	old := w.in
	w.in = buffer.Get(max(old.Cap(), len(rest)+n))
	_, _ = w.in.Write(rest) // never fails
	b.hold(old)
}

// frameLen is the length of the frame whose header b begins with.
func frameLen(b []byte) int {
	return syntax.FrameHeaderLen + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
}

// frame deals with one frame.
func (w *muxConn) frame(f syntax.Frame, b *batch) error {
	a, err := w.handle(f, b)
	if a.kick != nil {
		a.kick.kick(b)
	}
	if a.lent != nil {
		a.lent.copyBorrowed()
	}
	if a.then != nil {
		a.then(b)
	}
	return err
}

// afterFrame is what is to be called, without mu, because of a frame.
type afterFrame struct {
	kick *pump
	lent *content
	then func(*batch)
}

// handle is frame with mu held. A panic in the decoder leaves the compression table in an
// unknown state (RFC 9113 4.3): the reader recovers and closes the connection.
func (w *muxConn) handle(f syntax.Frame, b *batch) (a afterFrame, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	charged := w.state.Charges()
	e := &w.event
	out, err := w.state.Handle(w.scratch[:0], f, b.now, e)
	if err != nil {
		out, a.then, err = w.handleStreamError(out, err, b)
	}
	w.enqueueBatched(out, b)
	switch {
	case err != nil || a.then != nil || e.Kind == syntax.Nothing:
	case e.Kind == syntax.DataArrived:
		a.kick, a.lent = w.handleData(e, b)
	default:
		a.then = w.happened(e, b)
	}
	if err == nil && w.state.Charges() > charged { // behind what the frame means: a stream may have ended by it
		if n := w.state.TakeCharges(w.side.chargeFrom(b.now)); n > 0 {
			err = w.side.charge(n, b.now)
		}
	}
	return a, err
}

// errInternal ends a connection after a panic on its reader's goroutine.
var errInternal = &syntax.ConnectionError{Code: syntax.InternalError, Reason: "internal error"}

// handleStreamError ends the stream on which the peer broke a rule. Other errors it returns. mu
// is held.
func (w *muxConn) handleStreamError(out []byte, err error, b *batch) ([]byte, func(*batch), error) {
	var e *syntax.StreamError
	if !errors.As(err, &e) {
		return out, nil, err
	}
	l := muxStreamOf(w.state.Stream(e.ID))
	out, err = w.state.Fail(out, e, b.now)
	if l == nil || err != nil {
		return out, nil, err
	}
	return out, l.owner.fail(w.side.broken(e)), nil
}

// end fails what is under way, for the connection has ended, or ends. The reader
// calls it, as the last thing.
func (w *muxConn) end(why error, b *batch) {
	w.mu.Lock()
	var all []func(*batch)
	if w.lost == nil {
		w.lost = why
		if w.alarm.timer != nil {
			w.alarm.timer.Stop()
		}
		for s := range w.state.Streams() {
			if l := muxStreamOf(s); l != nil {
				if f := l.owner.fail(why); f != nil {
					all = append(all, f)
				}
			}
		}
	}
	w.mu.Unlock()
	for _, f := range all {
		f(b)
	}
	b.flush()
	w.alarm.firing.Wait()
}

// enqueueBatched is append for the reader.
func (w *muxConn) enqueueBatched(frames []byte, b *batch) {
	if w.enqueue(frames) {
		b.sends(w.outbox)
	}
}

// handleData gives content to its lane and returns the pump to be kicked, and what was
// lent content, if anything was. mu is held.
func (w *muxConn) handleData(e *syntax.Event, b *batch) (kick *pump, lent *content) {
	l := muxStreamOf(e.Stream)
	if l == nil {
		return nil, nil
	}
	if l.dropped {
		w.enqueueBatched(w.state.Consumed(w.scratch[:0], e.Stream, len(e.Data)), b)
		if e.End {
			l.owner.(*lingeringStream).end(b) //nolint:forcetypeassert // only a remainder drops
		}
		return nil, nil
	}
	l.touch(b.now)
	kick, isLent, unwanted := l.in.add(e.Data, w.dataFrame(e.Data), b)
	if isLent {
		lent = &l.in
	}
	if unwanted > 0 {
		w.enqueueBatched(w.state.Consumed(w.scratch[:0], e.Stream, unwanted), b)
	}
	if e.End {
		kick = l.in.end()
	}
	return kick, lent
}

// dataFrame returns the frame that the reader deals with, if it has this content and
// nothing else, as padding.
func (w *muxConn) dataFrame(data []byte) []byte {
	all := w.in.Bytes()
	end := syntax.FrameHeaderLen + len(data)
	if len(data) == 0 || end > len(all) || &all[syntax.FrameHeaderLen] != &data[0] {
		return nil
	}
	return all[:end]
}

// happened deals with what is not content. mu is held. What it returns is called
// without.
func (w *muxConn) happened(e *syntax.Event, b *batch) func(*batch) {
	switch e.Kind {
	case syntax.TrailersArrived:
		if l := muxStreamOf(e.Stream); l != nil {
			if l.dropped {
				return l.owner.fail(nil)
			}
			if kick := l.in.endWith(w.state); kick != nil {
				return kick.kick
			}
		}
	case syntax.StreamReset:
		if l := muxStreamOf(e.Stream); l != nil {
			return l.owner.fail(w.side.reset(e.Code))
		}
	case syntax.WindowGrew:
		if e.Stream != nil {
			return w.windowGrown(muxStreamOf(e.Stream))
		}
		if !w.stalled.empty() {
			return w.resumeBlocked
		}
	case syntax.SettingsArrived:
		then := w.side.happened(e, b)
		return callAll(append(w.resized(), then))
	default:
		return w.side.happened(e, b)
	}
	return nil
}
