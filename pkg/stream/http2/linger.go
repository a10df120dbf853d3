package http2

import (
	"time"

	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// lingeringStream is the stream of an exchange whose response was sent before its request was
// complete. For lingerTime, the engine drops the DATA that still arrives, and then resets the
// stream (RFC 9113 8.1): some clients treat a reset while they send as a failure, whatever the
// response was.
type lingeringStream struct{ muxStream }

// detach releases the stream, or makes it linger if code is NoError and the request is incomplete.
// It reports whether there are frames to flush.
func (e *exchange) detach(code syntax.Code, now time.Time) (said bool) {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	if code == syntax.NoError && e.linger(now) {
		return false
	}
	return e.release(code)
}

// linger makes the stream of e a lingeringStream if the request is incomplete, and reports whether
// it did. muxConn.mu is held.
func (e *exchange) linger(now time.Time) bool {
	w := e.conn
	if e.stream == nil || e.sendErr != nil || w.lostErr != nil || e.stream.State() != syntax.HalfClosedLocal {
		return false
	}
	r := &lingeringStream{}
	r.conn, r.dropsData = w, true
	r.attach(e.stream, r, now)
	r.deadline = now.Add(lingerTime)
	w.arm(r.deadline)
	if e.blocked {
		w.unblock(&e.muxStream)
	}
	e.stream, e.owner, e.deadline = nil, nil, time.Time{}
	return true
}

// releaseStream releases the stream, with a reset if its request is still incomplete. muxConn.mu is
// held.
func (r *lingeringStream) releaseStream(b *batch) {
	if r.stream != nil {
		r.conn.enqueueBatched(r.conn.state.Release(r.conn.scratch[:0], r.stream, syntax.NoError), b)
		r.stream = nil
	}
}

// stop releases the stream.
func (r *lingeringStream) stop(b *batch) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.releaseStream(b)
}

// fail implements owner.
func (r *lingeringStream) fail(_ error, fx *effects) { fx.lingered = append(fx.lingered, r) }

// expire implements owner.
func (r *lingeringStream) expire(why error, fx *effects) { r.fail(why, fx) }
