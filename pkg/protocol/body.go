package protocol

import "io"

// Body is content on its way. One goroutine reads it.
type Body interface {
	// Read fills p as io.Reader does; after io.EOF the message's Trailer is
	// complete. A Fault or other error means that the content is cut short:
	// what was read must not pass for the whole.
	Read(p []byte) (int, error)

	// Buffered returns how many bytes Read can give without waiting: engines
	// put them into the same write as the head.
	Buffered() int

	// Close gives up what is unread and releases what the body holds. It may be
	// called beside a Read, which then returns an error: so an upload is stopped
	// that waits for its client. A Request.Body may be closed any number of times.
	// A Response.Body is closed once and not touched afterwards, because an
	// engine may reuse it for the next exchange: a body that wraps another passes
	// Close on once, and who wants to be rid of an answer calls ResetResponse.
	Close() error
}

// Rewinder is a request body that can be read again from its start, as long as
// all of it is still held. Retry asks for it.
type Rewinder interface {
	// Rewind reports whether the next Read starts at the first byte.
	Rewind() bool
}

// CompleteBody is a Body that knows whether all of it has come from its peer.
type CompleteBody interface {
	// Complete reports whether no Read will wait any more, and if so, whether there is
	// neither content nor a trailer.
	Complete() (whole, empty bool)
}

// Tunnel is a connection that left its protocol: bytes both ways. One goroutine reads
// and one writes. Close may be called by any, beside both, which it ends, and more than
// once.
type Tunnel interface {
	io.ReadWriteCloser
	// CloseWrite ends our direction only.
	CloseWrite() error
}

// StringBody is a Body that is a string. The zero value is empty.
type StringBody struct {
	text string
	read int
}

// NewStringBody returns a body of text.
func NewStringBody(text string) *StringBody { return &StringBody{text: text} }

func (b *StringBody) Read(p []byte) (int, error) {
	if b.read == len(b.text) {
		return 0, io.EOF
	}
	n := copy(p, b.text[b.read:])
	b.read += n
	return n, nil
}

// Buffered returns the bytes that are unread.
func (b *StringBody) Buffered() int { return len(b.text) - b.read }

// Rewind starts again; it always can.
func (b *StringBody) Rewind() bool { b.read = 0; return true }

// Close has nothing to release.
func (b *StringBody) Close() error { return nil }

// Arguments is what the body of a call of RPC may be, too: it tells of the call's
// arguments, which nobody else reads.
type Arguments interface {
	// Argument returns an argument, counted from 0, as text if it is a text, a whole
	// number or a boolean; ok is false of others, and if there is none. It costs the
	// reading of those before it, and an allocation.
	Argument(i int) (text string, ok bool)
}
