package xprotocol

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

var errHeartbeatTimeout = errors.New("the host does not acknowledge heartbeats")

// expire fails the calls whose deadline has passed and sends a heartbeat to a silent host. The
// timer runs it on a goroutine of its own.
func (u *UpstreamConn) expire() {
	b := &batch{now: time.Now()}
	u.mu.Lock()
	u.timer.Fired(u.err != nil)
	if u.err != nil {
		u.mu.Unlock()
		return
	}
	defer u.timer.Done()
	expired, next := u.calls.removeExpired(b.now)
	heartbeatDue, unresponsive := u.keepaliveDue(b.now)
	if d := u.opts.RPC.HeartbeatInterval; d > 0 {
		u.timer.Arm(u.nextHeartbeat(d))
	}
	u.timer.Arm(next)
	id := uint64(0)
	if heartbeatDue {
		id = u.calls.reserveID()
		u.closeIfExhausted()
	}
	u.mu.Unlock()
	for _, k := range expired {
		u.failCall(k, protocol.Faultf(protocol.UpstreamTimeout, "no response in time"), b)
	}
	err := error(nil)
	if heartbeatDue {
		err = u.sendHeartbeat(id, b)
		u.engine.logPanicIn("sending a heartbeat to a host", err)
	}
	b.flush()
	if unresponsive {
		err = errHeartbeatTimeout
	}
	if err != nil {
		u.fail(err, b)
	}
}

// sendHeartbeat sends a heartbeat. It returns a panic of the codec as an error.
func (u *UpstreamConn) sendHeartbeat(id uint64, b *batch) (err error) {
	defer protocol.RecoverPanic(&err)
	u.sendFrame(b, func(dst []byte) []byte { return u.codec.AppendHeartbeat(dst, id) })
	return nil
}

// keepaliveDue reports whether a heartbeat is due, or the host has missed too many of them. The
// caller holds u.mu.
func (u *UpstreamConn) keepaliveDue(now time.Time) (heartbeatDue, unresponsive bool) {
	interval := u.opts.RPC.HeartbeatInterval
	if interval <= 0 {
		return false, false
	}
	lastRead := time.Unix(0, u.lastReadAt.Load())
	if lastRead.After(u.keepalive.sent) {
		u.keepalive = keepalive{}
	}
	if now.Before(u.nextHeartbeat(interval)) {
		return false, false
	}
	if u.keepalive.misses >= max(u.opts.RPC.MaxMissedHeartbeats, 1) {
		return false, true
	}
	u.keepalive.misses++
	u.keepalive.sent = now
	return true, false
}

// nextHeartbeat returns when the next heartbeat is due if the host sends nothing until then. The
// caller holds u.mu.
func (u *UpstreamConn) nextHeartbeat(interval time.Duration) time.Time {
	last := time.Unix(0, u.lastReadAt.Load())
	if u.keepalive.sent.After(last) {
		last = u.keepalive.sent
	}
	return last.Add(interval)
}
