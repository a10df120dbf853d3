package http2

import (
	"errors"
	"io"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// tunnel is a call that has become a tunnel (RFC 9113 8.5, RFC 8441): what is read
// and written are the contents of its stream.
type tunnel struct{ k *call }

func newTunnel(k *call) *tunnel {
	k.lane.lastLong()
	return &tunnel{k}
}

// lastLong takes back the deadline of an exchange that is answered by a tunnel.
func (l *lane) lastLong() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.deadline = time.Time{}
}

// Read is protocol.Tunnel's.
func (t *tunnel) Read(p []byte) (int, error) { return t.k.in.Read(p) }

// Write is protocol.Tunnel's.
func (t *tunnel) Write(p []byte) (int, error) { return t.k.send(p) }

// CloseWrite is protocol.Tunnel's.
func (t *tunnel) CloseWrite() error { return t.k.closeWrite() }

// Close is protocol.Tunnel's.
func (t *tunnel) Close() error { return t.k.body.Close() }

// send writes content at once.
func (l *lane) send(p []byte) (int, error) {
	if err := l.write(p, false); err != nil {
		return 0, err
	}
	l.wire.mu.Lock()
	l.touch(time.Now())
	l.wire.mu.Unlock()
	return len(p), l.wire.outbox.Flush()
}

// closeWrite ends what is sent.
func (l *lane) closeWrite() error {
	if err := l.writeEnd(nil); err != nil {
		return err
	}
	return l.wire.outbox.Flush()
}

// tunnel switches the caller's stream: bytes both ways until both directions have
// ended.
func (e *exchange) tunnel() {
	peer := e.x.Response.Tunnel
	e.x.Response.Tunnel = nil
	err := protocol.Fault{Reason: protocol.UpstreamMalformed}
	if e.isTunnel() {
		if err := e.sendHead(false); err == nil {
			e.lastLong()
			e.flush()
			e.engine.start(func() { e.carry(peer) })
			return
		}
		err.Reason = protocol.DownstreamGone
	}
	_ = peer.Close() // nothing was sent
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
// ends the exchange.
func (e *exchange) carry(peer protocol.Tunnel) {
	e.batch, e.stack = nil, true
	up := make(chan error, 1)
	e.engine.start(func() {
		err := carry(&e.in, peer)
		if err == nil {
			err = peer.CloseWrite()
		}
		if err != nil {
			_ = peer.Close() // ends the other direction
		}
		up <- err
	})
	err := carry(peer, writerFunc(e.lane.send))
	if err == nil {
		err = e.closeWrite()
	}
	if err != nil {
		_ = e.in.Close() // ends the other direction
	}
	if upErr := <-up; err == nil && upErr != nil {
		err = protocol.NewFault(protocol.DownstreamGone, upErr)
	}
	_ = peer.Close() // everything was sent, or cannot be
	if err != nil {
		e.finish(syntax.Cancel)
		return
	}
	e.finish(syntax.NoError)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// carry copies from src to dst until src ends: then its error is nil.
func carry(src io.Reader, dst io.Writer) error {
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
