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

// Bounds on content that nobody wants.
const (
	// drainLimit is how much of an unread request body is read and dropped to
	// keep the connection, in bytes.
	drainLimit = 256 << 10
	// lingerLimit and lingerTime bound what is read after our last byte, so that
	// the peer gets to read it before a reset (RFC 9112 9.6).
	lingerLimit = 1 << 20
	lingerTime  = time.Second
)

// smallBodyTimeout is how long small content may take to arrive behind its head. Many
// clients send the two in two writes; a client that takes longer than this is
// slow, and its content is streamed.
const smallBodyTimeout = 5 * time.Millisecond

// awaitSmallBody waits a moment for the rest of a small request body, unless its
// sender waits for us. All of it at hand, it goes upstream in one write with the
// head, needs no goroutine, and can be sent again.
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

// requestBody is the content of the request that a session reads.
type requestBody struct {
	c       *downstreamConn
	content content
}

// Read is protocol.Body's. Its errors are Faults. Each wait has the whole of the
// body's timeout: a service may have taken its time before it asked.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.content.whole < 0 {
		return b.await(p)
	}
	n, err := b.content.next(p)
	return n, readFault(err)
}

// await is Read for content that may have to be waited for. An answer that is on its way
// meanwhile keeps the exchange from being idle.
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
			return 0, protocol.Faultf(protocol.RequestIdle, "nothing of the request for %v (stream_idle_timeout)", idle)
		}
		last = moved
	}
}

// Buffered is protocol.Body's.
func (b *requestBody) Buffered() int { return b.content.buffered() }

// Rewind is protocol.Rewinder's.
func (b *requestBody) Rewind() bool { return b.content.rewind() }

// Close is protocol.Body's: it stops a Read on another goroutine. There is none
// any more once all of the content has been read.
func (b *requestBody) Close() error {
	if b.content.state.Load() != contentDone && !b.content.closed.Swap(true) {
		b.c.conn.Interrupt()
	}
	return nil
}

// CloseContent is protocol.ContentCloser's.
func (c *downstreamConn) CloseContent() { _ = c.body.Close() } // never fails

// SendInterim is protocol.Downstream's.
func (c *downstreamConn) SendInterim(status int, header *protocol.Header) error {
	if c.framing.Minor == 0 {
		return nil // HTTP/1.0 knows no interim responses (RFC 9110 15.2)
	}
	out := buffer.Get(firstRead)
	defer out.Release()
	out.SetStorage(syntax.AppendInterim(out.Storage(), status, header))
	if _, err := c.conn.Write(out.Bytes()); err != nil {
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
	}
	return nil
}

// OnDisconnect is protocol.Downstream's. The request has been read, so nobody else reads.
func (c *downstreamConn) OnDisconnect(gone func()) (stop func()) {
	done := make(chan struct{})
	c.conn.SetReadDeadline(time.Time{}) // the upstream's deadline decides
	go func() {
		defer close(done)
		defer c.contain("telling that the caller is gone")
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

// dropChunks reads and drops chunked content that nobody has begun to read and
// that is there, or comes promptly: how much it is shows only at its end, and
// whether the connection persists is to be said before.
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

// drainBody reads the rest of a request body that the service did not want, if
// that is little and comes soon; else the connection must end.
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

// linger ends our direction and reads what the peer still sends, so that the
// peer's unread bytes do not make the kernel reset the connection before the
// answer was read.
func (c *downstreamConn) linger() {
	if c.conn.CloseWrite() != nil {
		return
	}
	c.conn.SetReadDeadline(time.Now().Add(lingerTime))
	out := buffer.Get(pieceSize)
	defer out.Release()
	for dropped := 0; dropped < lingerLimit; {
		n, err := c.conn.Read(out.Tail())
		if err != nil {
			return
		}
		dropped += n
	}
}
