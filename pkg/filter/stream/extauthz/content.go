package extauthz

import (
	"errors"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// tell returns the body of x, or its beginning, as b configures. It returns nil if b is nil or x
// has no body to send. Later reads of x's body still return all of it. tell returns a Fault of
// BodyTooLarge if the body exceeds the limit; other errors are those of reading the body.
func tell(x *protocol.Exchange, b *BufferSettings) (told []byte, partial bool, err error) {
	r := &x.Request
	switch {
	case b == nil || r.Body == nil || r.Method == "CONNECT" || r.Upgrade != "":
		return nil, false, nil
	case r.Method == "":
		told = arguments(r.Body)
	case r.ContentLength > int64(b.Most) && !b.Partial:
		return nil, false, tooLarge(b)
	default:
		h := &held{Body: r.Body}
		if err := h.fill(b.Most+1, r.ContentLength); err != nil {
			return nil, false, err
		}
		r.Body, told = h, h.bytes
	}
	if len(told) > b.Most {
		if !b.Partial {
			return nil, false, tooLarge(b)
		}
		told, partial = told[:b.Most], true
	}
	return told, partial, nil
}

func tooLarge(b *BufferSettings) error {
	return protocol.Faultf(protocol.BodyTooLarge, "ext_authz: the request body exceeds max_request_bytes %d", b.Most)
}

// arguments returns the payload of an RPC request without consuming it, or nil if it has none.
func arguments(body protocol.Body) []byte {
	m := xprotocol.MessageOf(body)
	if m == nil {
		return nil
	}
	return m.Content()
}

// held is a body whose first bytes have been read; Read returns them again.
type held struct {
	protocol.Body

	bytes []byte // the bytes already read
	given int    // how many of them Read has returned
	ended bool   // bytes is the complete body, and its end was read
	whole bool   // bytes has the declared length
}

// step is the minimum size, in bytes, by which the buffer grows.
const step = 4 << 10

// fill reads up to most bytes. length is the declared length; negative: not declared.
func (h *held) fill(most int, length int64) error {
	if length >= 0 {
		most = int(min(int64(most), length))
	}
	for len(h.bytes) < most {
		n := len(h.bytes)
		h.bytes = append(h.bytes, make([]byte, min(most-n, max(n, step)))...)
		got, err := h.Body.Read(h.bytes[n:])
		h.bytes = h.bytes[:n+got]
		if errors.Is(err, io.EOF) {
			h.ended = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	h.whole = int64(len(h.bytes)) == length
	return nil
}

// Read implements protocol.Body.
func (h *held) Read(p []byte) (int, error) {
	if h.given < len(h.bytes) {
		n := copy(p, h.bytes[h.given:])
		h.given += n
		return n, nil
	}
	if h.ended {
		return 0, io.EOF
	}
	return h.Body.Read(p)
}

// Buffered implements protocol.Body.
func (h *held) Buffered() int {
	n := len(h.bytes) - h.given
	if !h.ended {
		n += h.Body.Buffered()
	}
	return n
}

// Rewind implements protocol.Rewinder.
func (h *held) Rewind() bool {
	if h.ended || h.whole {
		h.given = 0
		return true
	}
	r, ok := h.Body.(protocol.Rewinder)
	if !ok || !r.Rewind() {
		return false
	}
	h.bytes, h.given = nil, 0
	return true
}
