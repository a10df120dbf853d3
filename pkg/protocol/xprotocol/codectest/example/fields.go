package example

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// routing lists the fields that come first in Header, wherever they are in the frame. An empty
// field is the same as none.
//
//nolint:gochecknoglobals // a constant table
var routing = [...]string{xprotocol.FieldService, xprotocol.FieldMethod, xprotocol.FieldVersion, xprotocol.FieldGroup}

// readFields reads the fields of a frame into h, and sets v.ContentOffset.
func readFields(frame []byte, h *protocol.Header, v *xprotocol.FrameView) error {
	rest := frame[headSize:]
	size := binary.BigEndian.Uint32(frame[12:])
	if uint64(size) > uint64(len(rest)) {
		return errFields
	}
	rest = rest[:size]
	v.ContentOffset = headSize + int(size)
	for _, name := range routing {
		h.Add(name, "")
	}
	for len(rest) > 0 {
		name, after, ok := cutText(rest)
		value, after, ok2 := cutText(after)
		if !ok || !ok2 {
			return errFields
		}
		rest = after
		if i := slices.IndexFunc(routing[:], func(r string) bool { return protocol.EqualFold(r, name) }); i >= 0 {
			h.At(i).Value = value
		} else {
			h.Add(name, value)
		}
	}
	for _, name := range slices.Backward(routing[:]) {
		if h.Get(name) == "" {
			h.Del(name)
		}
	}
	h.MarkUnchanged()
	return nil
}

// cutText returns the text at the start of b, and the bytes after it.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return "", nil, false
	}
	end := 4 + int(binary.BigEndian.Uint32(b))
	return unsafeString(b[4:end]), b[end:], true
}

// appendMessage appends frame, with the fields of h if they have changed.
func appendMessage(dst, frame []byte, h *protocol.Header, v *xprotocol.FrameView) ([]byte, error) {
	if !h.Changed() {
		return append(dst, frame...), nil
	}
	start := len(dst)
	dst = append(dst, frame[:headSize]...)
	for name, value := range h.All() {
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(name))), name...)
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(value))), value...)
	}
	size := len(dst) - start - headSize
	if size > math.MaxUint32 {
		return dst[:start], protocol.Faultf(protocol.HeaderTooLarge, "memo: %d bytes of fields are too large", size)
	}
	binary.BigEndian.PutUint32(dst[start+12:], uint32(size))
	return append(dst, frame[v.ContentOffset:]...), nil
}

// unsafeString returns a string that shares the bytes of b, so that reading a frame does not copy.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
