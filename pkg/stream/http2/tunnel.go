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

// tunnel is a call that has become a tunnel (RFC 9113 8.5, RFC 8441): what is read
// and written are the contents of its stream. One goroutine reads it and one writes
// it; Close is safe from any, and ends what both wait for. The call is given back
// once the tunnel is closed and neither is in it: from then on it is another's.
type tunnel struct {
	k     *call     // nobody's but of who is inside
	until time.Time // of the goroutine that reads; zero: it waits for ever

	mu     sync.Mutex
	inside int  // guarded by mu; goroutines that use k
	closed bool // guarded by mu; nobody may enter
}

func newTunnel(k *call) *tunnel {
	k.muxStream.lastLong()
	return &tunnel{k: k}
}

// enter lets its caller use k until it calls leave, unless t is closed.
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
		_ = t.k.body.Close() // it has nothing to tell
	}
}

// lastLong takes back the deadline of an exchange that is answered by a tunnel.
func (l *muxStream) lastLong() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.deadline = time.Time{}
}

// Read is protocol.Tunnel's.
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

// SetReadDeadline bounds the next reads. The goroutine that reads calls it.
func (t *tunnel) SetReadDeadline(at time.Time) { t.until = at }

// Write is protocol.Tunnel's.
func (t *tunnel) Write(p []byte) (int, error) {
	if !t.enter() {
		return 0, errClosed
	}
	defer t.leave()
	return t.k.send(p)
}

// CloseWrite is protocol.Tunnel's.
func (t *tunnel) CloseWrite() error {
	if !t.enter() {
		return errClosed
	}
	defer t.leave()
	return t.k.closeWrite()
}

// Close is protocol.Tunnel's.
func (t *tunnel) Close() error {
	if !t.enter() {
		return nil
	}
	defer t.leave()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	_ = t.k.in.Close() // it has nothing to tell
	t.k.u.mu.Lock()
	t.k.sever(errClosed)
	t.k.u.mu.Unlock()
	return nil
}

// send writes content at once.
func (l *muxStream) send(p []byte) (int, error) {
	if err := l.write(p, false); err != nil {
		return 0, err
	}
	l.wire.mu.Lock()
	l.touch(time.Now())
	l.wire.mu.Unlock()
	return len(p), l.wire.outbox.Flush()
}

// closeWrite ends what is sent.
func (l *muxStream) closeWrite() error {
	if err := l.writeEnd(nil); err != nil {
		return err
	}
	return l.wire.outbox.Flush()
}

// tunnel switches the caller's stream: bytes both ways until both directions have
// ended. If it cannot, finish closes the tunnel.
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

// wantsTunnel reports whether the caller takes an answer of 2xx for a tunnel (RFC
// 9113 8.5, RFC 8441 4), which this one is not: the upstream has answered as if it
// had not been asked to switch.
func (e *exchange) wantsTunnel() bool {
	req := &e.x.Request
	return (req.Upgrade != "" || req.Method == "CONNECT") && e.x.Response.Status/100 == 2 && e.isTunnel()
}

// isTunnel reports whether the caller asked for a tunnel.
func (e *exchange) isTunnel() bool {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	return e.stream.Tunnel()
}

// carry carries bytes between the caller and peer, on two goroutines of its own, and
// ends the exchange. A caller that has ended its direction and then goes is not read
// from any more, so that somebody has to tell.
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

// closeTunnel closes peer. A panic costs no more than that.
func (e *exchange) closeTunnel(peer protocol.Tunnel) {
	protocol.PanicIn(contained(peer.Close)).Log(e.engine.log, "closing a tunnel")
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// carry copies from src to dst until src ends: then its error is nil.
func carry(src io.Reader, dst io.Writer) (err error) {
	defer protocol.RecoverPanic(&err) // of a tunnel that a filter made
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
