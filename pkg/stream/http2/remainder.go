package http2

import (
	"time"

	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// remainder is the stream of an exchange that was answered in full before its
// request was whole. What still comes is dropped for a moment before the stream is
// reset (RFC 9113 8.1): there are clients to which a reset in the middle of sending is
// a failure, whatever the answer was.
type remainder struct{ lane }

// detach gives the stream back, or makes it a remainder if code is NoError and the request
// is not whole. It reports whether there is something to be sent.
func (e *exchange) detach(code syntax.Code, now time.Time) (said bool) {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if code == syntax.NoError && e.remain(now) {
		return false
	}
	return e.release(code)
}

// remain makes the stream of e a remainder, if the request is not whole, and reports
// whether it is one. wire.mu is held.
func (e *exchange) remain(now time.Time) bool {
	w := e.wire
	if e.stream == nil || e.cut != nil || w.lost != nil || e.stream.State() != syntax.HalfClosedLocal {
		return false
	}
	r := &remainder{}
	r.wire, r.dropped = w, true
	r.open(e.stream, r, now)
	r.deadline = now.Add(lingerTime)
	w.arm(r.deadline)
	if e.stalled {
		w.unstall(&e.lane)
	}
	e.stream, e.owner, e.deadline = nil, nil, time.Time{}
	return true
}

// end gives the stream back, with a reset if its request is still not whole.
// wire.mu is held.
func (r *remainder) end(b *batch) {
	if r.stream != nil {
		r.wire.said(r.wire.state.Release(r.wire.scratch[:0], r.stream, syntax.NoError), b)
		r.stream = nil
	}
}

// expire is owner's.
func (r *remainder) expire(why error) func(*batch) { return r.fail(why) }

// fail is owner's.
func (r *remainder) fail(error) func(*batch) {
	return func(b *batch) {
		r.wire.mu.Lock()
		defer r.wire.mu.Unlock()
		r.end(b)
	}
}
