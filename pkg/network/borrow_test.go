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
	q, peer, _ := newTestQueue(t)
	storage := []byte("DATA")
	for range 3 {
		_ = appendFrame(q, "before;")
		if !q.AppendBorrowed([]byte("head:"), storage) {
			t.Fatal("AppendBorrowed = false although no goroutine writes")
		}
		_ = appendFrame(q, ";after;")
	}
	want := strings.Repeat("before;head:DATA;after;", 3)
	if q.Queued() != len(want) {
		t.Errorf("%d bytes are queued, want %d", q.Queued(), len(want))
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	q.CopyBorrowed()
	copy(storage, "xxxx")
	got := make([]byte, len(want))
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestUnsentBorrowedBytesAreCopied(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	storage := []byte("DATA")
	_ = q.AppendBorrowed(nil, storage)
	q.CopyBorrowed()
	copy(storage, "xxxx")
	_ = q.Flush()
	got := make([]byte, len(storage))
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != "DATA" {
		t.Errorf("got %q, %v; want \"DATA\"", got, err)
	}
}

// TestFullSocketCopiesBorrowedBytes verifies that borrowed bytes arrive intact although the test
// changes them after CopyBorrowed, even when the socket is full.
func TestFullSocketCopiesBorrowedBytes(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	var want bytes.Buffer
	socketFull := false
	for i := 0; !socketFull; i++ {
		storage := bytes.Repeat(fmt.Appendf(nil, "%08d", i), 32<<10) // 256 KiB
		want.Write(storage)
		if !q.AppendBorrowed(nil, storage) {
			socketFull = true
			_ = appendFrame(q, string(storage))
		}
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
		q.CopyBorrowed()
		clear(storage)
		if i > 1000 {
			t.Fatal("AppendBorrowed never returned false")
		}
	}
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("read: %v; bytes equal: %v", err, bytes.Equal(got, want.Bytes()))
	}
}

func TestConcurrentAppendBorrowed(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	const senders, framesPerSender, size = 8, 300, 5000
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			storage := make([]byte, size)
			for i := range framesPerSender {
				for j := range storage {
					storage[j] = byte('a' + s)
				}
				if !q.AppendBorrowed(nil, storage) {
					_ = appendFrame(q, string(storage))
				}
				if i%3 > 0 {
					_ = q.Flush()
				}
				q.CopyBorrowed()
				clear(storage)
			}
			_ = q.Flush()
		})
	}
	got := make([]byte, senders*framesPerSender*size)
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i := 0; i < len(got); i += size {
		if !bytes.Equal(got[i:i+size], bytes.Repeat(got[i:i+1], size)) || got[i] == 0 {
			t.Fatalf("borrowed bytes are corrupted at %d", i)
		}
	}
}

func TestLostConnectionRejectsBorrow(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	_ = peer.Close()
	storage := make([]byte, 1<<20)
	for range 100 { // until writing fails
		if !q.AppendBorrowed(nil, storage) {
			break
		}
		_ = q.Flush()
		q.CopyBorrowed()
	}
	q.Fail(io.ErrClosedPipe)
	if q.AppendBorrowed(nil, storage) {
		t.Error("AppendBorrowed = true on a lost connection")
	}
	if n := q.Queued(); n != 0 {
		t.Errorf("%d bytes are queued on a lost connection, want 0", n)
	}
}

// TestCopyBorrowedDoesNotWaitForPeer verifies that CopyBorrowed returns while Flush writes to a
// peer that reads nothing.
func TestCopyBorrowedDoesNotWaitForPeer(t *testing.T) {
	for range 100 {
		q, peer, _ := newTestQueue(t)
		_ = peer.(*net.TCPConn).SetReadBuffer(maxPieceSize)
		_ = q.conn.nc.(*net.TCPConn).SetWriteBuffer(maxPieceSize)
		_ = q.AppendBorrowed(nil, make([]byte, 5000))
		for range 3 * HighWatermark / maxPieceSize {
			_ = appendFrame(q, string(make([]byte, maxPieceSize)))
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = q.Flush() })
		done := make(chan struct{})
		go func() {
			defer close(done)
			for q.idle() {
				runtime.Gosched() // CopyBorrowed must run while Flush writes
			}
			q.CopyBorrowed()
		}()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Fatal("CopyBorrowed waits for the peer")
		}
		wg.Wait()
	}
}

// idle reports whether no goroutine writes.
func (q *WriteQueue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.writing
}

// TestCopiedBytesAreCompact verifies that copies for a peer that reads nothing use at most 1.5
// times their size.
func TestCopiedBytesAreCompact(t *testing.T) {
	q, _, _ := newTestQueue(t)
	frame := make([]byte, 9+16<<10)
	const frames = 30
	for range frames {
		if !q.AppendBorrowed(nil, frame) {
			t.Fatal("AppendBorrowed = false although no goroutine writes")
		}
	}
	q.CopyBorrowed()
	size := 0
	for _, piece := range q.pieces {
		size += piece.Cap()
	}
	if limit := frames * len(frame) * 3 / 2; size > limit {
		t.Errorf("%d bytes of storage for %d queued bytes, want at most %d", size, q.Queued(), limit)
	}
	_ = q.Flush()
}

func TestAppendBorrowedNeedsPlainSocket(t *testing.T) {
	tlsConn, _ := tlsPair(t, nil)
	local, peer := net.Pipe()
	defer local.Close()
	defer peer.Close()
	for name, conn := range map[string]*Conn{"over TLS": tlsConn, "in memory": NewConn(local)} {
		q := NewWriteQueue(conn, func(func()) { t.Error("a goroutine waits for the peer") })
		if q.AppendBorrowed([]byte("head"), []byte("body")) || q.Queued() > 0 {
			t.Errorf("%s: AppendBorrowed returned true or queued bytes (%d); want false and 0 bytes", name, q.Queued())
		}
	}
}
