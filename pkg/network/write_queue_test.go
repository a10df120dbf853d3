package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// newTestQueue returns a write queue, the peer's end of its connection, and a group for the
// goroutines of the queue.
func newTestQueue(t *testing.T) (*WriteQueue, net.Conn, *sync.WaitGroup) {
	t.Helper()
	local, peer := pair(t)
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = local.Close()
		running.Wait()
	})
	return NewWriteQueue(local, running.Go), peer, &running
}

// appendFrame appends a frame and returns the queue's error.
func appendFrame(q *WriteQueue, frame string) error {
	return q.EndFrame(append(q.BeginFrame(len(frame)), frame...))
}

func TestPendingFramesKeepOrder(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	var want bytes.Buffer
	for i := range 10_000 {
		frame := fmt.Sprintf("frame %d;", i)
		want.WriteString(frame)
		if err := appendFrame(q, frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the peer's read: %v, frames in order: %t; want nil, true", err, bytes.Equal(got, want.Bytes()))
	}
}

func TestPendingFramesUseOneWrite(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	for range 50 {
		_ = appendFrame(q, string(make([]byte, 1000)))
	}
	_ = q.Flush()
	buf := make([]byte, 1<<20)
	if n, err := peer.Read(buf); n != 50_000 || err != nil {
		t.Errorf("one read returned %d bytes, %v, want 50000", n, err)
	}
}

// TestFlushAfterYieldCombinesFrames verifies that with one processor the frames of goroutines that
// send at the same time need few writes. On a SOCK_SEQPACKET socket, one read returns one write.
func TestFlushAfterYieldCombinesFrames(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	local, peer := pairOf(t, "unixpacket", filepath.Join(t.TempDir(), "s"))
	var running, senders sync.WaitGroup
	q := NewWriteQueue(local, running.Go)
	const frames, size = 50, 100
	for range frames {
		senders.Go(func() {
			if err := appendFrame(q, string(make([]byte, size))); err != nil {
				t.Error(err)
			}
			if err := q.FlushAfterYield(); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	writes := 0
	for received := 0; received < frames*size; writes++ {
		n, err := peer.Read(make([]byte, 2*frames*size))
		if err != nil {
			t.Fatal(err)
		}
		received += n
	}
	if writes > frames/5 { // usually 1; the scheduler may interrupt a sender
		t.Errorf("%d writes for %d frames, want few", writes, frames)
	}
	_ = local.Close()
	running.Wait()
}

func TestFullSocketDoesNotBlockSenders(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	frame := string(bytes.Repeat([]byte("0123456789abcdef"), 16<<10)) // 256 KiB
	const n = 40
	for range n {
		if err := appendFrame(q, frame); err != nil {
			t.Fatal(err)
		}
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if q.Queued() < HighWatermark {
		t.Fatalf("%d bytes are queued, want at least %d", q.Queued(), HighWatermark)
	}
	capacity := make(chan struct{})
	go func() { q.AwaitCapacity(); close(capacity) }()
	got, err := io.ReadAll(io.LimitReader(peer, int64(n*len(frame))))
	if err != nil || len(got) != n*len(frame) {
		t.Fatalf("received %d bytes, %v, want %d bytes", len(got), err, n*len(frame))
	}
	for i := range n {
		if string(got[i*len(frame):(i+1)*len(frame)]) != frame {
			t.Fatalf("frame %d is corrupted", i)
		}
	}
	<-capacity
	q.Close()
	if q.Queued() != 0 {
		t.Errorf("%d bytes are queued, want 0", q.Queued())
	}
}

func TestConcurrentFramesDoNotInterleave(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	const senders, framesPerSender, size = 16, 200, 100
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			frame := bytes.Repeat([]byte{byte('a' + s)}, size)
			for range framesPerSender {
				_ = appendFrame(q, string(frame))
				_ = q.Flush()
			}
		})
	}
	got := make([]byte, senders*framesPerSender*size)
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	counts := map[byte]int{}
	for i := 0; i < len(got); i += size {
		if !bytes.Equal(got[i:i+size], bytes.Repeat(got[i:i+1], size)) {
			t.Fatalf("the frame at %d has parts of two frames", i)
		}
		counts[got[i]]++
	}
	for c, n := range counts {
		if n != framesPerSender {
			t.Errorf("%d frames of %c, want %d", n, c, framesPerSender)
		}
	}
}

func TestStalledPeerFailsQueue(t *testing.T) {
	q, _, running := newTestQueue(t)
	q.conn.SetWriteTimeout(20 * time.Millisecond)
	frame := string(make([]byte, 8<<20))
	for range 4 {
		_ = appendFrame(q, frame)
	}
	_ = q.Flush()
	q.AwaitCapacity() // returns although the queue never drains
	if err := appendFrame(q, "more"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("appendFrame = %v, want a timeout", err)
	}
	running.Wait()
	if q.Queued() != 0 {
		t.Errorf("%d bytes are queued, want 0", q.Queued())
	}
}

func TestLostConnectionRejectsFrames(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	_ = peer.(*net.TCPConn).SetLinger(0)
	_ = peer.Close()
	for {
		_ = appendFrame(q, "x")
		if err := q.Flush(); err != nil {
			if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("Flush = %v, want EPIPE or ECONNRESET", err)
			}
			break
		}
	}
	if appendFrame(q, "x") == nil {
		t.Error("appendFrame accepted a frame after the connection was lost")
	}
}

func TestFramesAfterCloseAreRejected(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	_ = appendFrame(q, "last")
	q.Close()
	if err := appendFrame(q, "more"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("appendFrame = %v, want os.ErrClosed", err)
	}
	_ = q.conn.Close()
	if got, _ := io.ReadAll(peer); string(got) != "last" {
		t.Errorf("the peer received %q, want \"last\"", got)
	}
}

func TestFailEndsAwaitCapacity(t *testing.T) {
	q, _, _ := newTestQueue(t)
	for range 40 {
		_ = appendFrame(q, string(make([]byte, 1<<20)))
	}
	_ = q.Flush()
	failure := errors.New("queue failed")
	go q.Fail(failure)
	q.AwaitCapacity()
	if err := appendFrame(q, "x"); !errors.Is(err, failure) {
		t.Errorf("appendFrame = %v, want %v", err, failure)
	}
}

func TestFailedFrameLeavesQueueUnchanged(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	conn := NewConn(a)
	defer conn.Close()
	q := NewWriteQueue(conn, func(f func()) { go f() })
	frame := func(text string) func([]byte) ([]byte, error) {
		return func(dst []byte) ([]byte, error) { return append(dst, text...), nil }
	}
	if n, err, connErr := q.AppendFrame(10, frame("before ")); n != 7 || err != nil || connErr != nil {
		t.Fatalf("AppendFrame = %d, %v, %v; want 7, nil, nil", n, err, connErr)
	}
	frameErr := errors.New("broken")
	if n, err, connErr := q.AppendFrame(10, func(dst []byte) ([]byte, error) { return append(dst, "half"...), frameErr }); n != 0 || err != frameErr || connErr != nil {
		t.Errorf("AppendFrame = %d, %v, %v; want 0 and the frame's error", n, err, connErr)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("AppendFrame recovered the panic")
			}
		}()
		_, _, _ = q.AppendFrame(10, func(dst []byte) ([]byte, error) { panic(string(append(dst, "half"...))) })
	}()
	if _, err, connErr := q.AppendFrame(10, frame("after")); err != nil || connErr != nil {
		t.Fatalf("AppendFrame after the panic = %v, %v; want no error", err, connErr)
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("before after"))
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "before after" {
		t.Errorf("sent %q, %v; want \"before after\"", got, err)
	}
	q.Fail(io.EOF)
	if _, err, connErr := q.AppendFrame(10, frame("x")); err != nil || connErr == nil {
		t.Errorf("AppendFrame on a lost connection = %v, %v; want nil and an error", err, connErr)
	}
}

func TestPartialWritesKeepPieces(t *testing.T) {
	q, peer, _ := newTestQueue(t)
	const frames, size = 400, 20_000 // far more than a socket buffers
	for i := range frames {
		if err := appendFrame(q, string(bytes.Repeat([]byte{byte(i)}, size+i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range frames {
		got := make([]byte, size+i)
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, size+i)) {
			t.Fatalf("frame %d is corrupted, %v", i, err)
		}
	}
	q.Close()
	if n := q.Queued(); n != 0 {
		t.Errorf("%d bytes are queued, want 0", n)
	}
}

// TestStalledPeerIsClosed verifies that the connection of a client that reads nothing is closed. It
// once stayed open, with all its storage.
func TestStalledPeerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, peer := net.Pipe()
		defer peer.Close()
		local := NewConn(nc)
		local.SetWriteTimeout(30 * time.Second)
		q := NewWriteQueue(local, func(f func()) { go f() })
		start := time.Now()
		if err := appendFrame(q, "a frame"); err != nil {
			t.Fatal(err)
		}
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
		if n, err := local.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Read = %d, %v; want 0, io.ErrClosedPipe", n, err)
		}
		if elapsed := time.Since(start); elapsed < 30*time.Second || elapsed > time.Minute {
			t.Errorf("closed after %v, want 30 s to 60 s: see SetWriteTimeout", elapsed)
		}
		if err := appendFrame(q, "another"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("appendFrame after the close: %v, want os.ErrDeadlineExceeded", err)
		}
	})
}
