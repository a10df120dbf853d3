package xprotocol

import (
	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

const (
	// minReadSize and maxReadSize are sizes of one read, in bytes; maxReadSize applies while reads
	// fill minReadSize.
	minReadSize = 4 << 10
	maxReadSize = 64 << 10
)

// input holds the bytes that were read and not yet consumed. The connection's reader owns it.
type input struct {
	buf            *buffer.IoBuffer // nil: empty
	skip           int              // bytes to discard of a frame that was too large
	usesLargeReads bool             // the last read filled its buffer
	read           int              // bytes read since the owner set it to 0
}

// partial reports whether there is an incomplete frame.
func (in *input) partial() bool { return in.buf != nil || in.skip > 0 }

// fill reads once. It calls wait before it blocks.
func (in *input) fill(conn *network.Conn, wait func()) error {
	size := minReadSize
	if in.usesLargeReads {
		size = maxReadSize
	}
	if in.buf != nil {
		// Leave room for more than the rest of an incomplete frame.
		in.buf.Reserve(max(size, in.buf.Cap()) - in.buf.Len())
	}
	n, err := conn.FillOnWait(&in.buf, size, wait)
	if err != nil {
		if in.buf != nil && in.buf.Len() == 0 {
			in.release()
		}
		return err
	}
	in.usesLargeReads = len(in.buf.Tail()) == 0 || in.usesLargeReads && n > minReadSize
	in.drop()
	in.read += n
	return nil
}

// drop discards the buffered part of a frame that was too large.
func (in *input) drop() {
	if in.skip > 0 && in.buf != nil {
		n := min(in.skip, in.buf.Len())
		in.buf.Discard(n)
		in.skip -= n
	}
}

// next returns the first frame, or nil if it is incomplete. Of a frame beyond the limit it returns
// the beginning, which has at least the frame header and is shorter than the frame. The frame is
// valid until consume.
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
	// Do not reserve all the memory that an unverified length asks for.
	in.buf.Reserve(min(head.Size-len(b), max(maxReadSize, len(b))))
	return head, nil, nil
}

// consume drops the frame that next returned; n of its bytes are buffered.
func (in *input) consume(head codec.Frame, n int) {
	in.buf.Discard(n)
	in.skip = head.Size - n
	in.drop()
}

// releaseEmpty releases an empty buffer. The reader calls it after it has handled all complete
// frames.
func (in *input) releaseEmpty() {
	if in.buf != nil && in.buf.Len() == 0 {
		in.release()
	}
}

// hasBytes reports whether there are bytes to parse.
func (in *input) hasBytes() bool { return in.buf != nil && in.buf.Len() > 0 }

func (in *input) release() {
	if in.buf != nil {
		in.buf.Release()
		in.buf = nil
	}
}
