package stream

import (
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
)

const (
	// MinReadSize is the usual size of one read of a ReadBuffer, in bytes.
	MinReadSize = 4 << 10
	// MaxReadSize is the size, in bytes, of the reads after one that filled its buffer, until a
	// read returns no more than MinReadSize.
	MaxReadSize = 64 << 10
	// MaxReadPerFlush is how many bytes a reader of a multiplexed connection reads before it
	// flushes its WriteBatch even if there is more to read. Downstream RPC connections have another
	// limit.
	MaxReadPerFlush = 256 << 10
)

// ReadBuffer holds the bytes that the reader of a multiplexed connection has read and not yet
// processed. The zero value is empty. The reader owns it.
type ReadBuffer struct {
	Buf       *buffer.IoBuffer // nil: empty, so that a connection that waits holds no buffer
	Unflushed int              // bytes read since the reader set it to 0, which it does when it flushes

	nextIsLarge bool // the next read uses MaxReadSize
}

// HasBytes reports whether there are bytes to process.
func (r *ReadBuffer) HasBytes() bool { return r.Buf != nil && r.Buf.Len() > 0 }

// Room returns how many bytes Fill reserves in Buf: the larger of the size of Buf and the size of
// one read, less the unprocessed bytes. Buf must not be nil.
func (r *ReadBuffer) Room() int { return max(r.readSize(), r.Buf.Cap()) - r.Buf.Len() }

func (r *ReadBuffer) readSize() int {
	if r.nextIsLarge {
		return MaxReadSize
	}
	return MinReadSize
}

// Fill reads once, into the space of Buf or a new buffer. It calls wait before it blocks.
func (r *ReadBuffer) Fill(conn *network.Conn, wait func()) error {
	if r.Buf != nil {
		r.Buf.Reserve(r.Room())
	}
	n, err := conn.FillOnWait(&r.Buf, r.readSize(), wait)
	if err != nil {
		r.ReleaseEmpty()
		return err
	}
	r.nextIsLarge = len(r.Buf.Tail()) == 0 || r.nextIsLarge && n > MinReadSize
	r.Unflushed += n
	return nil
}

// FillTimeout is like Fill, for a downstream connection: it waits for at most timeout; 0: no limit.
// If idle is set, conn is idle while it waits, so that a drain ends the wait with ErrDraining.
func (r *ReadBuffer) FillTimeout(conn *network.Conn, timeout time.Duration, idle bool, wait func()) error {
	SetReadTimeout(conn, timeout)
	if idle {
		if err := conn.SetIdle(true); err != nil {
			return err
		}
		defer conn.SetIdle(false) //nolint:errcheck // never fails
	}
	return r.Fill(conn, wait)
}

// ReleaseEmpty releases Buf if all of its bytes were processed.
func (r *ReadBuffer) ReleaseEmpty() {
	if r.Buf != nil && r.Buf.Len() == 0 {
		r.Release()
	}
}

// Release drops the bytes.
func (r *ReadBuffer) Release() {
	if r.Buf != nil {
		r.Buf.Release()
		r.Buf = nil
	}
}
