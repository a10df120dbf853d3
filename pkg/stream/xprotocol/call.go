package xprotocol

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// waiter is what waits for a response: a request, or a blocked goroutine.
type waiter interface {
	// park blocks until one wake. It is not called for a pending request, which holds no goroutine.
	park()
	// wake ends the wait. The continuation runs on the goroutine that owns b.
	wake(b *batch)
	// doneOnWake reports whether the waiter is done with the response when wake returns.
	doneOnWake() bool
}

// blockingWaiter is the waiter of an exchange that another engine serves.
type blockingWaiter chan struct{}

func (s blockingWaiter) park()          { <-s }
func (s blockingWaiter) wake(*batch)    { s <- struct{}{} }
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

// responseBody is the body of a response; closing it ends the exchange on the connection.
type responseBody struct {
	codec.Message
	call     *call
	response *protocol.Response // the response that has this body; nil: none
}

// Close implements protocol.Body. It removes itself from the response, so that nothing closes it
// again.
func (b *responseBody) Close() error {
	b.response.BodyClosed(b)
	b.call.release()
	return nil
}

// release ends the exchange on the connection.
func (k *call) release() {
	u := k.conn
	if k.buf != nil {
		k.buf.Release()
	}
	k.free()
	u.opts.OnRelease(!u.closing.Load())
}

// free makes k ready for another exchange.
func (k *call) free() {
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

// Finish implements protocol.Finisher; the call has its response.
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
