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
)

// pieceSize is how much of a large body is in memory at a time, in bytes.
const pieceSize = 64 << 10

// connReader is the receiving half of a connection: the bytes read and not yet
// consumed, and the buffer that the current message's head lies in. The head's
// strings are views, so while a message lasts its buffer is neither moved nor
// released; content beyond it goes to another.
type connReader struct {
	conn *network.Conn
	head *buffer.IoBuffer // holds the head; may be the same as rest; nil between messages
	rest *buffer.IoBuffer // unconsumed bytes; nil for none
}

// more reads once behind the unconsumed bytes, which stay contiguous.
func (in *connReader) more() error {
	if in.rest == in.head && in.rest != nil {
		old := in.rest
		in.rest = nil
		if old.Len() > 0 {
			in.rest = buffer.Get(pieceSize)
			_, _ = in.rest.Write(old.Bytes()) // never fails
			old.Discard(old.Len())
		}
	}
	_, err := in.conn.Fill(&in.rest, pieceSize)
	return err
}

// await reads until there are n unconsumed bytes. Where the head's buffer has
// room for them they go there, so that the head stays where it is.
func (in *connReader) await(n int) error {
	for have := len(in.unread()); have < n; have = len(in.unread()) {
		if in.rest == nil || len(in.rest.Tail()) < n-have {
			if err := in.more(); err != nil {
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

// endMessage releases what the message held; unconsumed bytes stay.
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

// release gives all buffers back.
func (in *connReader) release() {
	in.endMessage()
	if in.rest != nil {
		in.rest.Release()
		in.rest = nil
	}
}

// content reads one message's content off an input, whatever its framing
// (RFC 9112 6).
type content struct {
	in      *connReader
	kind    syntax.BodyKind
	left    int64        // bytes to come, of Length
	read    atomic.Int64 // bytes given out
	whole   int          // bytes of a body that was all there before it was read, else -1
	limit   int64        // most bytes that are accepted; 0: any number
	chunks  syntax.ChunkReader
	pending []byte // decoded and not given out; a view of in.rest
	stuck   int    // unconsumed bytes that say nothing without more: of a trailer section
	limits  syntax.Limits
	trailer *protocol.Header
	done    bool
	closed  atomic.Bool
	state   atomic.Uint32 // contentUntouched and so on
}

// What has become of content; read by the goroutine that writes the answer
// while an upload may be reading.
const (
	contentUntouched = iota
	contentBegun
	contentDone
	contentFailed
)

// start makes c ready for the content that f announces. What of it has arrived
// with the head is in in.rest.
func (c *content) start(in *connReader, f *syntax.Framing, trailer *protocol.Header, limits syntax.Limits, limit int64) {
	c.in, c.kind, c.trailer, c.limits, c.limit = in, f.Body, trailer, limits, limit
	c.left, c.whole = f.Length, -1
	c.read.Store(0)
	c.closed.Store(false)
	c.chunks.Reset()
	c.chunks.Nominated = f.ConnectionOptions
	c.pending, c.stuck = nil, 0
	switch f.Body {
	case syntax.Length:
		c.done = c.left == 0
		if int64(len(in.unread())) >= c.left {
			c.whole = int(c.left)
		}
	case syntax.Chunked, syntax.UntilClose:
		c.done = false
	default:
		c.done = true
	}
	c.state.Store(contentUntouched)
	if c.done {
		c.state.Store(contentDone)
	}
}

// awaitWhole waits until all of content of a declared length is there.
func (c *content) awaitWhole() {
	if c.in.await(int(c.left)) == nil { // if not, who reads the content meets the error again
		c.whole = int(c.left)
	}
}

// buffered returns how many content bytes need no waiting.
func (c *content) buffered() int {
	if c.done {
		return len(c.pending)
	}
	n := len(c.in.unread())
	if c.kind == syntax.Length {
		return int(min(int64(n), c.left))
	}
	return max(0, n-c.stuck) + len(c.pending) // of chunked content: an upper bound
}

// next fills p; io.EOF at the end. Errors of the connection are returned as they
// are: only the caller knows whose they are. Behind a wait that was ended, by its
// deadline or an interruption, it may be called again.
func (c *content) next(p []byte) (int, error) {
	n, err := c.advance(p)
	if err != nil && err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, network.ErrInterrupted) {
		c.state.Store(contentFailed)
	}
	return n, err
}

func (c *content) advance(p []byte) (int, error) {
	switch {
	case c.state.Load() == contentFailed:
		return 0, errContentFailed
	case c.done && len(c.pending) == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	c.state.CompareAndSwap(contentUntouched, contentBegun)
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
		c.state.Store(contentDone)
	}
	if c.limit > 0 && read > c.limit {
		return 0, protocol.Faultf(protocol.BodyTooLarge, "content exceeds %d bytes", c.limit)
	}
	return n, err
}

// errContentFailed is what a read after a failed one gets.
var errContentFailed = errors.New("the content failed before")

func (c *content) nextOfLength(p []byte) (int, error) {
	n, err := c.raw(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.done = c.left == 0
	return n, cutShort(err)
}

func (c *content) nextUntilClose(p []byte) (int, error) {
	n, err := c.raw(p)
	c.done = err == io.EOF
	return n, err
}

// raw reads bytes that are content as they are.
func (c *content) raw(p []byte) (int, error) {
	if b := c.in.rest; b != nil && b.Len() > 0 {
		return b.Read(p)
	}
	return c.in.conn.Read(p)
}

func (c *content) nextChunk(p []byte) (int, error) {
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
		c.stuck = len(c.in.unread())
		if filled > 0 {
			return filled, nil
		}
		if err := c.in.more(); err != nil {
			return 0, cutShort(err)
		}
		c.stuck = 0
	}
}

// decode returns a view of the next content among the unconsumed bytes: empty
// when they hold none.
func (c *content) decode() ([]byte, error) {
	for {
		b := c.in.unread()
		if len(b) == 0 {
			return nil, nil
		}
		n, data, done, err := c.chunks.Next(b, c.limits, c.trailer)
		c.in.rest.Discard(n)
		c.done = done
		if err != nil || done || len(data) > 0 || n == 0 {
			return data, err
		}
	}
}

// orEOF is what a read that ended returns.
func orEOF(err error, n int) error {
	if err == nil && n == 0 {
		return io.EOF
	}
	return err
}

// cutShort turns the end of the connection within content into an error.
func cutShort(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rewind starts again, if nothing was read, or all of the content was there
// before: then it still is, because nothing more is read into its buffer.
func (c *content) rewind() bool {
	read := c.read.Load()
	switch {
	case c.kind == syntax.NoBody:
		return true
	case c.closed.Load(), c.state.Load() == contentFailed:
		return false
	case read == 0:
		return true
	case c.whole < 0:
		return false
	}
	c.in.rest.Undiscard(int(read))
	c.read.Store(0)
	c.left, c.done = int64(c.whole), false
	c.state.Store(contentBegun)
	return true
}

// readFault says what a failed read from the caller costs.
func readFault(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var f *protocol.Fault // escapes
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return protocol.NewFault(protocol.RequestTimeout, err)
	default:
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
	}
}

// later returns t moved by d, or the zero time (never) for no d.
func later(t time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return t.Add(d)
}
