package xprotocol

import (
	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

const (
	// firstRead and busyRead are how much is read at once, in bytes: the second
	// while reads fill the first.
	firstRead = 4 << 10
	busyRead  = 64 << 10
)

// input is what was read of a connection and not dealt with. Owned by the
// connection's reader.
type input struct {
	buf  *buffer.IoBuffer // nil: nothing is left
	skip int              // bytes to come of a frame that was too large
	busy bool             // the last read filled its buffer
	read int              // bytes, since the user of the input set it to 0
}

// partial reports whether a frame has begun and is not whole.
func (in *input) partial() bool { return in.buf != nil || in.skip > 0 }

// fill reads once. wait is called before it waits for something to read.
func (in *input) fill(conn *network.Conn, wait func()) error {
	size := firstRead
	if in.busy {
		size = busyRead
	}
	if in.buf != nil {
		// The beginning of a frame must not leave room for its end alone.
		in.buf.Reserve(max(size, in.buf.Cap()) - in.buf.Len())
	}
	n, err := conn.FillOnWait(&in.buf, size, wait)
	if err != nil {
		if in.buf != nil && in.buf.Len() == 0 {
			in.release()
		}
		return err
	}
	in.busy = len(in.buf.Tail()) == 0 || in.busy && n > firstRead
	in.drop()
	in.read += n
	return nil
}

// drop consumes what is there of a frame that was too large.
func (in *input) drop() {
	if in.skip > 0 && in.buf != nil {
		n := min(in.skip, in.buf.Len())
		in.buf.Discard(n)
		in.skip -= n
	}
}

// next returns the frame that the bytes begin with, nil if it is not there yet.
// Of a frame beyond the limit it returns the beginning, at least the head, and
// never the whole, even if that is there. The frame is valid until consume.
func (in *input) next(c codec.Framing, limit int) (codec.Frame, []byte, error) {
	b := in.buf.Bytes()
	head, err := c.ParseFrame(b)
	switch {
	case err != nil || head.Size == 0:
		return head, nil, err
	case limit > 0 && head.Size > limit && head.Size > c.Traits().FrameHeaderLen:
		return head, b[:min(len(b), head.Size-1)], nil
	case head.Size <= len(b):
		return head, b[:head.Size:head.Size], nil
	}
	// The sender's word alone is not worth all the memory that it asks for.
	in.buf.Reserve(min(head.Size-len(b), max(busyRead, len(b))))
	return head, nil, nil
}

// consume drops the frame that next returned, of which n bytes are there.
func (in *input) consume(head codec.Frame, n int) {
	in.buf.Discard(n)
	in.skip = head.Size - n
	in.drop()
}

// rest is called when all whole frames have been dealt with.
func (in *input) rest() {
	if in.buf != nil && in.buf.Len() == 0 {
		in.release()
	}
}

// whole reports whether there is anything to look at.
func (in *input) whole() bool { return in.buf != nil && in.buf.Len() > 0 }

func (in *input) release() {
	if in.buf != nil {
		in.buf.Release()
		in.buf = nil
	}
}
