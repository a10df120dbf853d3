package network

import (
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := memoryPair(t)
		c.SetWriteTimeout(time.Second)
		start := time.Now()
		if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write = %v, want ErrDeadlineExceeded", err)
		}
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Fatalf("the write failed after %v, want 1 to 2 s", d)
		}
	})
}

func TestWriteDeadline(t *testing.T) {
	for _, test := range []struct {
		name      string
		timeout   time.Duration
		deadlines []time.Duration // set one after the other; 0: never
		want      time.Duration
	}{
		{"without a timeout", 0, []time.Duration{5 * time.Second}, 5 * time.Second},
		{"before the timeout", time.Minute, []time.Duration{5 * time.Second}, 5 * time.Second},
		{"after many timeouts", 2 * time.Second, []time.Duration{5 * time.Second}, 5 * time.Second},
		{"moved later", 2 * time.Second, []time.Duration{time.Second, 5 * time.Second}, 5 * time.Second},
		{"moved earlier", 2 * time.Second, []time.Duration{time.Minute, 5 * time.Second}, 5 * time.Second},
		{"removed", 2 * time.Second, []time.Duration{time.Second, 0}, 9 * time.Second},
		{"in the past", 2 * time.Second, []time.Duration{-time.Second}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, peer := memoryPair(t)
				c.SetWriteTimeout(test.timeout)
				start := time.Now()
				for _, d := range test.deadlines {
					deadline := time.Time{}
					if d != 0 {
						deadline = start.Add(d)
					}
					c.SetWriteDeadline(deadline)
				}
				read := make(chan struct{})
				go func() { // seven bytes, the last after 6.3 s
					defer close(read)
					for range 7 {
						<-time.After(900 * time.Millisecond)
						peer.Read(make([]byte, 1))
					}
				}()
				n, err := c.Write(make([]byte, 20))
				if d := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || d.Truncate(time.Second) != test.want {
					t.Errorf("Write = %d, %v after %v, want ErrDeadlineExceeded after %v", n, err, d, test.want)
				}
				c.Close()
				<-read
			})
		})
	}
}

func TestWriteToFullSocketEndsAtDeadline(t *testing.T) {
	c, _ := pair(t)
	c.SetWriteTimeout(time.Minute)
	p := make([]byte, 32<<20)
	written := 0
	for attempts := 0; written == 0 && attempts < 100; attempts++ { // the deadline may pass before Write begins
		c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := c.Write(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write = %d, %v; want ErrDeadlineExceeded", n, err)
		}
		written += n
	}
	if written == 0 {
		t.Error("Write = 0 before each deadline, want the bytes that the socket buffers")
	}
}

func TestStaleWriteTimerDoesNotEndWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := memoryPair(t)
		c.SetWriteTimeout(time.Second)
		read := func() { io.ReadFull(peer, make([]byte, 1)) }
		go read()
		if _, err := c.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute) // the timer fires between the writes
		time.AfterFunc(900*time.Millisecond, read)
		if _, err := c.Write([]byte("b")); err != nil {
			t.Errorf("Write after the timer of an earlier write fired = %v, want nil", err)
		}
	})
}

func TestWriteToStalledPeerTimesOut(t *testing.T) {
	c, _ := pair(t)
	c.SetWriteTimeout(20 * time.Millisecond)
	if n, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n == 64<<20 {
		t.Errorf("Write = %d, %v; want ErrDeadlineExceeded", n, err)
	}
}
