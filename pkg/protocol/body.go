package protocol

import "io"

// Body is the body of a message that is being received. One goroutine reads it.
type Body interface {
	// Read fills p as io.Reader does; after io.EOF the message's Trailer is complete. A Fault or
	// other error means that the body is truncated: the reader must not treat it as complete.
	Read(p []byte) (int, error)

	// Buffered returns how many bytes Read can return without waiting. Engines put them into the
	// same write as the head.
	Buffered() int

	// Close discards unread bytes and releases the resources of the body. A Request.Body may be
	// closed any number of times, and concurrently with Read: a Read that waits then returns an
	// error, which ends an upload that waits for its client. A Response.Body is closed once and not
	// used afterwards, because an engine may reuse it for the next exchange. A body that wraps
	// another therefore closes the other once, and code that drops a response calls ResetResponse.
	Close() error
}

// Rewinder is a request body that can be read again from its start, as long as nothing was read or
// all of it is still buffered.
type Rewinder interface {
	// Rewind reports whether the next Read starts at the first byte.
	Rewind() bool
}

// CompleteBody is a Body that knows whether all of it has arrived.
type CompleteBody interface {
	// Complete reports whether the body is complete, so that Read does not block, and if so,
	// whether it has neither bytes nor a trailer.
	Complete() (complete, empty bool)
}

// Tunnel is a connection that switched protocols: it carries bytes in both directions. One
// goroutine reads and one writes. Any goroutine may call Close, more than once and concurrently
// with Read and Write, which then return.
type Tunnel interface {
	io.ReadWriteCloser
	// CloseWrite ends the direction that Weft writes.
	CloseWrite() error
}

// StringBody is a Body that reads from a string. The zero value is an empty body.
type StringBody struct {
	text   string
	offset int // offset of the next byte that Read returns
}

// NewStringBody returns a body of text.
func NewStringBody(text string) *StringBody { return &StringBody{text: text} }

func (b *StringBody) Read(p []byte) (int, error) {
	if b.offset == len(b.text) {
		return 0, io.EOF
	}
	n := copy(p, b.text[b.offset:])
	b.offset += n
	return n, nil
}

// Buffered returns the number of unread bytes.
func (b *StringBody) Buffered() int { return len(b.text) - b.offset }

// Rewind restarts at the first byte and returns true.
func (b *StringBody) Rewind() bool { b.offset = 0; return true }

// Close does nothing and returns nil.
func (b *StringBody) Close() error { return nil }

// Arguments is an optional interface of the body of an RPC request. It decodes arguments of the
// call on demand.
type Arguments interface {
	// Argument returns argument i, counted from 0, as text. ok is false if it is not a string, an
	// integer or a boolean, or if there is no such argument. Argument also decodes the arguments
	// before i, and allocates.
	Argument(i int) (text string, ok bool)
}
