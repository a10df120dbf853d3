package extauthz

import (
	"errors"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// tell returns the content of x, or its beginning, as b says; nil b: nothing. The
// content of x is as it was. A Fault of BodyTooLarge says that there is more than the
// service may be told; other errors are those of reading.
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
	return protocol.Faultf(protocol.BodyTooLarge, "ext_authz: the content exceeds max_request_bytes %d", b.Most)
}

// arguments returns the content of a call of RPC, which stays unread; nil: it has none.
func arguments(body protocol.Body) []byte {
	m := xprotocol.MessageOf(body)
	if m == nil {
		return nil
	}
	return m.Content()
}

// held is content of which the beginning has been read, to be read again.
type held struct {
	protocol.Body

	bytes []byte // the beginning
	given int    // how much of it was given out
	ended bool   // it is all, and there was nothing behind it
	whole bool   // it is all that was declared
}

// step is how much is read at once, in bytes.
const step = 4 << 10

// fill reads the beginning: most bytes, or what there is. length is what was declared;
// negative: nothing was.
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

// Read is protocol.Body's.
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

// Buffered is protocol.Body's.
func (h *held) Buffered() int {
	n := len(h.bytes) - h.given
	if !h.ended {
		n += h.Body.Buffered()
	}
	return n
}

// Rewind is protocol.Rewinder's.
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
