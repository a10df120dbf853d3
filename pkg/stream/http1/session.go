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

// Bounds on discarded body bytes.
const (
	// drainLimit is how many bytes of an unread request body are read and discarded to keep the
	// connection.
	drainLimit = 256 << 10
	// lingerLimit and lingerTime bound the read after the last written byte, which lets the client
	// read it before a reset (RFC 9112 9.6).
	lingerLimit = 1 << 20
	lingerTime  = time.Second
)

// smallBodyTimeout is how long a small body may take to arrive after its head. Many clients write
// the two separately. The body of a slower client is streamed.
const smallBodyTimeout = 5 * time.Millisecond

// awaitSmallBody waits briefly for the rest of a small request body, unless the client waits for a
// 100. A complete body goes upstream in one write with the head, needs no goroutine, and can be
// sent again.
func (c *downstreamConn) awaitSmallBody() {
	b := &c.body.content
	if b.kind != syntax.Length || b.whole >= 0 || b.left > inlineContent || c.x.Request.ExpectContinue {
		return
	}
	patience := smallBodyTimeout
	if t := c.s.o.HTTP1.BodyTimeout; t > 0 {
		patience = min(patience, t)
	}
	c.conn.SetReadDeadline(time.Now().Add(patience))
	b.awaitWhole()
}

// requestBody is the body of the request on c.
type requestBody struct {
	c       *downstreamConn
	content content
}

// Read implements protocol.Body. Its errors are Faults. Each wait has the full body timeout: the
// service may have been busy before it called Read.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.content.whole < 0 {
		return b.await(p)
	}
	n, err := b.content.next(p)
	return n, readFault(err)
}

// await is Read for a body that may still be arriving. Progress of the response keeps the exchange
// from being idle.
func (b *requestBody) await(p []byte) (int, error) {
	c := b.c
	idle, last := c.x.IdleTimeout, time.Now()
	end := later(last, c.s.o.HTTP1.BodyTimeout)
	for {
		until := later(last, idle)
		idles := idle > 0 && (end.IsZero() || until.Before(end))
		if !idles {
			until = end
		}
		c.conn.SetReadDeadline(until)
		n, err := b.content.next(p)
		if n > 0 || !idles || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, readFault(err)
		}
		moved := c.x.Meta.Start.Add(time.Duration(c.moved.Load()))
		if !moved.After(last) {
			return 0, protocol.Faultf(protocol.RequestIdle, "no byte of the request for %v (stream_idle_timeout)", idle)
		}
		last = moved
	}
}

// Buffered implements protocol.Body.
func (b *requestBody) Buffered() int { return b.content.buffered() }

// Rewind implements protocol.Rewinder.
func (b *requestBody) Rewind() bool { return b.content.rewind() }

// Close implements protocol.Body. It interrupts a Read on another goroutine. After the whole body
// has been read there is no such Read.
func (b *requestBody) Close() error {
	if b.content.state.Load() != contentDone && !b.content.closed.Swap(true) {
		b.c.conn.Interrupt()
	}
	return nil
}

// CloseRequestBody implements protocol.RequestBodyCloser.
func (c *downstreamConn) CloseRequestBody() { _ = c.body.Close() } // never fails

// SendInterim implements protocol.Downstream.
func (c *downstreamConn) SendInterim(status int, header *protocol.Header) error {
	if c.framing.Minor == 0 {
		return nil // HTTP/1.0 has no interim responses (RFC 9110 15.2)
	}
	out := buffer.Get(firstRead)
	defer out.Release()
	out.SetStorage(syntax.AppendInterim(out.Storage(), status, header))
	if _, err := c.conn.Write(out.Bytes()); err != nil {
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
	}
	return nil
}

// OnDisconnect implements protocol.Downstream. The request body has been read, so there is no other
// reader.
func (c *downstreamConn) OnDisconnect(gone func()) (stop func()) {
	done := make(chan struct{})
	c.conn.SetReadDeadline(time.Time{}) // the upstream's deadline applies
	go func() {
		defer close(done)
		defer c.contain("reporting a client disconnect")
		if err := c.conn.AwaitPeerClose(c.s.o.HTTP1.AllowHalfClose); !errors.Is(err, network.ErrInterrupted) && !errors.Is(err, os.ErrDeadlineExceeded) {
			gone()
		}
	}()
	return func() {
		c.conn.Interrupt()
		<-done
		c.conn.Resume()
	}
}

// dropChunks reads and discards an untouched chunked body that has arrived or arrives promptly. Its
// size shows only at its end, and the response head must say before whether the connection
// persists.
func (c *downstreamConn) dropChunks() {
	b := &c.body.content
	if b.kind != syntax.Chunked || b.state.Load() != contentUntouched || c.x.Request.ExpectContinue || !c.framing.KeepAlive {
		return
	}
	c.conn.SetReadDeadline(time.Now().Add(smallBodyTimeout))
	out := buffer.Get(firstRead)
	defer out.Release()
	for dropped := 0; dropped < drainLimit; {
		n, err := b.next(out.Tail())
		if err != nil {
			return
		}
		dropped += n
	}
}

// drainBody discards the rest of a request body that the service did not read and reports whether
// it reached the end. If the rest is large or slow, the connection must end.
func (c *downstreamConn) drainBody() bool {
	b := &c.body.content
	out := buffer.Get(pieceSize)
	defer out.Release()
	if b.whole < 0 {
		c.conn.SetReadDeadline(time.Now().Add(lingerTime))
	}
	dropped := 0
	for !b.done && dropped < drainLimit {
		n, err := b.next(out.Tail())
		dropped += n
		if err != nil && err != io.EOF {
			return false
		}
	}
	return b.done
}
