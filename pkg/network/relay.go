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

// Stream is one side of Relay: a byte stream in both directions, each of which ends separately.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// RelayCounters counts the bytes that Relay copies between two connections. Other goroutines may
// read Out and In during the call. The zero value is ready. Each value serves one call of Relay.
type RelayCounters struct {
	Out, In atomic.Int64 // bytes from conn to peer, and from peer to conn

	lastMoved atomic.Int64 // when a byte last moved, in nanoseconds since Relay began
	idle      bool         // owned by the goroutine that calls Relay
}

// Idle reports whether Relay has ended because no byte moved for the idle time. The goroutine that
// called Relay may call it afterwards.
func (c *RelayCounters) Idle() bool { return c.idle }

// Relay copies bytes between conn and peer until both directions have ended, one has failed, or
// neither has moved a byte for idleTimeout (0: forever). It forwards the end of one direction and
// leaves the other direction open. It returns the bytes copied from conn to peer (out) and from
// peer to conn (in). After a failure or the idle timeout, Relay closes conn and peer, over TLS
// without close_notify; otherwise it closes neither.
func Relay(conn *Conn, peer Stream, idleTimeout time.Duration) (out, in int64) {
	var c RelayCounters
	c.Relay(conn, peer, idleTimeout)
	return c.Out.Load(), c.In.Load()
}

// Relay does what the function Relay does, and updates c meanwhile. A panic of peer fails the
// direction in which it occurs; once both directions have ended, Relay panics in the goroutine that
// called it.
func (c *RelayCounters) Relay(conn *Conn, peer Stream, idleTimeout time.Duration) {
	start := time.Now()
	var outErr, inErr error
	fail := func() error {
		_ = conn.closeWithoutNotify() // makes the other direction end too
		if peerConn, ok := peer.(*Conn); ok {
			return peerConn.closeWithoutNotify()
		}
		return peer.Close()
	}
	copyDirection := func(src io.Reader, dst Stream, count *atomic.Int64) error {
		err := recoverPanic(func() error {
			if err := copyOneWay(src, dst, start, idleTimeout, &c.lastMoved, count); err != nil {
				return err
			}
			return dst.CloseWrite()
		})
		if err == nil {
			return nil
		}
		return errors.Join(err, recoverPanic(fail))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		outErr = copyDirection(conn, peer, &c.Out)
	}()
	inErr = copyDirection(peer, conn, &c.In)
	<-done
	c.idle = idleTimeout > 0 && errors.Is(errors.Join(outErr, inErr), os.ErrDeadlineExceeded) && time.Since(start) >= time.Duration(c.lastMoved.Load())+idleTimeout
	var p *panicError
	if errors.As(errors.Join(outErr, inErr), &p) {
		panic(p.Error())
	}
}

// panicError is a recovered panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("%v\n%s", e.value, e.stack) }

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

// copyOneWay copies from src to dst and returns nil when src ends. It adds the bytes that dst has
// taken to count.
func copyOneWay(src io.Reader, dst io.Writer, start time.Time, idleTimeout time.Duration, lastMoved, count *atomic.Int64) error {
	withDeadline, _ := src.(deadliner)
	for {
		if withDeadline != nil && idleTimeout > 0 {
			withDeadline.SetReadDeadline(start.Add(time.Duration(lastMoved.Load()) + idleTimeout))
		}
		n, err := copyOnce(src, dst, count)
		if n > 0 {
			lastMoved.Store(int64(time.Since(start)))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(start) < time.Duration(lastMoved.Load())+idleTimeout:
			// the other direction has moved bytes meanwhile
		default:
			return err
		}
	}
}

// copyOnce copies some bytes: within the kernel between two plain sockets, and otherwise the bytes
// of one read. While a Conn waits for bytes, it holds no buffer.
func copyOnce(src io.Reader, dst io.Writer, count *atomic.Int64) (int64, error) {
	if srcConn, ok := src.(*Conn); ok {
		if dstConn, ok := dst.(*Conn); ok {
			n, ok, readErr, writeErr := spliceCounted(dstConn, srcConn, maxSpliceRound, count)
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
	// relayBufferSize is the maximum number of bytes that one copy moves through a buffer.
	relayBufferSize = 64 << 10
	// maxSpliceRound is the maximum number of bytes that one copy splices. The idle time starts
	// again after each copy.
	maxSpliceRound = 1 << 20
)
