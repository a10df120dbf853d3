package stream

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

const (
	// ParkAfter is how long an idle multiplexed connection keeps its goroutine before it is parked.
	ParkAfter = 200 * time.Millisecond
	// CloseGrace is how long a client of a multiplexed connection without an exchange in flight may
	// be silent after GOAWAY before Weft closes the connection. Frames that the client sent before
	// it read the GOAWAY arrive in that time.
	CloseGrace = 500 * time.Millisecond
)

// SetReadTimeout sets the read deadline of conn to d from now; 0: none.
func SetReadTimeout(conn *network.Conn, d time.Duration) {
	deadline := time.Time{}
	if d > 0 {
		deadline = time.Now().Add(d)
	}
	conn.SetReadDeadline(deadline)
}

// ErrDrained ends a multiplexed downstream connection that has drained.
var ErrDrained = errors.New("the connection has drained")

// SilentConn is a multiplexed downstream connection whose client has sent nothing for the read
// timeout.
type SilentConn struct {
	PartialFrame bool          // the client has sent only a part of a frame
	Inflight     bool          // exchanges are in flight
	Draining     bool          // the connection drains: GOAWAY was sent, unless the protocol sends none
	FrameTimeout time.Duration // the read timeout of a partial frame
}

// Err returns why the reader must stop; nil: it reads on, because exchanges are in flight. The
// error is a Fault for a partial frame, ErrDrained, or network.ErrPark.
func (s SilentConn) Err() error {
	switch {
	case s.PartialFrame:
		return protocol.Faultf(protocol.RequestTimeout, "incomplete frame: no data for %v", s.FrameTimeout)
	case s.Inflight:
		return nil
	case s.Draining:
		return ErrDrained
	}
	return network.ErrPark
}

// CloseReasonOf returns the close reason of a multiplexed downstream connection that ended with
// err, and the error to log: nil after a drain, and if the client closed the connection between two
// frames. partialFrame says that the client has sent only a part of a frame.
func CloseReasonOf(err error, partialFrame bool) (reason network.CloseReason, logged error) {
	switch {
	case errors.Is(err, ErrDrained):
		return network.ClosedDrained, nil
	case err == io.EOF && !partialFrame:
		return network.ClosedByPeer, nil
	case protocol.PanicIn(err) != nil:
		return network.ClosedInternalError, err
	}
	switch protocol.ReasonOf(err) {
	case protocol.MalformedRequest:
		return network.ClosedProtocolError, err
	case protocol.RequestTimeout:
		return network.ClosedRequestTimeout, err
	default:
		return network.ClosedByPeer, err
	}
}

// SetIdleCloseReason sets the close reason of a connection whose read failed with err while no
// exchange used it. It returns nil for the ordinary ends: the client's close, a drain and a timeout.
func SetIdleCloseReason(conn *network.Conn, err error) error {
	conn.CloseReason = network.CloseReasonOf(err)
	if err == io.EOF || errors.Is(err, network.ErrDraining) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// Linger closes the write direction of conn. Then it reads and discards what the client still
// sends, for at most d and about limit bytes; limit 0: any number. Unread bytes would make the
// kernel reset the connection before the client has read the last response.
func Linger(conn *network.Conn, d time.Duration, limit int) {
	if conn.CloseWrite() != nil {
		return
	}
	SetReadTimeout(conn, d)
	buf := buffer.Get(16 << 10)
	defer buf.Release()
	for n := 0; limit <= 0 || n < limit; {
		m, err := conn.Read(buf.Tail())
		if err != nil {
			return
		}
		n += m
	}
}
