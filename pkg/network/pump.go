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

// Stream is a peer of Pump: bytes both ways, ended one direction at a time.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// RelayCounters is how many bytes have been carried between two connections, which may be read
// while more are. The zero value is none. It serves one Pump.
type RelayCounters struct {
	Out, In atomic.Int64 // from the one that came to its peer, and back

	last atomic.Int64 // when a byte last moved, since Pump began
	idle bool         // of the goroutine that calls Pump
}

// Idle reports whether Pump has ended because no byte moved for the idle time. The goroutine
// that called Pump may call it afterwards.
func (t *RelayCounters) Idle() bool { return t.idle }

// Relay carries bytes between conn and peer until both directions have ended,
// either failed, or neither moved a byte for idle (0: for ever). The end of one
// direction is passed on and leaves the other open. It returns the bytes carried
// from conn to peer (out) and from peer to conn (in). It closes both on failure,
// over TLS without saying that it is the end, and neither otherwise.
func Relay(conn *Conn, peer Stream, idle time.Duration) (out, in int64) {
	var t RelayCounters
	t.Pump(conn, peer, idle)
	return t.Out.Load(), t.In.Load()
}

// Pump is the function Pump for a traffic that is watched. A panic of peer's fails its
// direction and, once both have ended, goes on in the goroutine that called.
func (t *RelayCounters) Pump(conn *Conn, peer Stream, idle time.Duration) {
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
		err := contain(func() error {
			if err := copyOneWay(src, dst, began, idle, &t.last, count); err != nil {
				return err
			}
			return dst.CloseWrite()
		})
		if err == nil {
			return nil
		}
		return errors.Join(err, contain(fail))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		up = turn(conn, peer, &t.Out)
	}()
	down = turn(peer, conn, &t.In)
	<-ended
	t.idle = idle > 0 && errors.Is(errors.Join(up, down), os.ErrDeadlineExceeded) && time.Since(began) >= time.Duration(t.last.Load())+idle
	var p *contained
	if errors.As(errors.Join(up, down), &p) {
		panic(p.Error())
	}
}

// contained is a panic that has become an error.
type contained struct {
	value any
	stack []byte
}

func (c *contained) Error() string { return fmt.Sprintf("%v\n%s", c.value, c.stack) }

// contain calls f, whose panic is an error.
func contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &contained{p, debug.Stack()}
		}
	}()
	return f()
}

// deadliner is a stream whose reads can be bounded.
type deadliner interface{ SetReadDeadline(t time.Time) }

// copyOneWay copies from src to dst until src ends: then its error is nil. What dst has taken
// is added to count.
func copyOneWay(src io.Reader, dst io.Writer, began time.Time, idle time.Duration, last, count *atomic.Int64) error {
	timed, _ := src.(deadliner)
	for {
		if timed != nil && idle > 0 {
			timed.SetReadDeadline(began.Add(time.Duration(last.Load()) + idle))
		}
		n, err := carryOnce(src, dst, count)
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

// carryOnce moves some bytes: within the kernel between two sockets, else what
// one read gives. A socket holds no buffer while it waits.
func carryOnce(src io.Reader, dst io.Writer, count *atomic.Int64) (int64, error) {
	if from, ok := src.(*Conn); ok {
		if to, ok := dst.(*Conn); ok {
			n, ok, readErr, writeErr := to.spliceFrom(from, spliceTurn, count)
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
		if _, err := c.Fill(&b, pumpSize); err != nil {
			return 0, err
		}
	} else {
		b = buffer.Get(pumpSize)
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
	// pumpSize is the most that is copied at a time, in bytes.
	pumpSize = 64 << 10
	// spliceTurn is after how many spliced bytes the idle time starts anew.
	spliceTurn = 1 << 20
)
