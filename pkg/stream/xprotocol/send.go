package xprotocol

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Start implements stream.UpstreamConn. Errors other than protocol.ErrPending are Faults.
// ConnectFailure means that the connection had ended before the request was sent.
func (u *UpstreamConn) Start(_ context.Context, x *protocol.Exchange) error {
	r, _ := x.Downstream.(*request)
	k, err := u.send(x, r)
	if k == nil {
		return err
	}
	if r == nil || r.fiber != nil {
		return u.await(x, k)
	}
	x.PushFinisher(k)
	if r.state.suspend() {
		return protocol.ErrPending
	}
	return nil
}

// await blocks the calling goroutine or fiber until the response has arrived.
func (u *UpstreamConn) await(x *protocol.Exchange, k *call) error {
	if _, ok := x.Downstream.(*request); !ok && x.Downstream != nil {
		defer x.Downstream.OnDisconnect(func() { u.abandon(k.id, nil) })()
	}
	k.waiter.park()
	return k.receive(x)
}

// send sends x. It returns a nil call if there is nothing to wait for: x was not sent or is
// one-way, or a disconnect of its client has ended the call.
func (u *UpstreamConn) send(x *protocol.Exchange, r *request) (*call, error) {
	var now time.Time
	if r != nil {
		now = r.now()
	} else {
		now = time.Now()
	}
	x.Record.UpstreamStart, x.Record.UpstreamFirstByte = now, time.Time{}
	if n := len(x.Record.Attempts); n > 0 {
		x.Record.Attempts[n-1].Local, x.Record.Attempts[n-1].TLS = u.localAddr, u.tls
	}
	m := codec.MessageOf(x.Request.Body)
	if err := u.checkProtocol(x, m); err != nil {
		u.opts.OnRelease(true)
		return nil, err
	}
	if x.Request.OneWay {
		return nil, u.sendOneWay(x, m, r, now)
	}
	k, err := u.sendTwoWay(x, m, r, now)
	if err != nil {
		u.opts.OnRelease(!u.closing.Load())
	}
	return k, err
}

// checkProtocol returns an error if m, the request of x, cannot be sent in the protocol of the
// codec.
func (u *UpstreamConn) checkProtocol(x *protocol.Exchange, m *codec.Message) error {
	if m == nil || m.Traits != u.traits {
		return protocol.Faultf(protocol.Internal, "a %s request cannot be sent as %s", x.Meta.Protocol, u.traits.Name)
	}
	return nil
}

// sendTwoWay registers x and adds it to the write queue.
func (u *UpstreamConn) sendTwoWay(x *protocol.Exchange, m *codec.Message, r *request, now time.Time) (*call, error) {
	var k *call
	if r != nil {
		k = &r.call
		k.waiter = r
	} else {
		k = &call{waiter: make(blockingWaiter, 1)}
		k.body.call = k
	}
	k.conn, k.deadline = u, x.EffectiveDeadline()
	id, err := u.register(k)
	if err != nil {
		k.reset()
		return nil, err
	}
	if err := u.enqueue(x, m, r, id, now); err != nil {
		if u.remove(id) != nil {
			k.reset()
			return nil, err
		}
		k.sendErr = err // another goroutine has removed k from the table and will wake its waiter
		return k, nil
	}
	if r != nil && !r.setPending(pendingCall{u, id}) {
		if u.remove(id) != nil {
			k.reset()
			return nil, protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection")
		}
	}
	return k, nil
}

// register adds k to the calls that wait for a response, and returns its id.
func (u *UpstreamConn) register(k *call) (id uint64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return 0, protocol.Faultf(protocol.ConnectFailure, "the connection was closed: %w", u.err)
	}
	id = u.calls.add(k)
	u.drainIfExhausted()
	u.timer.Arm(k.deadline)
	return id, nil
}

// enqueue adds the request to the write queue. It returns a panic of the codec as an error.
func (u *UpstreamConn) enqueue(x *protocol.Exchange, m *codec.Message, r *request, id uint64, now time.Time) (err error) {
	defer protocol.RecoverPanic(&err)
	timeout := time.Duration(0)
	if deadline := x.EffectiveDeadline(); m.View.Timeout > 0 && !deadline.IsZero() {
		if timeout = deadline.Sub(now); timeout <= 0 {
			return protocol.Faultf(protocol.UpstreamTimeout, "the deadline passed before the request was sent")
		}
	}
	_, err, queueErr := u.writeQueue.AppendFrame(len(m.Frame)+errorResponseSize, func(dst []byte) ([]byte, error) {
		start := len(dst)
		out, err := u.codec.AppendRequest(dst, m.Frame, &x.Request, &m.View, timeout)
		if err == nil {
			u.codec.SetID(out[start:], id)
		}
		return out, err
	})
	switch {
	case err != nil:
		return err
	case queueErr == nil:
	case errors.Is(queueErr, network.ErrWriteQueueFull):
		return protocol.NewFault(protocol.Overflow, queueErr) // the host reads requests too slowly
	default:
		return protocol.Faultf(protocol.ConnectFailure, "the connection was closed: %w", queueErr)
	}
	if r != nil {
		r.flush(u.writeQueue)
	} else {
		_ = u.writeQueue.Flush() // the reader gets the error
	}
	return nil
}

// sendOneWay sends a request that expects no response.
func (u *UpstreamConn) sendOneWay(x *protocol.Exchange, m *codec.Message, r *request, now time.Time) error {
	u.hasOneWay.Store(true)
	u.mu.Lock()
	err := u.err
	id := uint64(0)
	if err == nil {
		id = u.calls.reserveID()
		u.drainIfExhausted()
	}
	u.mu.Unlock()
	if err != nil {
		err = protocol.Faultf(protocol.ConnectFailure, "the connection was closed: %w", err)
	} else {
		err = u.enqueue(x, m, r, id, now)
	}
	u.opts.OnRelease(!u.closing.Load())
	if err == nil {
		x.Response.Status = 200
		x.Response.ContentLength = 0
	}
	return err
}

// enqueueFrame adds a frame that Weft generates to a write queue, and reports success. It drops the
// frame if the queue is full. If the connection is lost, its reader gets the error.
func enqueueFrame(q *network.WriteQueue, encode func(dst []byte) []byte) bool {
	_, err, queueErr := q.AppendFrame(errorResponseSize, func(dst []byte) ([]byte, error) { return encode(dst), nil })
	return err == nil && queueErr == nil
}
