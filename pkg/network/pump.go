package network

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// Stream is a peer of Pump: bytes both ways, ended one direction at a time.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Pump carries bytes between conn and peer until both directions have ended,
// either failed, or neither moved a byte for idle (0: for ever). The end of one
// direction is passed on and leaves the other open. It returns the bytes carried
// from conn to peer (out) and from peer to conn (in). It closes both on failure,
// over TLS without saying that it is the end, and neither otherwise.
func Pump(conn *Conn, peer Stream, idle time.Duration) (out, in int64) {
	var last atomic.Int64 // when a byte last moved, on the monotonic clock
	began := time.Now()
	ends := make(chan int64, 1)
	fail := func() {
		_ = conn.sever() // makes the other direction end too
		if c, ok := peer.(*Conn); ok {
			_ = c.sever()
			return
		}
		_ = peer.Close()
	}
	go func() {
		n, err := carry(conn, peer, began, idle, &last)
		if err != nil {
			fail()
		} else if peer.CloseWrite() != nil {
			fail()
		}
		ends <- n
	}()
	in, err := carry(peer, conn, began, idle, &last)
	if err != nil || conn.CloseWrite() != nil {
		fail()
	}
	return <-ends, in
}

// deadliner is a stream whose reads can be bounded.
type deadliner interface{ SetReadDeadline(t time.Time) }

// carry copies from src to dst until src ends: then its error is nil.
func carry(src io.Reader, dst io.Writer, began time.Time, idle time.Duration, last *atomic.Int64) (int64, error) {
	timed, _ := src.(deadliner)
	total := int64(0)
	for {
		if timed != nil && idle > 0 {
			timed.SetReadDeadline(began.Add(time.Duration(last.Load()) + idle))
		}
		n, err := carryOnce(src, dst)
		total += n
		if n > 0 {
			last.Store(int64(time.Since(began)))
		}
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) < time.Duration(last.Load())+idle:
			// the other direction has moved meanwhile
		default:
			return total, err
		}
	}
}

// carryOnce moves some bytes: within the kernel between two sockets, else what
// one read gives. A socket holds no buffer while it waits.
func carryOnce(src io.Reader, dst io.Writer) (int64, error) {
	if from, ok := src.(*Conn); ok {
		if to, ok := dst.(*Conn); ok {
			n, ok, readErr, writeErr := to.SpliceFrom(from, spliceTurn)
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
	return int64(n), err
}

const (
	// pumpSize is the most that is copied at a time, in bytes.
	pumpSize = 64 << 10
	// spliceTurn is after how many spliced bytes the idle time starts anew.
	spliceTurn = 1 << 20
)
