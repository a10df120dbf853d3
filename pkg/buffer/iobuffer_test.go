package buffer

import (
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
)

func TestBytesKeepOrder(t *testing.T) {
	b := Get(1)
	defer b.Release()
	b.WriteString("one ")
	b.Write([]byte("two "))
	b.SetStorage(append(b.Storage(), "three "...))
	b.Extend(copy(b.Tail(), "four"))
	p := make([]byte, 6)
	if n, err := b.Read(p); n != 6 || err != nil || string(p) != "one tw" {
		t.Fatalf("Read = %d, %v, %q; want 6, nil, \"one tw\"", n, err, p)
	}
	b.Discard(2)
	if got := string(b.Bytes()); got != "three four" || b.Len() != len(got) {
		t.Errorf("Bytes = %q, Len = %d; want \"three four\", 10", got, b.Len())
	}
	b.Undiscard(2)
	if got := string(b.Bytes()); got != "o three four" {
		t.Errorf("after Undiscard: %q, want \"o three four\"", got)
	}
	b.Reset()
	if _, err := b.Read(p); err != io.EOF || b.Len() != 0 {
		t.Errorf("Read of nothing = %v with %d bytes, want EOF", err, b.Len())
	}
}

func TestGetSize(t *testing.T) {
	for _, test := range []struct{ size, storage int }{
		{0, 512}, {512, 512}, {513, 1 << 10}, {1025, 1408}, {1409, 2 << 10}, {2049, 4 << 10}, {4 << 10, 4 << 10}, {4<<10 + 1, 16 << 10}, {64 << 10, 64 << 10}, {64<<10 + 1, 64<<10 + 1},
	} {
		b := Get(test.size)
		if b.Cap() != test.storage || b.Len() != 0 {
			t.Errorf("Get(%d) has %d bytes of storage and %d in it, want %d and none", test.size, b.Cap(), b.Len(), test.storage)
		}
		b.Release()
	}
}

func TestReserveKeepsUnreadBytes(t *testing.T) {
	for _, test := range []struct {
		name                string
		fill, consume, room int
		storage             int
	}{
		{"enough space", 1000, 0, 3000, 4 << 10},
		{"space of consumed bytes", 4 << 10, 1000, 1000, 4 << 10},
		{"larger class", 4 << 10, 1000, 1001, 16 << 10},
		{"larger than every class", 4 << 10, 0, 64 << 10, 68 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := Get(1)
			defer b.Release()
			b.WriteString(strings.Repeat("-", test.consume) + strings.Repeat("x", test.fill-test.consume))
			b.Discard(test.consume)
			b.Reserve(test.room)
			if got := len(b.Tail()); got < test.room || b.Cap() != test.storage {
				t.Errorf("Reserve(%d) left %d of %d bytes free, want a storage of %d", test.room, got, b.Cap(), test.storage)
			}
			if want := strings.Repeat("x", test.fill-test.consume); string(b.Bytes()) != want {
				t.Errorf("%d unread bytes are not the %d that were there", b.Len(), len(want))
			}
		})
	}
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(b *IoBuffer){
		"Discard past the end":       func(b *IoBuffer) { b.Discard(1) },
		"Undiscard before the start": func(b *IoBuffer) { b.Undiscard(1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(new(IoBuffer))
		})
	}
}

func TestInvariantsPoisonReleasedBuffers(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("invariants are off")
	}
	before := Outstanding()
	b := Get(10)
	b.WriteString("secret")
	view := b.Bytes()
	if got := Outstanding() - before; got != 1 {
		t.Errorf("%d more buffers are outstanding after Get, want 1", got)
	}
	b.Release()
	if string(view) == "secret" {
		t.Error("the bytes were not poisoned")
	}
	if got := Outstanding() - before; got != 0 {
		t.Errorf("%d more buffers are outstanding after Release, want 0", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("the second Release did not panic")
		}
	}()
	b.Release()
}

func TestGetAndReleaseDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector empties pools at random")
	}
	Get(1).Release()
	if n := testing.AllocsPerRun(1000, func() {
		b := Get(1)
		b.WriteString("content")
		b.Release()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestReuseIsReleaseForTheSameOwner(t *testing.T) {
	b := Get(100)
	defer b.Release()
	before := Outstanding()
	_, _ = b.WriteString("of one message")
	b.Discard(3)
	stale := b.Bytes()
	b.Reuse()
	if b.Len() != 0 || b.Cap() < 100 || Outstanding() != before {
		t.Errorf("after Reuse: Len = %d, Cap = %d, Outstanding = %d; want 0, at least 100, %d", b.Len(), b.Cap(), Outstanding(), before)
	}
	if invariants.Enabled && string(stale) == "one message"[:len(stale)] {
		t.Error("the old bytes can still be read")
	}
	_, _ = b.WriteString("the next")
	if got := string(b.Bytes()); got != "the next" {
		t.Errorf("Bytes = %q after Reuse, want \"the next\"", got)
	}
}

func TestBorrowedStorageIsNotPooled(t *testing.T) {
	storage := []byte("0123456789")
	before := Outstanding()
	b := Borrow(storage[:5])
	b.Discard(2)
	if got := string(b.Bytes()); got != "234" || !b.IsBorrowed() || len(b.Tail()) > 0 {
		t.Errorf("Bytes = %q, IsBorrowed = %v, Tail has %d bytes; want \"234\", true, 0", got, b.IsBorrowed(), len(b.Tail()))
	}
	b.Release()
	if string(storage) != "0123456789" || Outstanding() != before {
		t.Errorf("after Release: storage %q, %d more buffers are outstanding; want \"0123456789\", 0", storage, Outstanding()-before)
	}
	again := Get(len(storage))
	defer again.Release()
	if again.IsBorrowed() || again.Cap() < len(storage) {
		t.Errorf("Get after Release: IsBorrowed = %v, Cap = %d; want false, at least %d", again.IsBorrowed(), again.Cap(), len(storage))
	}
}
