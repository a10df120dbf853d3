package xprotocol

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// waiter waits for the response of a call: a request of this engine, or a blocked goroutine of
// another engine.
type waiter interface {
	// park blocks until wake is called. A pending request, which holds no goroutine, does not park.
	park()
	// wake ends the wait. A request continues inside wake, on the goroutine that owns b.
	wake(b *batch)
	// doneOnWake reports whether the waiter no longer needs the response when wake returns.
	doneOnWake() bool
}

// blockingWaiter is the waiter of an exchange whose client uses another engine.
type blockingWaiter chan struct{}

func (w blockingWaiter) park()          { <-w }
func (w blockingWaiter) wake(*batch)    { w <- struct{}{} }
func (blockingWaiter) doneOnWake() bool { return false }

// call is an exchange that waits for its response. The goroutine that removes it from the table
// owns it until wake.
type call struct {
	conn     *UpstreamConn
	id       uint64
	waiter   waiter
	deadline time.Time // zero: none

	body    responseBody     // its Frame is the response
	err     error            // the reason that there is no response
	sendErr error            // the reason that the request was not sent; set by the sender
	buf     *buffer.IoBuffer // holds the response; nil: the reader's input holds it
	readAt  time.Time        // when the response was read
}

// responseBody is the body of a response. Its Close ends the exchange on the connection.
type responseBody struct {
	codec.Message
	call     *call
	response *protocol.Response // the response that has this body; nil: none
}

// Close implements protocol.Body. It removes the body from the response, so that nothing closes it
// again.
func (b *responseBody) Close() error {
	b.response.BodyClosed(b)
	b.call.release()
	return nil
}

// release ends the exchange on the connection and calls OnRelease.
func (k *call) release() {
	u := k.conn
	if k.buf != nil {
		k.buf.Release()
	}
	k.reset()
	u.opts.OnRelease(!u.closing.Load())
}

// reset makes k ready for another exchange.
func (k *call) reset() {
	k.body.Reset()
	k.body.response = nil
	k.conn, k.waiter, k.err, k.sendErr, k.buf = nil, nil, nil, nil, nil
}

// setResponse stores k's response. It copies the frame if the response must outlast wake.
func (k *call) setResponse(frame []byte) {
	k.body.Frame = frame
	if !k.waiter.doneOnWake() {
		k.buf = buffer.Get(len(frame))
		_, _ = k.buf.Write(frame) // never fails
		k.body.Frame = k.buf.Bytes()
	}
}

// Finish implements protocol.Finisher. It runs after wake, when k has its response or an error.
func (k *call) Finish(_ context.Context, x *protocol.Exchange, _ error) error { return k.receive(x) }

// receive sets x.Response from k, or returns k's error.
func (k *call) receive(x *protocol.Exchange) (err error) {
	defer func() {
		if x.Response.Body == nil { // after an error, or a panic of the codec
			x.ResetResponse()
			k.release()
		}
	}()
	switch {
	case k.sendErr != nil:
		return k.sendErr
	case k.err != nil:
		return k.err
	}
	c := k.conn.codec
	x.Record.UpstreamFirstByte = k.readAt
	x.Response.Source = protocol.UpstreamResponse
	k.body.Set(c, k.body.Frame)
	if err = c.ReadResponse(k.body.Frame, &x.Response, &k.body.View); err == nil {
		k.body.response = &x.Response
		x.Response.SetBody(&k.body)
	}
	return err
}
