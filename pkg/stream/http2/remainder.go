package http2

import (
	"time"

	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// lingeringStream is the stream of an exchange that was answered in full before its
// request was whole. What still comes is dropped for a moment before the stream is
// reset (RFC 9113 8.1): there are clients to which a reset in the middle of sending is
// a failure, whatever the answer was.
type lingeringStream struct{ muxStream }

// detach gives the stream back, or makes it a remainder if code is NoError and the request
// is not whole. It reports whether there is something to be sent.
func (e *exchange) detach(code syntax.Code, now time.Time) (said bool) {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if code == syntax.NoError && e.linger(now) {
		return false
	}
	return e.release(code)
}

// linger makes the stream of e a remainder, if the request is not whole, and reports
// whether it is one. wire.mu is held.
func (e *exchange) linger(now time.Time) bool {
	w := e.wire
	if e.stream == nil || e.cut != nil || w.lost != nil || e.stream.State() != syntax.HalfClosedLocal {
		return false
	}
	r := &lingeringStream{}
	r.wire, r.dropped = w, true
	r.open(e.stream, r, now)
	r.deadline = now.Add(lingerTime)
	w.arm(r.deadline)
	if e.stalled {
		w.unblock(&e.muxStream)
	}
	e.stream, e.owner, e.deadline = nil, nil, time.Time{}
	return true
}

// end gives the stream back, with a reset if its request is still not whole.
// wire.mu is held.
func (r *lingeringStream) end(b *batch) {
	if r.stream != nil {
		r.wire.enqueueBatched(r.wire.state.Release(r.wire.scratch[:0], r.stream, syntax.NoError), b)
		r.stream = nil
	}
}

// expire is owner's.
func (r *lingeringStream) expire(why error) func(*batch) { return r.fail(why) }

// fail is owner's.
func (r *lingeringStream) fail(error) func(*batch) {
	return func(b *batch) {
		r.wire.mu.Lock()
		defer r.wire.mu.Unlock()
		r.end(b)
	}
}
