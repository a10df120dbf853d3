package network

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestBorrowedBytesKeepOrder(t *testing.T) {
	o, far, _ := newTestQueue(t)
	storage := []byte("LENT")
	for range 3 {
		_ = appendFrame(o, "before;")
		if !o.AppendBorrowed([]byte("head:"), storage) {
			t.Fatal("AppendBorrowed = false although no goroutine writes")
		}
		_ = appendFrame(o, ";behind;")
	}
	want := strings.Repeat("before;head:LENT;behind;", 3)
	if o.Queued() != len(want) {
		t.Errorf("%d bytes are queued, want %d", o.Queued(), len(want))
	}
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	o.CopyBorrowed()
	copy(storage, "gone")
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestUnsentBorrowedBytesAreCopied(t *testing.T) {
	o, far, _ := newTestQueue(t)
	storage := []byte("LENT")
	_ = o.AppendBorrowed(nil, storage)
	o.CopyBorrowed()
	copy(storage, "gone")
	_ = o.Flush()
	got := make([]byte, len(storage))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "LENT" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestFullSocketCopiesBorrowedBytes verifies that borrowed bytes arrive intact although the test
// changes them after CopyBorrowed, even when the socket is full.
func TestFullSocketCopiesBorrowedBytes(t *testing.T) {
	o, far, _ := newTestQueue(t)
	var want bytes.Buffer
	refused := false
	for i := 0; !refused; i++ {
		storage := bytes.Repeat(fmt.Appendf(nil, "%08d", i), 32<<10) // 256 KiB
		want.Write(storage)
		if !o.AppendBorrowed(nil, storage) {
			refused = true
			_ = appendFrame(o, string(storage))
		}
		if err := o.Flush(); err != nil {
			t.Fatal(err)
		}
		o.CopyBorrowed()
		clear(storage)
		if i > 1000 {
			t.Fatal("AppendBorrowed never returned false")
		}
	}
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%v; equal: %v", err, bytes.Equal(got, want.Bytes()))
	}
}

func TestConcurrentAppendBorrowed(t *testing.T) {
	o, far, _ := newTestQueue(t)
	const senders, each, size = 8, 300, 5000
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			storage := make([]byte, size)
			for i := range each {
				for j := range storage {
					storage[j] = byte('a' + s)
				}
				if !o.AppendBorrowed(nil, storage) {
					_ = appendFrame(o, string(storage))
				}
				if i%3 > 0 {
					_ = o.Flush()
				}
				o.CopyBorrowed()
				clear(storage)
			}
			_ = o.Flush()
		})
	}
	got := make([]byte, senders*each*size)
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for i := 0; i < len(got); i += size {
		if !bytes.Equal(got[i:i+size], bytes.Repeat(got[i:i+1], size)) || got[i] == 0 {
			t.Fatalf("borrowed bytes are damaged at %d", i)
		}
	}
}

func TestLostConnectionRejectsBorrow(t *testing.T) {
	o, far, _ := newTestQueue(t)
	_ = far.Close()
	storage := make([]byte, 1<<20)
	for range 100 { // until writing fails
		if !o.AppendBorrowed(nil, storage) {
			break
		}
		_ = o.Flush()
		o.CopyBorrowed()
	}
	o.Fail(io.ErrClosedPipe)
	if o.AppendBorrowed(nil, storage) {
		t.Error("AppendBorrowed = true on a lost connection")
	}
	if n := o.Queued(); n != 0 {
		t.Errorf("%d bytes are queued on a lost connection", n)
	}
}

// TestCopyBorrowedDoesNotWaitForPeer verifies that CopyBorrowed returns while Flush writes to a
// peer that reads nothing.
func TestCopyBorrowedDoesNotWaitForPeer(t *testing.T) {
	for range 100 {
		o, far, _ := newTestQueue(t)
		_ = far.(*net.TCPConn).SetReadBuffer(maxPieceSize)
		_ = o.conn.nc.(*net.TCPConn).SetWriteBuffer(maxPieceSize)
		_ = o.AppendBorrowed(nil, make([]byte, 5000))
		for range 3 * HighWatermark / maxPieceSize {
			_ = appendFrame(o, string(make([]byte, maxPieceSize)))
		}
		var all sync.WaitGroup
		all.Go(func() { _ = o.Flush() })
		owned := make(chan struct{})
		go func() {
			defer close(owned)
			for o.idle() {
				runtime.Gosched() // CopyBorrowed must run while Flush writes
			}
			o.CopyBorrowed()
		}()
		select {
		case <-owned:
		case <-time.After(5 * time.Second):
			t.Fatal("CopyBorrowed waits for the peer")
		}
		all.Wait()
	}
}

// idle reports whether no goroutine writes.
func (o *WriteQueue) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.writing
}

// TestCopiedBytesAreGathered verifies that copies for a peer that reads nothing use at most 1.5
// times their size.
func TestCopiedBytesAreGathered(t *testing.T) {
	o, _, _ := newTestQueue(t)
	frame := make([]byte, 9+16<<10)
	const frames = 30
	for range frames {
		if !o.AppendBorrowed(nil, frame) {
			t.Fatal("AppendBorrowed = false although no goroutine writes")
		}
	}
	o.CopyBorrowed()
	held := 0
	for _, piece := range o.pieces {
		held += piece.Cap()
	}
	if most := frames * len(frame) * 3 / 2; held > most {
		t.Errorf("%d bytes of storage for %d queued bytes, want at most %d", held, o.Queued(), most)
	}
	_ = o.Flush()
}

func TestAppendBorrowedNeedsPlainSocket(t *testing.T) {
	encrypted, _ := tlsPair(t, nil)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for name, conn := range map[string]*Conn{"over TLS": encrypted, "in memory": NewConn(near)} {
		o := NewWriteQueue(conn, func(func()) { t.Error("a goroutine waits for the peer") })
		if o.AppendBorrowed([]byte("head"), []byte("content")) || o.Queued() > 0 {
			t.Errorf("%s: AppendBorrowed added bytes or returned true; %d bytes are queued", name, o.Queued())
		}
	}
}
