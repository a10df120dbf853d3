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

// inlineContent is up to how many bytes of content leave in one write with the
// head; it also is what a piece of streamed content holds at most.
const inlineContent = 32 << 10

// answer writes x.Response. keep says whether the connection can take another
// request, as far as the answer goes. An error is a Fault: the caller's
// connection or the content failed midway, and the connection must end.
func (c *downstreamConn) answer() (keep bool, err error) {
	x := &c.x
	if x.Response.Tunnel != nil {
		return false, c.tunnel()
	}
	if x.Response.Source == protocol.LocalReply && protocol.IsGRPC(&x.Request.Header) {
		protocol.ReplyGRPC(x, x.Request.Header.Get("content-type"))
	}
	kind := c.contentKind()
	if c.isOwn() {
		c.dropChunks()
	}
	keep = c.shouldKeepAlive(kind)
	out := buffer.Get(firstRead)
	defer out.Release()
	o := syntax.ResponseOptions{
		Chunked: kind == syntax.Chunked,
		Close:   !keep,
		Minor:   c.framing.Minor,
	}
	if c.isOwn() {
		o.Date = c.s.clock.Date(time.Now())
		o.Server = c.s.o.HTTP1.ServerName
		c.conn.SetWriteDeadline(time.Time{})
	} else {
		o.Date = c.s.clock.Date(x.Record.UpstreamFirstByte)
		c.conn.SetWriteDeadline(x.Deadline) // a caller that takes its time holds an upstream
	}
	out.SetStorage(syntax.AppendResponse(out.Storage(), &x.Response, o))
	body := x.Response.Body
	switch {
	case kind == syntax.NoBody || body == nil:
		err = c.write(out.Bytes(), 0)
	case kind == syntax.Chunked:
		err = c.streamChunks(out, body)
	default:
		err = c.streamPlain(out, body, kind)
	}
	if err != nil && c.answered && kind == syntax.UntilClose {
		_ = c.conn.Abort() // its end would pass for the content's (RFC 9112 8)
	}
	return keep && err == nil, err
}

// isOwn reports whether the answer is a reply of our own.
func (c *downstreamConn) isOwn() bool { return c.x.Response.Source == protocol.LocalReply }

// contentKind is how the answer's content is framed (RFC 9112 6.3).
func (c *downstreamConn) contentKind() syntax.BodyKind {
	r := &c.x.Response
	switch {
	case c.x.Request.Method == "HEAD", r.Status == 204, r.Status == 304, r.Status < 200:
		return syntax.NoBody
	case r.Body == nil:
		r.ContentLength = 0 // whatever it says: the next answer must not pass for content
		return syntax.Length
	case r.ContentLength >= 0:
		return syntax.Length
	case c.framing.Minor == 0:
		return syntax.UntilClose
	default:
		return syntax.Chunked
	}
}

// shouldKeepAlive decides before the head is written whether the connection persists
// (RFC 9112 9.3).
func (c *downstreamConn) shouldKeepAlive(kind syntax.BodyKind) bool {
	if !c.framing.KeepAlive || kind == syntax.UntilClose || c.conn.Draining() || c.maxRequestsReached() {
		return false
	}
	// Content that nobody has begun to read is dropped if it is little, and not
	// on its way only because we never asked for it.
	b := &c.body.content
	if b.closed.Load() { // an upload was cut
		return false
	}
	switch b.state.Load() {
	case contentFailed:
		return false
	case contentBegun: // an answer before the end of the content, which may be cut
		return b.whole >= 0
	case contentUntouched:
		// Behind an upstream's answer an upload may be about to begin.
		return c.isOwn() && !c.x.Request.ExpectContinue && b.kind == syntax.Length && c.framing.Length <= drainLimit
	}
	return true
}

// closeReason says why the connection ends behind the exchange; err is what answering
// failed with.
func (c *downstreamConn) closeReason(err error) network.CloseReason {
	x := &c.x
	reason := x.Record.Reason
	if err != nil {
		reason = protocol.ReasonOf(err)
	}
	switch {
	case reason == protocol.ReasonDownstreamDisconnect && errors.Is(err, os.ErrDeadlineExceeded):
		return network.CauseWriteTimeout
	case reason == protocol.ReasonDownstreamDisconnect:
		return network.ClosedByPeer
	case reason == protocol.RequestTimeout, reason == protocol.RequestIdle:
		return network.CauseRequestTimeout
	case reason.Traits().Flag == protocol.MalformedRequest.Traits().Flag:
		return network.CauseProtocolError
	case err != nil && reason == protocol.Internal:
		return network.CauseInternal
	case err != nil:
		return network.ClosedResponseTruncated
	case x.Response.Status == 101, x.Request.Method == "CONNECT" && x.Response.Status < 300: // a tunnel
		return network.ClosedComplete
	case c.conn.Draining():
		return network.CauseDrained
	case !c.framing.KeepAlive, c.framing.Minor == 0:
		return network.ClosedOnRequest
	case c.maxRequestsReached():
		return network.ClosedMaxRequests
	}
	return network.ClosedRequestUnread
}

// maxRequestsReached reports whether the connection has carried all the exchanges that it may.
func (c *downstreamConn) maxRequestsReached() bool {
	most := c.s.o.HTTP1.MaxRequestsPerConnection
	return most > 0 && c.conn.Requests >= most
}

// write sends p, of which the last content bytes are content.
func (c *downstreamConn) write(p []byte, content int) error {
	c.answered = true
	n, err := c.conn.Write(p)
	c.move()
	c.x.Record.ResponseBytes += int64(max(0, content-(len(p)-n)))
	if err != nil {
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
	}
	return nil
}

// move tells a goroutine that reads the request's content that the exchange is not idle.
func (c *downstreamConn) move() {
	if c.body.content.state.Load() != contentDone {
		c.moved.Store(int64(time.Since(c.x.Meta.Start)))
	}
}

// streamPlain sends content as it is, behind the head that out holds.
func (c *downstreamConn) streamPlain(out *buffer.IoBuffer, body protocol.Body, kind syntax.BodyKind) error {
	left := c.x.Response.ContentLength
	content := 0 // bytes of it in out
	var err error
	for kind == syntax.UntilClose || left > 0 {
		ready := body.Buffered()
		if out.Len() > 0 && (ready == 0 || content >= inlineContent) {
			if werr := c.write(out.Bytes(), content); werr != nil {
				return werr
			}
			out.Reset()
			content = 0
			if kind == syntax.Length && ready == 0 {
				if n, ok, serr := c.splice(body, left); ok {
					left -= n
					if serr != nil {
						return serr
					}
					continue
				}
			}
		}
		out.Reserve(min(max(ready, 1<<10), inlineContent))
		tail := out.Tail()
		if kind == syntax.Length && int64(len(tail)) > left {
			tail = tail[:left]
		}
		var n int
		n, err = body.Read(tail)
		out.Extend(n)
		content += n
		left -= int64(n)
		if err != nil {
			break
		}
	}
	if err == io.EOF {
		err = nil
		if kind == syntax.Length && left > 0 {
			err = protocol.Faultf(protocol.Internal, "content ended %d bytes before its declared length", left)
		}
	}
	if out.Len() > 0 && (err == nil || c.answered) {
		if werr := c.write(out.Bytes(), content); werr != nil {
			return werr
		}
	}
	return err
}

// chunkHeadRoom is what is kept free before a chunk for its size line: eight
// digits and CRLF.
const chunkHeadRoom = 10

// streamChunks sends content in the chunked coding (RFC 9112 7.1), behind the
// head that out holds.
func (c *downstreamConn) streamChunks(out *buffer.IoBuffer, body protocol.Body) error {
	content := 0
	for {
		if out.Len() > 0 && (body.Buffered() == 0 || content >= inlineContent) {
			if err := c.write(out.Bytes(), content); err != nil {
				return err
			}
			out.Reset()
			content = 0
		}
		n, err := appendChunk(out, body)
		content += n
		if err == io.EOF {
			out.SetStorage(syntax.AppendLastChunk(out.Storage(), &c.x.Response.Trailer))
			return c.write(out.Bytes(), content)
		}
		if err != nil {
			return err
		}
	}
}

// appendChunk reads once from body and appends what came as one chunk.
func appendChunk(out *buffer.IoBuffer, body protocol.Body) (int, error) {
	room := min(max(body.Buffered(), 2<<10), inlineContent)
	out.Reserve(chunkHeadRoom + room + 2)
	tail := out.Tail()
	n, err := body.Read(tail[chunkHeadRoom : len(tail)-2])
	if n > 0 {
		size := syntax.AppendChunkHead(make([]byte, 0, chunkHeadRoom), n)
		copy(tail, size)
		copy(tail[len(size):], tail[chunkHeadRoom:chunkHeadRoom+n])
		copy(tail[len(size)+n:], "\r\n")
		out.Extend(len(size) + n + 2)
	}
	return n, err
}
