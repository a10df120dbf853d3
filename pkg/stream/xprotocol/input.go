package xprotocol

import (
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// input splits the bytes that were read into frames. The connection's reader owns it.
type input struct {
	stream.ReadBuffer
	skip int // bytes to discard of a frame that was too large
}

// hasPartialFrame reports whether a part of a frame was read. The caller has handled the complete
// frames.
func (in *input) hasPartialFrame() bool { return in.Buf != nil || in.skip > 0 }

// drop discards the buffered part of a frame that was too large. The reader calls it after each
// read.
func (in *input) drop() {
	if in.skip > 0 && in.Buf != nil {
		n := min(in.skip, in.Buf.Len())
		in.Buf.Discard(n)
		in.skip -= n
	}
}

// next returns the first frame, or nil if it is incomplete. The frame is valid until consume. Of a
// frame larger than limit (0: no limit), next returns only the beginning: the frame header at
// least, but not the complete frame. A frame that consists of its header has no limit.
func (in *input) next(c codec.Framing, limit int) (codec.Frame, []byte, error) {
	b := in.Buf.Bytes()
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
	in.Buf.Reserve(min(head.Size-len(b), max(stream.MaxReadSize, len(b))))
	return head, nil, nil
}

// consume drops the frame of head. n is the length of the slice that next returned.
func (in *input) consume(head codec.Frame, n int) {
	in.Buf.Discard(n)
	in.skip = head.Size - n
	in.drop()
}
