package http1

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
)

// These constants bound what the server reads only to discard it.
const (
	// maxDiscardBytes is the maximum number of bytes of an unread request body that are read and
	// discarded to keep the connection.
	maxDiscardBytes = 256 << 10
	// maxLingerBytes and lingerTimeout limit how much and how long the server reads after its last
	// write, so that the client can receive that write before a reset (RFC 9112 9.6).
	maxLingerBytes = 1 << 20
	lingerTimeout  = time.Second
)

// smallBodyTimeout is how long a small body may take to arrive after its head. Many clients write
// the two separately. The body of a slower client is streamed.
const smallBodyTimeout = 5 * time.Millisecond

// awaitSmallBody waits briefly for the rest of a small request body, unless the client waits for
// 100 (Continue). A complete body goes upstream in one write with the head, needs no goroutine, and
// can be sent again.
func (c *downstreamConn) awaitSmallBody() {
	b := &c.body.reader
	if b.kind != syntax.Length || b.bufferedSize >= 0 || b.remaining > maxInlineBody || c.x.Request.ExpectContinue {
		return
	}
	timeout := smallBodyTimeout
	if t := c.server.opts.HTTP1.BodyTimeout; t > 0 {
		timeout = min(timeout, t)
	}
	c.conn.SetReadDeadline(time.Now().Add(timeout))
	b.awaitComplete()
}

// requestBody is the body of the request on c.
type requestBody struct {
	c      *downstreamConn
	reader bodyReader
}

// Read implements protocol.Body. Its errors other than io.EOF are Faults. Each wait has the full
// body timeout: the service may have been busy before it called Read.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.reader.bufferedSize < 0 {
		return b.await(p)
	}
	n, err := b.reader.next(p)
	return n, readFault(err)
}

// await is Read for a body that may still be arriving. Progress of the response keeps the exchange
// from being idle.
func (b *requestBody) await(p []byte) (int, error) {
	c := b.c
	idleTimeout, lastProgress := c.x.IdleTimeout, time.Now()
	bodyDeadline := deadlineAfter(lastProgress, c.server.opts.HTTP1.BodyTimeout)
	for {
		deadline := deadlineAfter(lastProgress, idleTimeout)
		idleFirst := idleTimeout > 0 && (bodyDeadline.IsZero() || deadline.Before(bodyDeadline))
		if !idleFirst {
			deadline = bodyDeadline
		}
		c.conn.SetReadDeadline(deadline)
		n, err := b.reader.next(p)
		if n > 0 || !idleFirst || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, readFault(err)
		}
		progress := c.x.Meta.Start.Add(time.Duration(c.progress.Load()))
		if !progress.After(lastProgress) {
			return 0, protocol.Faultf(protocol.RequestIdle, "no byte of the request for %v (stream_idle_timeout)", idleTimeout)
		}
		lastProgress = progress
	}
}

// Buffered implements protocol.Body.
func (b *requestBody) Buffered() int { return b.reader.buffered() }

// Rewind implements protocol.Rewinder.
func (b *requestBody) Rewind() bool { return b.reader.rewind() }

// Close implements protocol.Body. It interrupts a Read on another goroutine, unless the complete
// body has been read: then there is no such Read.
func (b *requestBody) Close() error {
	if b.reader.state.Load() != bodyDone && !b.reader.closed.Swap(true) {
		b.c.conn.Interrupt()
	}
	return nil
}

// RequestReceived implements protocol.RequestReceiver.
func (c *downstreamConn) RequestReceived() bool {
	b := &c.body.reader
	return b.bufferedSize >= 0 || b.state.Load() == bodyDone
}

// CloseRequestBody implements protocol.RequestBodyCloser.
func (c *downstreamConn) CloseRequestBody() { _ = c.body.Close() } // never fails

// SendInterim implements protocol.Downstream.
func (c *downstreamConn) SendInterim(status int, header *protocol.Header) error {
	if c.framing.Minor == 0 {
		return nil // HTTP/1.0 has no interim responses (RFC 9110 15.2)
	}
	out := buffer.Get(requestBufferSize)
	defer out.Release()
	out.SetStorage(syntax.AppendInterim(out.Storage(), status, header))
	if _, err := c.conn.Write(out.Bytes()); err != nil {
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
	}
	return nil
}

// OnDisconnect implements protocol.Downstream. The caller ensures that no upload reads the
// connection meanwhile.
func (c *downstreamConn) OnDisconnect(onDisconnect func()) (stop func()) {
	done := make(chan struct{})
	c.conn.SetReadDeadline(time.Time{}) // the upstream's deadline applies
	go func() {
		defer close(done)
		defer c.contain("reporting a client disconnect")
		if err := c.conn.AwaitPeerClose(c.server.opts.HTTP1.AllowHalfClose); !errors.Is(err, network.ErrInterrupted) && !errors.Is(err, os.ErrDeadlineExceeded) {
			onDisconnect()
		}
	}()
	return func() {
		c.conn.Interrupt()
		<-done
		c.conn.Resume()
	}
}

// discardChunkedBody reads and discards a small chunked body that nothing has read, if it arrives
// within smallBodyTimeout. The response head must say whether the connection persists, and the size
// of a chunked body is not known before its end.
func (c *downstreamConn) discardChunkedBody() {
	b := &c.body.reader
	if b.kind != syntax.Chunked || b.state.Load() != bodyUntouched || c.x.Request.ExpectContinue || !c.framing.KeepAlive {
		return
	}
	c.conn.SetReadDeadline(time.Now().Add(smallBodyTimeout))
	out := buffer.Get(requestBufferSize)
	defer out.Release()
	for discarded := 0; discarded < maxDiscardBytes; {
		n, err := b.next(out.Tail())
		if err != nil {
			return
		}
		discarded += n
	}
}

// discardBody discards the rest of a request body that the service did not read and reports whether
// it reached the end. If the rest is large or slow, the connection must end.
func (c *downstreamConn) discardBody() bool {
	b := &c.body.reader
	out := buffer.Get(pieceSize)
	defer out.Release()
	if b.bufferedSize < 0 {
		c.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	}
	discarded := 0
	for !b.done && discarded < maxDiscardBytes {
		n, err := b.next(out.Tail())
		discarded += n
		if err != nil && err != io.EOF {
			return false
		}
	}
	return b.done
}
