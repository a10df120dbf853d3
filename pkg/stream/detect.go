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
	// firstRead is the first buffer of a connection, in bytes: the engines go on
	// with it.
	firstRead = 4 << 10
	// mostPeeked is how many bytes a connection may send without showing its
	// protocol.
	mostPeeked = 4 << 10
)

// DetectOptions are what a Detector needs. Immutable.
type DetectOptions struct {
	// Candidates are the protocols that a connection may speak. The first whose Match
	// says Yes serves it, once all before it said No: how the bytes were split on
	// their way changes nothing.
	Candidates []Candidate
	// Fallback serves the connections that none of the choices claims, and gets all
	// of their bytes; nil: they are closed.
	Fallback network.Handler
	// Timeout is from a connection's first byte until it has shown its protocol;
	// 0: no limit.
	Timeout time.Duration
	// IdleTimeout is how long a connection may say nothing; 0: for ever.
	IdleTimeout time.Duration
}

// Candidate is one of several protocols.
type Candidate struct {
	Match  func(b []byte) xprotocol.MatchResult // as Protocol.Match
	Server Server
}

// Detector hands each connection to the server of the protocol that it begins
// with. It is safe for concurrent use and starts no goroutine.
type Detector struct{ o DetectOptions }

// NewDetector returns the handler of a listener that carries several protocols.
func NewDetector(o DetectOptions) *Detector { return &Detector{o} }

// IdleTimeout is network.ClientFirstHandler's: in all protocols the caller speaks first.
func (d *Detector) IdleTimeout() time.Duration { return d.o.IdleTimeout }

// ServeConn is network.Handler's. It reads no further than it must to know the
// protocol, gives the bytes back, and serves conn by the choice, which also
// serves it after it was parked. A connection that no choice claims ends with
// CauseUnknownProtocol, one that is too slow with CauseRequestTimeout.
func (d *Detector) ServeConn(ctx context.Context, conn *network.Conn) error {
	h, err := d.detect(conn)
	if h == nil {
		return err
	}
	conn.Handler = h
	return h.ServeConn(ctx, conn)
}

// detect returns who is to serve conn, which has its bytes unread again. nil: it
// is to end.
func (d *Detector) detect(conn *network.Conn) (network.Handler, error) {
	if err := conn.SetIdle(true); err != nil {
		return nil, silentEnd(conn, err)
	}
	var b *buffer.IoBuffer
	_, err := conn.Fill(&b, firstRead)
	_ = conn.SetIdle(false) // never fails
	if err != nil {
		if b != nil {
			b.Release()
		}
		return nil, silentEnd(conn, err)
	}
	h, err := d.look(conn, &b)
	if h == nil {
		b.Release()
		return nil, err
	}
	conn.SetReadDeadline(time.Time{})
	conn.Unread(b)
	return h, nil
}

// look reads until it is clear whose bytes these are.
func (d *Detector) look(conn *network.Conn, b **buffer.IoBuffer) (network.Handler, error) {
	h, sure := d.choose((*b).Bytes())
	if !sure && d.o.Timeout > 0 {
		conn.SetReadDeadline(time.Now().Add(d.o.Timeout))
	}
	var err error
	for !sure && err == nil && (*b).Len() < mostPeeked {
		if _, err = conn.Fill(b, firstRead); err == nil {
			h, sure = d.choose((*b).Bytes())
		}
	}
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case err != nil && !late && err != io.EOF:
		conn.CloseReason = network.ClosedByPeer
		return nil, err
	case h != nil:
		return h, nil
	case d.o.Fallback != nil:
		return d.o.Fallback, nil
	case late:
		conn.CloseReason = network.CauseRequestTimeout
		return nil, errSlow
	case err != nil:
		conn.CloseReason = network.ClosedByPeer
		return nil, nil //nolint:nilnil // it ended as a connection may
	}
	conn.CloseReason = network.CauseUnknownProtocol
	if bytes.HasPrefix((*b).Bytes(), []byte(http2Preface)) {
		return nil, errHTTP2
	}
	return nil, errUnknown
}

// choose returns the server for a connection that begins with b; nil for none.
// As long as it is not sure, more bytes may change that.
func (d *Detector) choose(b []byte) (h network.Handler, sure bool) {
	sure = true
	for i := range d.o.Candidates {
		switch c := &d.o.Candidates[i]; c.Match(b) {
		case xprotocol.MatchYes:
			return c.Server, sure
		case xprotocol.MatchNeedMore:
			sure = false
		case xprotocol.MatchNo:
		}
	}
	return nil, sure
}

// http2Preface is how an HTTP/2 connection begins (RFC 9113 3.4), as far as it
// takes to know it.
const http2Preface = "PRI * HTTP/2"

// What ended a connection without a protocol; for the log.
var (
	errUnknown = errors.New("the connection began with bytes of no protocol that the listener carries")
	errHTTP2   = errors.New("the connection speaks HTTP/2, which the listener does not carry")
	errSlow    = errors.New("the connection did not show its protocol in time")
)

// silentEnd notes what ended a connection that said nothing; most of it is as it
// should be.
func silentEnd(conn *network.Conn, err error) error {
	conn.CloseReason = network.CloseReasonOf(err)
	if err == io.EOF || errors.Is(err, network.ErrDraining) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
