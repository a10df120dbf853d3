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
// DATA of its stream. One goroutine reads and one writes. Close is safe for concurrent use. It
// unblocks a Read, and a Write that waits for the window. The call is released once the tunnel is
// closed and no goroutine uses it: from then on it may belong to another exchange.
type tunnel struct {
	call         *call     // used only between acquire and release
	readDeadline time.Time // read deadline, owned by the goroutine that reads; zero: none

	mu     sync.Mutex
	users  int  // guarded by mu; number of goroutines that use call
	closed bool // guarded by mu; acquire fails
}

func newTunnel(c *call) *tunnel {
	c.muxStream.clearDeadline()
	return &tunnel{call: c}
}

// acquire allows its caller to use t.call until it calls release. It returns false if t is closed.
func (t *tunnel) acquire() (open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.users++
	return true
}

func (t *tunnel) release() {
	t.mu.Lock()
	t.users--
	last := t.closed && t.users == 0
	t.mu.Unlock()
	if last {
		_ = t.call.body.Close() // the error is always nil
	}
}

// clearDeadline removes the deadline of a stream that becomes a tunnel.
func (ms *muxStream) clearDeadline() {
	ms.conn.mu.Lock()
	defer ms.conn.mu.Unlock()
	ms.deadline = time.Time{}
}

// Read implements protocol.Tunnel.
func (t *tunnel) Read(p []byte) (int, error) {
	if !t.acquire() {
		return 0, errClosed
	}
	defer t.release()
	if !t.readDeadline.IsZero() && !t.call.in.awaitReadable(time.Until(t.readDeadline)) {
		return 0, os.ErrDeadlineExceeded
	}
	return t.call.in.Read(p)
}

// SetReadDeadline sets the deadline of later reads. The goroutine that reads calls it.
func (t *tunnel) SetReadDeadline(at time.Time) { t.readDeadline = at }

// Write implements protocol.Tunnel.
func (t *tunnel) Write(p []byte) (int, error) {
	if !t.acquire() {
		return 0, errClosed
	}
	defer t.release()
	return t.call.writeAndFlush(p)
}

// CloseWrite implements protocol.Tunnel.
func (t *tunnel) CloseWrite() error {
	if !t.acquire() {
		return errClosed
	}
	defer t.release()
	return t.call.closeWrite()
}

// Close implements protocol.Tunnel.
func (t *tunnel) Close() error {
	if !t.acquire() {
		return nil
	}
	defer t.release()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	_ = t.call.in.Close() // the error is always nil
	t.call.upstream.mu.Lock()
	t.call.failSends(errClosed)
	t.call.upstream.mu.Unlock()
	return nil
}

// writeAndFlush writes p and flushes the write queue.
func (ms *muxStream) writeAndFlush(p []byte) (int, error) {
	if err := ms.write(p, false); err != nil {
		return 0, err
	}
	ms.conn.mu.Lock()
	ms.touch(time.Now())
	ms.conn.mu.Unlock()
	return len(p), ms.conn.writeQueue.Flush()
}

// closeWrite sends END_STREAM.
func (ms *muxStream) closeWrite() error {
	if err := ms.writeEnd(nil); err != nil {
		return err
	}
	return ms.conn.writeQueue.Flush()
}

// startTunnel makes the downstream stream a tunnel until both directions have ended. If that fails,
// the exchange fails, and finish closes the upstream tunnel.
func (e *exchange) startTunnel() {
	fault := protocol.Fault{Reason: protocol.UpstreamMalformed}
	if e.requestedTunnel() {
		if e.sendHead(false) == nil {
			e.clearDeadline()
			e.flush()
			peer := e.x.Response.TakeTunnel()
			e.engine.goroutines.Start(func() { e.relayTunnel(peer) })
			return
		}
		fault.Reason = protocol.ReasonDownstreamDisconnect
	}
	e.failResponse(&fault)
}

// wantsTunnel reports whether the client would interpret the response as the start of a tunnel: it
// is a 2xx response to CONNECT (RFC 9113 8.5, RFC 8441 4). The caller has checked that the response
// has no tunnel.
func (e *exchange) wantsTunnel() bool {
	req := &e.x.Request
	return (req.Upgrade != "" || req.Method == "CONNECT") && e.x.Response.Status/100 == 2 && e.requestedTunnel()
}

// requestedTunnel reports whether the client asked for a tunnel.
func (e *exchange) requestedTunnel() bool {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	return e.stream.IsConnect()
}

// relayTunnel relays bytes between the client and peer on two goroutines, and ends the exchange. It
// watches for a disconnect, because it no longer reads from a client that has ended its direction.
func (e *exchange) relayTunnel(peer protocol.Tunnel) {
	e.batch, e.ownsGoroutine = nil, true
	stop := e.OnDisconnect(func() { _ = peer.Close() }) // ends both directions
	uploadDone := make(chan error, 1)
	e.engine.goroutines.Start(func() {
		err := relay(&e.in, peer)
		if err == nil {
			err = callRecovered(peer.CloseWrite)
		}
		if err != nil {
			e.closeTunnel(peer) // ends the other direction
		}
		uploadDone <- err
	})
	err := relay(peer, writerFunc(e.muxStream.writeAndFlush))
	if err == nil {
		err = e.closeWrite()
	}
	if err != nil {
		_ = e.in.Close() // ends the other direction
	}
	if uploadErr := <-uploadDone; protocol.PanicIn(uploadErr) != nil {
		err = uploadErr
	} else if err == nil && uploadErr != nil {
		err = protocol.NewFault(protocol.ReasonDownstreamDisconnect, uploadErr)
	}
	stop()
	e.closeTunnel(peer) // everything was sent, or cannot be
	if protocol.PanicIn(err) != nil || err != nil && e.idleErr() != nil {
		e.failResponse(err)
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
	protocol.PanicIn(callRecovered(peer.Close)).Log(e.engine.goroutines.Log, "closing a tunnel")
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// relay copies from src to dst. It returns nil when src ends.
func relay(src io.Reader, dst io.Writer) (err error) {
	defer protocol.RecoverPanic(&err) // from the tunnel of a filter
	buf := buffer.Get(bodyReadSize)
	defer buf.Release()
	for {
		n, err := src.Read(buf.Tail())
		if n > 0 {
			if _, werr := dst.Write(buf.Tail()[:n]); werr != nil {
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
