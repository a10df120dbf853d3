package stream

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
)

func TestConnTimerFiresAtEarliestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timer ConnTimer
		start := time.Now()
		fired := make(chan time.Duration, 8)
		timer.Init(func() { fired <- time.Since(start) })
		timer.Arm(time.Time{})
		timer.Arm(start.Add(2 * time.Second))
		timer.Arm(start.Add(time.Second))
		timer.Arm(start.Add(3 * time.Second))
		if got := <-fired; got != time.Second {
			t.Errorf("fired after %v, want 1s", got)
		}
		timer.Fired(false)
		timer.Arm(start) // in the past
		if got := <-fired; got != time.Second {
			t.Errorf("fired after %v, want 1s", got)
		}
		go timer.Done()
		timer.Wait()

		timer.Fired(true) // ended: Wait does not wait for this run
		timer.Arm(start.Add(5 * time.Second))
		timer.Shrink() // no effect: the timer is set
		timer.Stop()
		timer.Shrink()
		time.Sleep(10 * time.Second)
		if len(fired) > 0 {
			t.Errorf("the timer fired after %v although it was stopped", <-fired)
		}
		timer.Arm(start.Add(20 * time.Second))
		if got := <-fired; got != 20*time.Second {
			t.Errorf("fired after %v, want 20s", got)
		}
		timer.Fired(true)
		timer.Wait()
	})
}

func TestReadBuffer(t *testing.T) {
	local, peer := net.Pipe()
	conn := network.NewConn(local)
	var r ReadBuffer
	write := func(n int) { _, _ = peer.Write(make([]byte, n)) }
	waits := 0
	fill := func(n int) {
		t.Helper()
		go write(n)
		for before := r.Unflushed; r.Unflushed < before+n; {
			if r.Buf != nil {
				r.Buf.Reserve(r.Room())
			}
			if err := r.Fill(conn, func() { waits++ }); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(10)
	if !r.HasBytes() || r.Buf.Len() != 10 || waits != 1 {
		t.Errorf("%d bytes after %d waits, want 10 after 1", r.Buf.Len(), waits)
	}
	if n := r.Room(); n < MinReadSize-10 || n >= MaxReadSize {
		t.Errorf("Room() = %d after a small read, want about MinReadSize", n)
	}
	fill(MaxReadSize)
	if n := r.Room() + r.Buf.Len(); n < MaxReadSize {
		t.Errorf("Room() + Buf.Len() = %d after a read that filled the buffer, want at least %d", n, MaxReadSize)
	}
	r.Buf.Discard(r.Buf.Len())
	r.ReleaseEmpty()
	if r.Buf != nil || r.HasBytes() {
		t.Error("ReleaseEmpty kept an empty buffer")
	}
	_ = peer.Close()
	if err := r.Fill(conn, func() {}); err != io.EOF || r.Buf != nil {
		t.Errorf("Fill() at EOF = %v, buffer kept: %t; want io.EOF, false", err, r.Buf != nil)
	}
	_ = conn.Close()
}

// halfCloser is a pipe with CloseWrite.
type halfCloser struct{ net.Conn }

func (halfCloser) CloseWrite() error { return nil }

func TestLingerDiscards(t *testing.T) {
	for _, tt := range []struct {
		name        string
		limit, sent int
		want        time.Duration
	}{
		{"until the timeout", 0, 1 << 20, time.Second},
		{"up to the limit", 32 << 10, 1 << 20, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, peer := net.Pipe()
				conn := network.NewConn(halfCloser{local})
				start := time.Now()
				go func() { _, _ = peer.Write(make([]byte, tt.sent)) }()
				Linger(conn, time.Second, tt.limit)
				if got := time.Since(start); got != tt.want {
					t.Errorf("Linger returned after %v, want %v", got, tt.want)
				}
				_ = conn.Close()
				_ = peer.Close()
			})
		})
	}
}

func TestPanicEndsOnlyTheGoroutine(t *testing.T) {
	var log strings.Builder
	g := Goroutines{Log: slog.New(slog.NewTextHandler(&log, nil))}
	g.Start(func() { panic("injected") })
	g.Wait()
	if !strings.Contains(log.String(), "injected") || !strings.Contains(log.String(), "serving a connection") {
		t.Errorf("logged %q, want the panic", log.String())
	}
}

func TestWriteBatch(t *testing.T) {
	local, peer := net.Pipe()
	conn := network.NewConn(local)
	q := network.NewWriteQueue(conn, func(f func()) { go f() })
	var b WriteBatch
	for range 2 {
		if err := q.EndFrame(append(q.BeginFrame(1), 'x')); err != nil {
			t.Fatal(err)
		}
		b.Add(q)
	}
	if n := len(b.Queues()); n != 1 {
		t.Errorf("the batch has %d queues, want 1", n)
	}
	go b.Flush()
	got := make([]byte, 8)
	if n, _ := peer.Read(got); string(got[:n]) != "xx" {
		t.Errorf("read %q, want both frames in one write", got[:n])
	}
	_ = conn.Close()
	_ = peer.Close()
}
