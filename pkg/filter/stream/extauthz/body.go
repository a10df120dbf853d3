package extauthz

import (
	"errors"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// bufferBody returns the body of x, or its beginning, as b configures. It returns nil if b is nil
// or x has no body to send. Later reads of x's body still return all of it. bufferBody returns a
// Fault of BodyTooLarge if the body exceeds the limit; other errors come from reading the body.
func bufferBody(x *protocol.Exchange, b *BufferSettings) (sentBody []byte, partial bool, err error) {
	r := &x.Request
	switch {
	case b == nil || r.Body == nil || r.Method == "CONNECT" || r.Upgrade != "":
		return nil, false, nil
	case r.Method == "":
		sentBody = rpcPayload(r.Body)
	case r.ContentLength > int64(b.MaxRequestBytes) && !b.AllowPartial:
		return nil, false, newTooLargeFault(b)
	default:
		buffered := &bufferedBody{Body: r.Body}
		if err := buffered.fill(b.MaxRequestBytes+1, r.ContentLength); err != nil {
			return nil, false, err
		}
		r.Body, sentBody = buffered, buffered.buffered
	}
	if len(sentBody) > b.MaxRequestBytes {
		if !b.AllowPartial {
			return nil, false, newTooLargeFault(b)
		}
		sentBody, partial = sentBody[:b.MaxRequestBytes], true
	}
	return sentBody, partial, nil
}

func newTooLargeFault(b *BufferSettings) error {
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
	readPos           int    // number of buffered bytes that Read has returned
	complete          bool   // buffered is the complete body, and its end was read
	hasDeclaredLength bool   // buffered is the complete body: it has the declared length
}

// minGrowth is the minimum size, in bytes, by which the buffer grows below the limit of fill.
const minGrowth = 4 << 10

// fill reads up to limit bytes. length is the declared length; negative: not declared.
func (b *bufferedBody) fill(limit int, length int64) error {
	if length >= 0 {
		limit = int(min(int64(limit), length))
	}
	for len(b.buffered) < limit {
		n := len(b.buffered)
		b.buffered = append(b.buffered, make([]byte, min(limit-n, max(n, minGrowth)))...)
		read, err := b.Body.Read(b.buffered[n:])
		b.buffered = b.buffered[:n+read]
		if errors.Is(err, io.EOF) {
			b.complete = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	b.hasDeclaredLength = int64(len(b.buffered)) == length
	return nil
}

// Read implements protocol.Body.
func (b *bufferedBody) Read(p []byte) (int, error) {
	if b.readPos < len(b.buffered) {
		n := copy(p, b.buffered[b.readPos:])
		b.readPos += n
		return n, nil
	}
	if b.complete {
		return 0, io.EOF
	}
	return b.Body.Read(p)
}

// Buffered implements protocol.Body.
func (b *bufferedBody) Buffered() int {
	n := len(b.buffered) - b.readPos
	if !b.complete {
		n += b.Body.Buffered()
	}
	return n
}

// Rewind implements protocol.Rewinder.
func (b *bufferedBody) Rewind() bool {
	if b.complete || b.hasDeclaredLength {
		b.readPos = 0
		return true
	}
	if !protocol.RewindBody(b.Body) {
		return false
	}
	b.buffered, b.readPos = nil, 0
	return true
}
