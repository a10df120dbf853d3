package extauthz

import (
	"errors"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// bufferBody returns the body of x, or its beginning, as b configures. It returns nil if b is nil
// or x has no body to send. Later reads of x's body still return all of it. tell returns a Fault of
// BodyTooLarge if the body exceeds the limit; other errors are those of reading the body.
func bufferBody(x *protocol.Exchange, b *BufferSettings) (sent []byte, partial bool, err error) {
	r := &x.Request
	switch {
	case b == nil || r.Body == nil || r.Method == "CONNECT" || r.Upgrade != "":
		return nil, false, nil
	case r.Method == "":
		sent = rpcPayload(r.Body)
	case r.ContentLength > int64(b.MaxRequestBytes) && !b.Partial:
		return nil, false, tooLarge(b)
	default:
		h := &bufferedBody{Body: r.Body}
		if err := h.fill(b.MaxRequestBytes+1, r.ContentLength); err != nil {
			return nil, false, err
		}
		r.Body, sent = h, h.buffered
	}
	if len(sent) > b.MaxRequestBytes {
		if !b.Partial {
			return nil, false, tooLarge(b)
		}
		sent, partial = sent[:b.MaxRequestBytes], true
	}
	return sent, partial, nil
}

func tooLarge(b *BufferSettings) error {
	return protocol.Faultf(protocol.BodyTooLarge, "ext_authz: the request body exceeds max_request_bytes %d", b.MaxRequestBytes)
}

// rpcPayload returns the payload of an RPC request without consuming it, or nil if it has none.
func rpcPayload(body protocol.Body) []byte {
	m := xprotocol.MessageOf(body)
	if m == nil {
		return nil
	}
	return m.Content()
}

// bufferedBody is a body whose first bytes have been read; Read returns them again.
type bufferedBody struct {
	protocol.Body

	buffered          []byte // the bytes already read
	readPos           int    // how many of them Read has returned
	complete          bool   // bytes is the complete body, and its end was read
	hasDeclaredLength bool   // bytes has the declared length
}

// minGrowth is the minimum size, in bytes, by which the buffer grows.
const minGrowth = 4 << 10

// fill reads up to most bytes. length is the declared length; negative: not declared.
func (h *bufferedBody) fill(most int, length int64) error {
	if length >= 0 {
		most = int(min(int64(most), length))
	}
	for len(h.buffered) < most {
		n := len(h.buffered)
		h.buffered = append(h.buffered, make([]byte, min(most-n, max(n, minGrowth)))...)
		got, err := h.Body.Read(h.buffered[n:])
		h.buffered = h.buffered[:n+got]
		if errors.Is(err, io.EOF) {
			h.complete = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	h.hasDeclaredLength = int64(len(h.buffered)) == length
	return nil
}

// Read implements protocol.Body.
func (h *bufferedBody) Read(p []byte) (int, error) {
	if h.readPos < len(h.buffered) {
		n := copy(p, h.buffered[h.readPos:])
		h.readPos += n
		return n, nil
	}
	if h.complete {
		return 0, io.EOF
	}
	return h.Body.Read(p)
}

// Buffered implements protocol.Body.
func (h *bufferedBody) Buffered() int {
	n := len(h.buffered) - h.readPos
	if !h.complete {
		n += h.Body.Buffered()
	}
	return n
}

// Rewind implements protocol.Rewinder.
func (h *bufferedBody) Rewind() bool {
	if h.complete || h.hasDeclaredLength {
		h.readPos = 0
		return true
	}
	if !protocol.RewindBody(h.Body) {
		return false
	}
	h.buffered, h.readPos = nil, 0
	return true
}
