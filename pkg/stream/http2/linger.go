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
func (e *exchange) detach(code syntax.Code, now time.Time) (queued bool) {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	if code == syntax.NoError && e.linger(now) {
		return false
	}
	return e.release(code)
}

// linger makes the stream of e a lingeringStream if the request is incomplete, and reports whether
// it did. The caller holds muxConn.mu.
func (e *exchange) linger(now time.Time) bool {
	mc := e.conn
	if e.stream == nil || e.sendErr != nil || mc.lostErr != nil || e.stream.State() != syntax.HalfClosedLocal {
		return false
	}
	ls := &lingeringStream{}
	ls.conn, ls.dropsData = mc, true
	ls.attach(e.stream, ls, now)
	ls.deadline = now.Add(lingerTime)
	mc.arm(ls.deadline)
	if e.blocked {
		mc.unblock(&e.muxStream)
	}
	e.stream, e.owner, e.deadline = nil, nil, time.Time{}
	return true
}

// releaseStream releases the stream, with a reset if its request is still incomplete. The caller
// holds muxConn.mu.
func (ls *lingeringStream) releaseStream(b *batch) {
	if ls.stream != nil {
		ls.conn.enqueueBatched(ls.conn.state.Release(ls.conn.scratch[:0], ls.stream, syntax.NoError), b)
		ls.stream = nil
	}
}

func (ls *lingeringStream) stop(b *batch) {
	ls.conn.mu.Lock()
	defer ls.conn.mu.Unlock()
	ls.releaseStream(b)
}

// fail implements owner.
func (ls *lingeringStream) fail(_ error, fx *effects) { fx.lingered = append(fx.lingered, ls) }

// expire implements owner.
func (ls *lingeringStream) expire(fault error, fx *effects) { ls.fail(fault, fx) }
