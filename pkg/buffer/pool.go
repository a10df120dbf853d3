package buffer

import (
	"sync"
	"sync/atomic"
)

// classes are the pooled storage sizes, in bytes. Sizes up to 2 KiB hold one RPC frame each, of
// which a hundred thousand may wait for their responses. 4 KiB holds nearly every head with a small
// body, and 16 KiB a large head. Bodies stream in pieces of up to 64 KiB. Larger storage is
// allocated with the requested size and left to the garbage collector.
//
//nolint:gochecknoglobals // a constant table; Go has no constant arrays
var classes = [...]int{512, 1 << 10, 1408, 2 << 10, 4 << 10, 16 << 10, 64 << 10}

//nolint:gochecknoglobals // all connections of the process share the storage
var pools [classBorrowed + 1]sync.Pool

// outstanding counts buffers between Get and Release when invariants are on.
//
//nolint:gochecknoglobals // the leak check of tests; untouched in production builds
var outstanding atomic.Int64

// Get returns an empty buffer with at least size bytes of storage. The caller owns it until
// Release.
func Get(size int) *IoBuffer {
	if checkInvariants {
		outstanding.Add(1)
	}
	for i, classSize := range classes {
		if size <= classSize {
			if b, ok := pools[i].Get().(*IoBuffer); ok {
				b.released = false
				return b
			}
			return newBuffer(classSize, int8(i))
		}
	}
	return newBuffer(size, -1)
}

func newBuffer(size int, class int8) *IoBuffer {
	return &IoBuffer{store: make([]byte, 0, size), class: class}
}

// classBorrowed is the class of buffers whose storage another owner keeps.
const classBorrowed = len(classes)

// Borrow returns a buffer that holds p without a copy. The owner of p keeps the storage and must
// not change it until Release, which frees only the buffer. Nothing may be appended to the buffer.
func Borrow(p []byte) *IoBuffer {
	b, ok := pools[classBorrowed].Get().(*IoBuffer)
	if !ok {
		b = newBuffer(0, int8(classBorrowed))
	}
	if checkInvariants {
		b.released = false
		outstanding.Add(1)
	}
	b.store = p[:len(p):len(p)]
	return b
}

// IsBorrowed reports whether the buffer comes from Borrow.
func (b *IoBuffer) IsBorrowed() bool { return int(b.class) == classBorrowed }

// Release returns the buffer to its pool. The caller must not use it, or a slice or string of it,
// afterwards: builds with invariants overwrite the storage.
func (b *IoBuffer) Release() {
	if checkInvariants {
		if b.released {
			panic("buffer: released twice")
		}
		b.released = true
		if !b.IsBorrowed() {
			b.poison()
		}
		outstanding.Add(-1)
	}
	if b.IsBorrowed() {
		b.store, b.head = nil, 0
		pools[classBorrowed].Put(b)
		return
	}
	b.Reset()
	if b.class < 0 || cap(b.store) != classes[b.class] {
		return // not the size of a class: left to the garbage collector
	}
	pools[b.class].Put(b)
}

// Reuse drops all bytes and keeps the storage, like Release followed by Get. It is for an owner
// that needs a buffer of that size again. Slices of the old bytes become invalid, as after Release.
func (b *IoBuffer) Reuse() {
	if checkInvariants {
		b.poison()
	}
	b.Reset()
}

// Outstanding returns how many buffers are between Get and Release. It counts only when invariants
// are on, and is 0 otherwise.
func Outstanding() int64 { return outstanding.Load() }
