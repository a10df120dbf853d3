package http2

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// tunnel is a call that has become a tunnel (RFC 9113 8.5, RFC 8441): Read and Write transfer the
// DATA of its stream. One goroutine reads and one writes. Close is safe for concurrent use, and
// unblocks both. The call is released once the tunnel is closed and no goroutine uses it: from then
// on it may belong to another exchange.
type tunnel struct {
	k     *call     // used only between enter and leave
	until time.Time // read deadline, owned by the goroutine that reads; zero: none

	mu     sync.Mutex
	inside int  // guarded by mu; number of goroutines that use k
	closed bool // guarded by mu; no goroutine may enter
}

func newTunnel(k *call) *tunnel {
	k.muxStream.lastLong()
	return &tunnel{k: k}
}

// enter allows its caller to use k until it calls leave. It returns false if t is closed.
func (t *tunnel) enter() (open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.inside++
	return true
}

func (t *tunnel) leave() {
	t.mu.Lock()
	t.inside--
	last := t.closed && t.inside == 0
	t.mu.Unlock()
	if last {
		_ = t.k.body.Close() // the error is always nil
	}
}

// lastLong removes the deadline of a stream that becomes a tunnel.
func (l *muxStream) lastLong() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.deadline = time.Time{}
}

// Read implements protocol.Tunnel.
func (t *tunnel) Read(p []byte) (int, error) {
	if !t.enter() {
		return 0, errClosed
	}
	defer t.leave()
	if !t.until.IsZero() && !t.k.in.await(time.Until(t.until)) {
		return 0, os.ErrDeadlineExceeded
	}
	return t.k.in.Read(p)
}

// SetReadDeadline sets the deadline of later reads. The goroutine that reads calls it.
func (t *tunnel) SetReadDeadline(at time.Time) { t.until = at }

// Write implements protocol.Tunnel.
func (t *tunnel) Write(p []byte) (int, error) {
	if !t.enter() {
		return 0, errClosed
	}
	defer t.leave()
	return t.k.send(p)
}

// CloseWrite implements protocol.Tunnel.
func (t *tunnel) CloseWrite() error {
	if !t.enter() {
		return errClosed
	}
	defer t.leave()
	return t.k.closeWrite()
}

// Close implements protocol.Tunnel.
func (t *tunnel) Close() error {
	if !t.enter() {
		return nil
	}
	defer t.leave()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	_ = t.k.in.Close() // the error is always nil
	t.k.u.mu.Lock()
	t.k.sever(errClosed)
	t.k.u.mu.Unlock()
	return nil
}

// send writes p and flushes the write queue.
func (l *muxStream) send(p []byte) (int, error) {
	if err := l.write(p, false); err != nil {
		return 0, err
	}
	l.wire.mu.Lock()
	l.touch(time.Now())
	l.wire.mu.Unlock()
	return len(p), l.wire.outbox.Flush()
}

// closeWrite sends END_STREAM.
func (l *muxStream) closeWrite() error {
	if err := l.writeEnd(nil); err != nil {
		return err
	}
	return l.wire.outbox.Flush()
}

// tunnel makes the downstream stream a tunnel until both directions have ended. If that fails, the
// exchange fails, and finish closes the upstream tunnel.
func (e *exchange) tunnel() {
	err := protocol.Fault{Reason: protocol.UpstreamMalformed}
	if e.isTunnel() {
		if e.sendHead(false) == nil {
			e.lastLong()
			e.flush()
			peer := e.x.Response.TakeTunnel()
			e.engine.start(func() { e.carry(peer) })
			return
		}
		err.Reason = protocol.ReasonDownstreamDisconnect
	}
	e.failed(&err)
}

// wantsTunnel reports whether the client would interpret the response as the start of a tunnel: it
// is a 2xx response to CONNECT (RFC 9113 8.5, RFC 8441 4). The caller has checked that the response
// has no tunnel.
func (e *exchange) wantsTunnel() bool {
	req := &e.x.Request
	return (req.Upgrade != "" || req.Method == "CONNECT") && e.x.Response.Status/100 == 2 && e.isTunnel()
}

// isTunnel reports whether the client asked for a tunnel.
func (e *exchange) isTunnel() bool {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	return e.stream.Tunnel()
}

// carry relays bytes between the client and peer on two goroutines, and ends the exchange. It
// watches for a disconnect, because it no longer reads from a client that has ended its direction.
func (e *exchange) carry(peer protocol.Tunnel) {
	e.batch, e.stack = nil, true
	stop := e.OnDisconnect(func() { _ = peer.Close() }) // ends both directions
	up := make(chan error, 1)
	e.engine.start(func() {
		err := carry(&e.in, peer)
		if err == nil {
			err = contained(peer.CloseWrite)
		}
		if err != nil {
			e.closeTunnel(peer) // ends the other direction
		}
		up <- err
	})
	err := carry(peer, writerFunc(e.muxStream.send))
	if err == nil {
		err = e.closeWrite()
	}
	if err != nil {
		_ = e.in.Close() // ends the other direction
	}
	if upErr := <-up; protocol.PanicIn(upErr) != nil {
		err = upErr
	} else if err == nil && upErr != nil {
		err = protocol.NewFault(protocol.ReasonDownstreamDisconnect, upErr)
	}
	stop()
	e.closeTunnel(peer) // everything was sent, or cannot be
	if protocol.PanicIn(err) != nil || err != nil && e.wasIdle() != nil {
		e.failed(err)
		return
	}
	if err != nil {
		e.finish(syntax.Cancel)
		return
	}
	e.finish(syntax.NoError)
}

// closeTunnel closes peer. A panic is logged and has no other effect.
func (e *exchange) closeTunnel(peer protocol.Tunnel) {
	protocol.PanicIn(contained(peer.Close)).Log(e.engine.log, "closing a tunnel")
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// carry copies from src to dst. It returns nil when src ends.
func carry(src io.Reader, dst io.Writer) (err error) {
	defer protocol.RecoverPanic(&err) // from the tunnel of a filter
	piece := buffer.Get(pieceSize)
	defer piece.Release()
	for {
		n, err := src.Read(piece.Tail())
		if n > 0 {
			if _, werr := dst.Write(piece.Tail()[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
