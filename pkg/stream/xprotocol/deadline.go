package xprotocol

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

var errHeartbeatTimeout = errors.New("the host does not acknowledge heartbeats")

// expire fails the calls whose deadline has passed. It sends a heartbeat to a silent host, or
// closes the connection if the host has not answered the last ones. The timer calls expire on
// a goroutine of its own.
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
	action, nextCheck := u.keepalive.Check(b.now, time.Unix(0, u.lastReadAt.Load()))
	u.timer.Arm(nextCheck)
	u.timer.Arm(next)
	id := uint64(0)
	if action == stream.KeepaliveProbe {
		id = u.calls.reserveID()
		u.drainIfExhausted()
	}
	u.mu.Unlock()
	for _, k := range expired {
		u.failCall(k, protocol.Faultf(protocol.UpstreamTimeout, "no response in time"), b)
	}
	err := error(nil)
	switch action {
	case stream.KeepaliveProbe:
		err = u.sendHeartbeat(id, b)
		u.engine.logPanicIn("sending a heartbeat to a host", err)
	case stream.KeepaliveFail:
		err = errHeartbeatTimeout
	case stream.KeepaliveWait:
	}
	b.flush()
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
