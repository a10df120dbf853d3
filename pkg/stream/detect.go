package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

const (
	// initialReadSize is the size of a connection's first buffer, in bytes.
	initialReadSize = 4 << 10
	// maxDetectBytes is how many bytes a connection may send before its protocol is detected.
	maxDetectBytes = 4 << 10
)

// DetectOptions are the options of a Detector. Immutable.
type DetectOptions struct {
	// Candidates are the protocols that a connection may use. The first candidate whose Match
	// returns MatchYes serves the connection, once all candidates before it have returned MatchNo:
	// the result does not depend on how the network splits the bytes. If no more bytes arrive or
	// are allowed, the first MatchYes is enough.
	Candidates []Candidate
	// Fallback serves the connections that match no candidate, and receives all of their bytes;
	// nil: they are closed.
	Fallback network.Handler
	// Timeout bounds the time from a connection's first byte until its protocol is detected; 0: no
	// limit.
	Timeout time.Duration
	// IdleTimeout bounds the time until a connection sends its first byte; 0: no limit.
	IdleTimeout time.Duration
}

// Candidate is one of the protocols that a listener serves.
type Candidate struct {
	Match  func(b []byte) xprotocol.MatchResult // see Protocol.Match
	Server Server
}

// Detector passes each connection to the server of the protocol that it begins with. It is safe for
// concurrent use and starts no goroutine.
type Detector struct{ opts DetectOptions }

// NewDetector returns the handler of a listener that serves several protocols.
func NewDetector(o DetectOptions) *Detector { return &Detector{o} }

// IdleTimeout implements network.ClientFirstHandler: in all protocols the client sends first.
func (d *Detector) IdleTimeout() time.Duration { return d.opts.IdleTimeout }

// ServeConn implements network.Handler. It reads until it has detected the protocol, unreads the
// bytes, and lets the matching server serve conn, even after conn was parked. Without a Fallback, a
// connection that matches no candidate ends with ClosedUnknownProtocol, and one that is too slow
// with ClosedRequestTimeout.
func (d *Detector) ServeConn(ctx context.Context, conn *network.Conn) error {
	h, err := d.detect(conn)
	if h == nil {
		return err
	}
	conn.Handler = h
	return h.ServeConn(ctx, conn)
}

// detect returns the handler that serves conn, whose bytes it has unread, or nil if conn must be
// closed.
func (d *Detector) detect(conn *network.Conn) (network.Handler, error) {
	if err := conn.SetIdle(true); err != nil {
		return nil, SetIdleCloseReason(conn, err)
	}
	var b *buffer.IoBuffer
	_, err := conn.Fill(&b, initialReadSize)
	_ = conn.SetIdle(false) // never fails
	if err != nil {
		if b != nil {
			b.Release()
		}
		return nil, SetIdleCloseReason(conn, err)
	}
	h, err := d.readUntilDetected(conn, &b)
	if h == nil {
		b.Release()
		return nil, err
	}
	conn.SetReadDeadline(time.Time{})
	conn.Unread(b)
	return h, nil
}

// readUntilDetected reads until it has detected the protocol, and returns the handler for it, or
// nil if conn must be closed.
func (d *Detector) readUntilDetected(conn *network.Conn, b **buffer.IoBuffer) (network.Handler, error) {
	h, final := d.matchCandidates((*b).Bytes())
	if !final {
		SetReadTimeout(conn, d.opts.Timeout) // instead of the idle timeout
	}
	var err error
	for !final && err == nil && (*b).Len() < maxDetectBytes {
		if _, err = conn.Fill(b, initialReadSize); err == nil {
			h, final = d.matchCandidates((*b).Bytes())
		}
	}
	timedOut := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case err != nil && !timedOut && err != io.EOF:
		conn.CloseReason = network.ClosedByPeer
		return nil, err
	case h != nil:
		return h, nil
	case d.opts.Fallback != nil:
		return d.opts.Fallback, nil
	case timedOut:
		conn.CloseReason = network.ClosedRequestTimeout
		return nil, errDetectTimeout
	case err != nil:
		conn.CloseReason = network.ClosedByPeer
		return nil, nil //nolint:nilnil // an ordinary close is no error
	}
	conn.CloseReason = network.ClosedUnknownProtocol
	if bytes.HasPrefix((*b).Bytes(), []byte(http2Preface)) {
		return nil, errHTTP2NotServed
	}
	return nil, errUnknownProtocol
}

// matchCandidates returns the server for a connection that begins with b, or nil if none matches.
// Unless final is true, more bytes may change the result.
func (d *Detector) matchCandidates(b []byte) (h network.Handler, final bool) {
	final = true
	for i := range d.opts.Candidates {
		switch c := &d.opts.Candidates[i]; c.Match(b) {
		case xprotocol.MatchYes:
			return c.Server, final
		case xprotocol.MatchNeedMore:
			final = false
		case xprotocol.MatchNo:
		}
	}
	return nil, final
}

// http2Preface is the part of the HTTP/2 connection preface (RFC 9113 3.4) that identifies it.
const http2Preface = "PRI * HTTP/2"

// Errors, for the log, of connections whose protocol was not detected.
var (
	errUnknownProtocol = errors.New("the first bytes of the connection belong to no protocol that the listener supports")
	errHTTP2NotServed  = errors.New("the connection uses HTTP/2, which the listener does not support")
	errDetectTimeout   = errors.New("timeout before the protocol of the connection was detected")
)
