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

// maxInlineBody is the maximum size, in bytes, of a request body that is written together with its
// head. A streamed body is written in pieces of about this size, or smaller ones if no more bytes
// are buffered.
const maxInlineBody = 32 << 10

// writeResponse writes x.Response. keep reports whether the response lets the connection take
// another request. An error means that the downstream connection, the body or the tunnel failed,
// and that the connection must end.
func (c *downstreamConn) writeResponse() (keep bool, err error) {
	x := &c.x
	if x.Response.Tunnel != nil {
		return false, c.relayTunnel()
	}
	if x.Response.Source == protocol.LocalReply {
		x.EnvoyReplies.Apply(x)
		if x.Request.Method == "HEAD" {
			x.EnvoyReplies.OmitLength(x)
		}
		if protocol.IsGRPC(&x.Request.Header) {
			protocol.ReplyGRPC(x, x.Request.Header.Get("content-type"))
		}
	}
	framing := c.responseBodyKind()
	if c.isLocalReply() {
		c.discardChunkedBody()
	}
	keep = c.shouldKeepAlive(framing)
	out := buffer.Get(requestBufferSize)
	defer out.Release()
	opts := syntax.ResponseOptions{
		Chunked: framing == syntax.Chunked,
		Close:   !keep,
		Minor:   c.framing.Minor,
	}
	if c.isLocalReply() {
		opts.Date = c.server.dateCache.Date(time.Now())
		opts.Server = c.server.opts.HTTP1.ServerName
		c.conn.SetWriteDeadline(time.Time{})
	} else {
		opts.Date = c.server.dateCache.Date(x.Record.UpstreamFirstByte)
		c.conn.SetWriteDeadline(x.Deadline) // bounds how long a slow client occupies an upstream
	}
	out.SetStorage(syntax.AppendResponse(out.Storage(), &x.Response, opts))
	body := x.Response.Body
	switch {
	case framing == syntax.NoBody || body == nil:
		err = c.write(out.Bytes(), 0)
	case framing == syntax.Chunked:
		err = c.streamChunks(out, body)
	default:
		err = c.streamPlain(out, body, framing)
	}
	if err != nil && c.responseStarted && framing == syntax.UntilClose {
		_ = c.conn.Abort() // a FIN would mark the end of the body (RFC 9112 8)
	}
	return keep && err == nil, err
}

// isLocalReply reports whether the response is a local reply.
func (c *downstreamConn) isLocalReply() bool { return c.x.Response.Source == protocol.LocalReply }

// responseBodyKind returns the framing of the response body (RFC 9112 6.3). It sets ContentLength
// to 0 if the response could have a body but has none.
func (c *downstreamConn) responseBodyKind() syntax.BodyKind {
	r := &c.x.Response
	switch {
	case c.x.Request.Method == "HEAD", r.Status == 204, r.Status == 304, r.Status < 200:
		return syntax.NoBody
	case r.Body == nil:
		r.ContentLength = 0 // otherwise the client reads the next response as this body
		return syntax.Length
	case r.ContentLength >= 0:
		return syntax.Length
	case c.framing.Minor == 0:
		return syntax.UntilClose
	default:
		return syntax.Chunked
	}
}

// shouldKeepAlive reports whether the connection persists (RFC 9112 9.3). It runs before the head
// is written.
func (c *downstreamConn) shouldKeepAlive(kind syntax.BodyKind) bool {
	if !c.framing.KeepAlive || kind == syntax.UntilClose || c.conn.Draining() || c.maxRequestsReached() {
		return false
	}
	b := &c.body.reader
	if b.closed.Load() { // an upload was aborted
		return false
	}
	switch b.state.Load() {
	case bodyFailed:
		return false
	case bodyStarted: // an upload may still be reading the body, and may be aborted
		return b.bufferedSize >= 0
	case bodyUntouched:
		// After a local reply, afterResponse discards a small body, unless the client waits for 100
		// (Continue) before it sends the body. After a response of an upstream, an upload may be
		// about to start.
		return c.isLocalReply() && !c.x.Request.ExpectContinue && b.kind == syntax.Length && c.framing.Length <= maxDiscardBytes
	}
	return true
}

// closeReason returns why the connection closes after the exchange. err is the error of writing the
// response.
func (c *downstreamConn) closeReason(err error) network.CloseReason {
	x := &c.x
	reason := x.Record.Reason
	if err != nil {
		reason = protocol.ReasonOf(err)
	}
	switch {
	case reason == protocol.ReasonDownstreamDisconnect && errors.Is(err, os.ErrDeadlineExceeded):
		return network.ClosedWriteTimeout
	case reason == protocol.ReasonDownstreamDisconnect:
		return network.ClosedByPeer
	case reason == protocol.RequestTimeout, reason == protocol.RequestIdle:
		return network.ClosedRequestTimeout
	case reason.Spec().Flag == protocol.MalformedRequest.Spec().Flag:
		return network.ClosedProtocolError
	case err != nil && reason == protocol.Internal:
		return network.ClosedInternalError
	case reason == protocol.StreamIdle && c.wasTunnel():
		return network.ClosedIdle
	case err != nil:
		return network.ClosedResponseTruncated
	case c.wasTunnel():
		return network.ClosedComplete
	case c.conn.Draining():
		return network.ClosedDrained
	case !c.framing.KeepAlive, c.framing.Minor == 0:
		return network.ClosedOnRequest
	case c.maxRequestsReached():
		return network.ClosedMaxRequests
	}
	return network.ClosedRequestUnread
}

// wasTunnel reports whether the connection was a tunnel after the response head.
func (c *downstreamConn) wasTunnel() bool {
	status := c.x.Response.Status
	return status == 101 || c.x.Request.Method == "CONNECT" && status < 300
}

// maxRequestsReached reports whether the connection has served its maximum number of requests.
func (c *downstreamConn) maxRequestsReached() bool {
	limit := c.server.opts.HTTP1.MaxRequestsPerConnection
	return limit > 0 && c.conn.Requests >= limit
}

// write sends p, which contains bodyBytes bytes of the body. To count the sent bytes of the body
// after a failed write, it assumes that the body is at the end of p.
func (c *downstreamConn) write(p []byte, bodyBytes int) error {
	c.responseStarted = true
	n, err := c.conn.Write(p)
	c.recordProgress()
	c.x.Record.ResponseBytes += int64(max(0, bodyBytes-(len(p)-n)))
	if err != nil {
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
	}
	return nil
}

// recordProgress records activity for the goroutine that reads the request body, so that the
// exchange does not count as idle.
func (c *downstreamConn) recordProgress() {
	if c.body.reader.state.Load() != bodyDone {
		c.progress.Store(int64(time.Since(c.x.Meta.Start)))
	}
}

// streamPlain sends the body unencoded after the head in out.
func (c *downstreamConn) streamPlain(out *buffer.IoBuffer, body protocol.Body, kind syntax.BodyKind) error {
	remaining := c.x.Response.ContentLength
	bodyBytes := 0 // body bytes in out
	var err error
	for kind == syntax.UntilClose || remaining > 0 {
		ready := body.Buffered()
		if out.Len() > 0 && (ready == 0 || bodyBytes >= maxInlineBody) {
			if werr := c.write(out.Bytes(), bodyBytes); werr != nil {
				return werr
			}
			out.Reset()
			bodyBytes = 0
			if kind == syntax.Length && ready == 0 {
				if n, ok, serr := c.splice(body, remaining); ok {
					remaining -= n
					if serr != nil {
						return serr
					}
					continue
				}
			}
		}
		out.Reserve(min(max(ready, 1<<10), maxInlineBody))
		tail := out.Tail()
		if kind == syntax.Length && int64(len(tail)) > remaining {
			tail = tail[:remaining]
		}
		var n int
		n, err = body.Read(tail)
		out.Extend(n)
		bodyBytes += n
		remaining -= int64(n)
		if err != nil {
			break
		}
	}
	if err == io.EOF {
		err = nil
		if kind == syntax.Length && remaining > 0 {
			err = protocol.Faultf(protocol.Internal, "the body ended %d bytes before its declared length", remaining)
		}
	}
	if out.Len() > 0 && (err == nil || c.responseStarted) {
		if werr := c.write(out.Bytes(), bodyBytes); werr != nil {
			return werr
		}
	}
	return err
}

// chunkHeadSpace is the space reserved before a chunk for its size line: eight digits and CRLF.
const chunkHeadSpace = 10

// streamChunks sends the body in the chunked coding (RFC 9112 7.1) after the head in out.
func (c *downstreamConn) streamChunks(out *buffer.IoBuffer, body protocol.Body) error {
	bodyBytes := 0
	for {
		if out.Len() > 0 && (body.Buffered() == 0 || bodyBytes >= maxInlineBody) {
			if err := c.write(out.Bytes(), bodyBytes); err != nil {
				return err
			}
			out.Reset()
			bodyBytes = 0
		}
		n, err := appendChunk(out, body)
		bodyBytes += n
		if err == io.EOF {
			out.SetStorage(syntax.AppendLastChunk(out.Storage(), &c.x.Response.Trailer))
			return c.write(out.Bytes(), bodyBytes)
		}
		if err != nil {
			return err
		}
	}
}

// appendChunk reads once from body and appends the bytes as one chunk.
func appendChunk(out *buffer.IoBuffer, body protocol.Body) (int, error) {
	space := min(max(body.Buffered(), 2<<10), maxInlineBody)
	out.Reserve(chunkHeadSpace + space + 2)
	tail := out.Tail()
	n, err := body.Read(tail[chunkHeadSpace : len(tail)-2])
	if n > 0 {
		size := syntax.AppendChunkHead(make([]byte, 0, chunkHeadSpace), n)
		copy(tail, size)
		copy(tail[len(size):], tail[chunkHeadSpace:chunkHeadSpace+n])
		copy(tail[len(size)+n:], "\r\n")
		out.Extend(len(size) + n + 2)
	}
	return n, err
}
