// Package buffer provides the pooled byte buffers that the hot path reads into and writes from.
package buffer

import (
	"io"

	"github.com/weft-proxy/weft/internal/invariants"
)

// IoBuffer is a byte queue: bytes are appended at the tail and consumed from the head. It has one
// owner at a time, from Get to Release. A slice of its bytes is valid until the next call that
// appends, compacts, resets or releases. The zero value is an empty buffer without storage.
type IoBuffer struct {
	store    []byte // store[head:] is unread
	head     int
	class    int8 // index into classes; -1: larger than every class; or classBorrowed
	released bool // Release was called; maintained only when invariants are on
}

// Bytes returns the unread bytes.
func (b *IoBuffer) Bytes() []byte { return b.store[b.head:] }

// Len returns the number of unread bytes.
func (b *IoBuffer) Len() int { return len(b.store) - b.head }

// Cap returns the size of the storage in bytes.
func (b *IoBuffer) Cap() int { return cap(b.store) }

// Tail returns the free storage behind the unread bytes. The caller reads into it and then calls
// Extend. The free storage may be empty: see Reserve.
func (b *IoBuffer) Tail() []byte { return b.store[len(b.store):cap(b.store)] }

// Extend makes the first n bytes of Tail part of the unread bytes.
func (b *IoBuffer) Extend(n int) { b.store = b.store[:len(b.store)+n] }

// Discard consumes n unread bytes. It does not invalidate slices of them.
func (b *IoBuffer) Discard(n int) {
	b.head += n
	if b.head > len(b.store) {
		panic("buffer: Discard past the end")
	}
}

// Undiscard undoes the Discard of the last n bytes. Nothing may have been appended, reserved or
// compacted since.
func (b *IoBuffer) Undiscard(n int) {
	b.head -= n
	if b.head < 0 {
		panic("buffer: Undiscard before the start")
	}
}

// Reset drops all bytes and keeps the storage.
func (b *IoBuffer) Reset() {
	b.store = b.store[:0]
	b.head = 0
}

// Compact moves the unread bytes to the front of the storage.
func (b *IoBuffer) Compact() {
	if b.head == 0 {
		return
	}
	n := copy(b.store, b.store[b.head:])
	b.store = b.store[:n]
	b.head = 0
}

// Reserve makes Tail at least n bytes long. It compacts if that is enough; otherwise it moves the
// unread bytes to larger storage.
func (b *IoBuffer) Reserve(n int) {
	if cap(b.store)-len(b.store) >= n {
		return
	}
	if cap(b.store)-b.Len() >= n {
		b.Compact()
		return
	}
	b.grow(b.Len() + n)
}

// Write appends p. It never fails.
func (b *IoBuffer) Write(p []byte) (int, error) {
	b.store = append(b.store, p...)
	return len(p), nil
}

// WriteString appends s. It never fails.
func (b *IoBuffer) WriteString(s string) (int, error) {
	b.store = append(b.store, s...)
	return len(s), nil
}

// Read consumes up to len(p) unread bytes into p. It returns io.EOF when there are none.
func (b *IoBuffer) Read(p []byte) (int, error) {
	if b.Len() == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.Bytes())
	b.Discard(n)
	return n, nil
}

// Storage returns all bytes, consumed and unread, for append-style encoders:
// b.SetStorage(Append(b.Storage(), …)).
func (b *IoBuffer) Storage() []byte { return b.store }

// SetStorage stores the result of an append-style encoder that extended Storage.
func (b *IoBuffer) SetStorage(p []byte) { b.store = p }

func (b *IoBuffer) grow(size int) {
	grown := Get(size)
	n := copy(grown.store[:size], b.Bytes())
	grown.store = grown.store[:n]
	// Swap the storages: Release returns the old one to its class.
	b.store, grown.store = grown.store, b.store
	b.class, grown.class = grown.class, b.class
	b.head = 0
	grown.Release()
}

func (b *IoBuffer) poison() {
	storage := b.store[:cap(b.store)]
	for i := range storage[:min(len(storage), 64)] {
		storage[i] = 0xdb
	}
	for n := 64; n < len(storage); n *= 2 { // the race detector records a copy as one access
		copy(storage[n:], storage[:n])
	}
}

const checkInvariants = invariants.Enabled
