package http1

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
	"github.com/weft-proxy/weft/pkg/stream"
)

// pieceSize is the size, in bytes, of the buffers through which a large body streams.
const pieceSize = 64 << 10

// connReader is the receive side of a connection: the unconsumed bytes, and the buffer with the
// current message's head. The head's strings borrow that buffer, so it is neither moved nor
// released during a message; further body bytes go to its free space or to another buffer.
type connReader struct {
	conn *network.Conn
	head *buffer.IoBuffer // holds the head; may be the same as rest; nil between messages
	rest *buffer.IoBuffer // unconsumed bytes; nil for none
}

// readMore reads once and appends to the unconsumed bytes, which stay contiguous.
func (in *connReader) readMore() error {
	if in.rest == in.head && in.rest != nil {
		head := in.rest
		in.rest = nil
		if head.Len() > 0 {
			in.rest = buffer.Get(pieceSize)
			_, _ = in.rest.Write(head.Bytes()) // never fails
			head.Discard(head.Len())
		}
	}
	_, err := in.conn.Fill(&in.rest, pieceSize)
	return err
}

// awaitBytes reads until there are n unconsumed bytes. It uses the free space of the head's buffer
// only if that is enough, so that the head does not move.
func (in *connReader) awaitBytes(n int) error {
	for buffered := len(in.unread()); buffered < n; buffered = len(in.unread()) {
		if in.rest == nil || len(in.rest.Tail()) < n-buffered {
			if err := in.readMore(); err != nil {
				return err
			}
			continue
		}
		if _, err := in.conn.Fill(&in.rest, pieceSize); err != nil {
			return err
		}
	}
	return nil
}

// unread returns the unconsumed bytes.
func (in *connReader) unread() []byte {
	if in.rest == nil {
		return nil
	}
	return in.rest.Bytes()
}

// endMessage releases the buffers of the message; unconsumed bytes stay.
func (in *connReader) endMessage() {
	if in.head != nil && in.head != in.rest {
		in.head.Release()
	}
	in.head = nil
	if in.rest != nil && in.rest.Len() == 0 {
		in.rest.Release()
		in.rest = nil
	}
}

// release releases all buffers.
func (in *connReader) release() {
	in.endMessage()
	if in.rest != nil {
		in.rest.Release()
		in.rest = nil
	}
}

// bodyReader reads one message's body from a connection, whatever its framing (RFC 9112 6).
type bodyReader struct {
	in           *connReader
	kind         syntax.BodyKind
	remaining    int64        // bytes not yet read, if kind is Length
	read         atomic.Int64 // bytes of the body, or of the tunnel after it, that were read
	bufferedSize int          // size of a body of declared length that was complete before the first read; otherwise -1
	limit        int64        // maximum size in bytes; 0: no limit
	chunks       syntax.ChunkReader
	pending      []byte // decoded and not yet returned; borrows in.rest
	undecoded    int    // unconsumed bytes that need more bytes to decode: part of a trailer section
	limits       syntax.Limits
	trailer      *protocol.Header
	server       *stream.ServerOptions // of the server that reads a request; nil: the body of a response
	done         bool
	closed       atomic.Bool   // requestBody.Close was called before the body was read completely
	state        atomic.Uint32 // one of the states below
}

// States of a body. The goroutine that writes the response reads the state while an upload may be
// reading the body.
const (
	bodyUntouched = iota
	bodyStarted
	bodyDone
	bodyFailed
)

// start prepares c for the body that f describes. Bytes of the body that arrived with the head are
// in in.rest.
func (c *bodyReader) start(in *connReader, f *syntax.Framing, trailer *protocol.Header, limits syntax.Limits, limit int64) {
	c.in, c.kind, c.trailer, c.limits, c.limit = in, f.Body, trailer, limits, limit
	c.remaining, c.bufferedSize = f.Length, -1
	c.read.Store(0)
	c.closed.Store(false)
	c.chunks.Reset()
	c.chunks.ConnectionOptions = f.ConnectionOptions
	c.pending, c.undecoded = nil, 0
	switch f.Body {
	case syntax.Length:
		c.done = c.remaining == 0
		if int64(len(in.unread())) >= c.remaining {
			c.bufferedSize = int(c.remaining)
		}
	case syntax.Chunked, syntax.UntilClose:
		c.done = false
	default:
		c.done = true
	}
	c.state.Store(bodyUntouched)
	if c.done {
		c.state.Store(bodyDone)
	}
}

// awaitComplete waits until a body of declared length is complete, or a read fails, for example
// because of the deadline. The reader of the body then continues to wait, or gets the error.
func (c *bodyReader) awaitComplete() {
	if c.in.awaitBytes(int(c.remaining)) == nil {
		c.bufferedSize = int(c.remaining)
	}
}

// buffered returns how many body bytes can be read without waiting.
func (c *bodyReader) buffered() int {
	if c.done {
		return len(c.pending)
	}
	n := len(c.in.unread())
	if c.kind == syntax.Length {
		return int(min(int64(n), c.remaining))
	}
	return max(0, n-c.undecoded) + len(c.pending) // an upper bound for a chunked body
}

// next reads into p and returns io.EOF at the end. An end of the connection within the body is
// io.ErrUnexpectedEOF. next returns other errors of the connection unchanged: only the caller knows
// which side they concern. The caller may call next again after a deadline or an interruption.
func (c *bodyReader) next(p []byte) (int, error) {
	n, err := c.advance(p)
	if err != nil && err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, network.ErrInterrupted) {
		c.state.Store(bodyFailed)
	}
	return n, err
}

func (c *bodyReader) advance(p []byte) (int, error) {
	switch {
	case c.state.Load() == bodyFailed:
		return 0, errBodyFailed
	case c.done && len(c.pending) == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	c.state.CompareAndSwap(bodyUntouched, bodyStarted)
	var n int
	var err error
	switch c.kind {
	case syntax.Length:
		n, err = c.nextOfLength(p)
	case syntax.Chunked:
		n, err = c.nextChunk(p)
	default:
		n, err = c.nextUntilClose(p)
	}
	read := c.read.Add(int64(n))
	if c.done && len(c.pending) == 0 {
		c.state.Store(bodyDone)
	}
	if c.limit > 0 && read > c.limit {
		return 0, protocol.Faultf(protocol.BodyTooLarge, "the body exceeds %d bytes", c.limit)
	}
	return n, err
}

// errBodyFailed is the error of a read after a failed one.
var errBodyFailed = errors.New("a previous read of the body failed")

func (c *bodyReader) nextOfLength(p []byte) (int, error) {
	n, err := c.readRaw(p[:min(int64(len(p)), c.remaining)])
	c.remaining -= int64(n)
	c.done = c.remaining == 0
	return n, unexpectedEOF(err)
}

func (c *bodyReader) nextUntilClose(p []byte) (int, error) {
	n, err := c.readRaw(p)
	c.done = err == io.EOF
	return n, err
}

// readRaw reads body bytes that have no coding.
func (c *bodyReader) readRaw(p []byte) (int, error) {
	if b := c.in.rest; b != nil && b.Len() > 0 {
		return b.Read(p)
	}
	return c.in.conn.Read(p)
}

func (c *bodyReader) nextChunk(p []byte) (int, error) {
	filled := 0
	for {
		n := copy(p[filled:], c.pending)
		c.pending = c.pending[n:]
		filled += n
		if filled == len(p) {
			return filled, nil
		}
		data, err := c.decode()
		if err != nil || c.done {
			return filled, orEOF(err, filled)
		}
		if len(data) > 0 {
			c.pending = data
			continue
		}
		c.undecoded = len(c.in.unread())
		if filled > 0 {
			return filled, nil
		}
		if err := c.in.readMore(); err != nil {
			return 0, unexpectedEOF(err)
		}
		c.undecoded = 0
	}
}

// decode decodes unconsumed bytes and returns the next bytes of the body, which borrow in.rest. The
// result is empty at the end of the body, and if decode needs more bytes from the connection.
func (c *bodyReader) decode() ([]byte, error) {
	for {
		b := c.in.unread()
		if len(b) == 0 {
			return nil, nil
		}
		n, data, done, err := c.chunks.Next(b, c.limits, c.trailer)
		c.in.rest.Discard(n)
		c.done = done
		if done && c.server != nil {
			c.server.DropUnderscoreTrailers(c.trailer)
		}
		if err != nil || done || len(data) > 0 || n == 0 {
			return data, err
		}
	}
}

// orEOF returns err, or io.EOF for a read that ended with no bytes.
func orEOF(err error, n int) error {
	if err == nil && n == 0 {
		return io.EOF
	}
	return err
}

// unexpectedEOF converts io.EOF within a message to io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rewind restarts the body and reports whether it could: nothing was read, or a body of declared
// length was complete before the first read. In the second case, the buffer still holds all bytes
// of the body, because nothing has been read into the buffer since. A body that was closed too
// early or whose read failed cannot be restarted.
func (c *bodyReader) rewind() bool {
	read := c.read.Load()
	switch {
	case c.kind == syntax.NoBody:
		return true
	case c.closed.Load(), c.state.Load() == bodyFailed:
		return false
	case read == 0:
		return true
	case c.bufferedSize < 0:
		return false
	}
	c.in.rest.Undiscard(int(read))
	c.read.Store(0)
	c.remaining, c.done = int64(c.bufferedSize), false
	c.state.Store(bodyStarted)
	return true
}

// readFault returns the Fault for a failed read from the client. It returns nil and io.EOF
// unchanged.
func readFault(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var f *protocol.Fault // escapes to the heap, so it is declared only after an error
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return protocol.NewFault(protocol.RequestTimeout, err)
	default:
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
	}
}

// deadlineAfter returns t plus d, or the zero time (never) if d is not positive.
func deadlineAfter(t time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return t.Add(d)
}
