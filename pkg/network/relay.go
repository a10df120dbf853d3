package network

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// Stream is one side of Relay: a byte stream in both directions, each of which ends
// separately.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// RelayCounters counts the bytes that were copied between two connections. Other goroutines
// may read Out and In meanwhile. The zero value is ready. Each value serves one Relay.
type RelayCounters struct {
	Out, In atomic.Int64 // bytes from conn to its peer, and back

	last atomic.Int64 // when a byte last moved, since Relay began
	idle bool         // owned by the goroutine that calls Relay
}

// Idle reports whether Relay has ended because no byte moved for the idle time. The goroutine
// that called Relay may call it afterwards.
func (t *RelayCounters) Idle() bool { return t.idle }

// Relay copies bytes between conn and peer until both directions have ended, either failed,
// or neither moved a byte for idle (0: forever). It passes on the end of one direction and
// leaves the other open. It returns the bytes copied from conn to peer (out) and from peer
// to conn (in). On failure it closes both, over TLS without close_notify; otherwise it
// closes neither.
func Relay(conn *Conn, peer Stream, idle time.Duration) (out, in int64) {
	var t RelayCounters
	t.Relay(conn, peer, idle)
	return t.Out.Load(), t.In.Load()
}

// Relay is Relay with counters that other goroutines can read. A panic of peer fails its
// direction; once both directions have ended, Relay panics in the goroutine that called it.
func (t *RelayCounters) Relay(conn *Conn, peer Stream, idle time.Duration) {
	began := time.Now()
	var up, down error
	fail := func() error {
		_ = conn.closeWithoutNotify() // makes the other direction end too
		if c, ok := peer.(*Conn); ok {
			return c.closeWithoutNotify()
		}
		return peer.Close()
	}
	turn := func(src io.Reader, dst Stream, count *atomic.Int64) error {
		err := recoverPanic(func() error {
			if err := copyOneWay(src, dst, began, idle, &t.last, count); err != nil {
				return err
			}
			return dst.CloseWrite()
		})
		if err == nil {
			return nil
		}
		return errors.Join(err, recoverPanic(fail))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		up = turn(conn, peer, &t.Out)
	}()
	down = turn(peer, conn, &t.In)
	<-ended
	t.idle = idle > 0 && errors.Is(errors.Join(up, down), os.ErrDeadlineExceeded) && time.Since(began) >= time.Duration(t.last.Load())+idle
	var p *panicError
	if errors.As(errors.Join(up, down), &p) {
		panic(p.Error())
	}
}

// panicError is a panic that has become an error.
type panicError struct {
	value any
	stack []byte
}

func (c *panicError) Error() string { return fmt.Sprintf("%v\n%s", c.value, c.stack) }

// recoverPanic calls f and returns a panic of f as an error.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	return f()
}

// deadliner is a stream with a read deadline.
type deadliner interface{ SetReadDeadline(t time.Time) }

// copyOneWay copies from src to dst and returns nil when src ends. It adds the bytes that
// dst has taken to count.
func copyOneWay(src io.Reader, dst io.Writer, began time.Time, idle time.Duration, last, count *atomic.Int64) error {
	timed, _ := src.(deadliner)
	for {
		if timed != nil && idle > 0 {
			timed.SetReadDeadline(began.Add(time.Duration(last.Load()) + idle))
		}
		n, err := copyOnce(src, dst, count)
		if n > 0 {
			last.Store(int64(time.Since(began)))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) < time.Duration(last.Load())+idle:
			// the other direction has moved meanwhile
		default:
			return err
		}
	}
}

// copyOnce copies some bytes: within the kernel between two sockets, and else the bytes of
// one read. A socket holds no buffer while it waits.
func copyOnce(src io.Reader, dst io.Writer, count *atomic.Int64) (int64, error) {
	if from, ok := src.(*Conn); ok {
		if to, ok := dst.(*Conn); ok {
			n, ok, readErr, writeErr := spliceCounted(to, from, maxSpliceRound, count)
			if ok {
				return n, errors.Join(readErr, writeErr)
			}
		}
	}
	var b *buffer.IoBuffer
	defer func() {
		if b != nil {
			b.Release()
		}
	}()
	if c, ok := src.(*Conn); ok {
		if _, err := c.Fill(&b, relayBufferSize); err != nil {
			return 0, err
		}
	} else {
		b = buffer.Get(relayBufferSize)
		n, err := src.Read(b.Tail())
		b.Extend(n)
		if n == 0 && err != nil {
			return 0, err
		}
	}
	n, err := dst.Write(b.Bytes())
	count.Add(int64(n))
	return int64(n), err
}

const (
	// relayBufferSize is how much is copied at a time at most, in bytes.
	relayBufferSize = 64 << 10
	// maxSpliceRound is the number of spliced bytes after which the idle time starts again.
	maxSpliceRound = 1 << 20
)
