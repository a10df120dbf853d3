package stream

import (
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
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

// Park returns the error that parks conn. The listener closes conn if it sends nothing for
// idleTimeout; 0: never.
func Park(conn *network.Conn, idleTimeout time.Duration) error {
	SetReadTimeout(conn, idleTimeout)
	return network.ErrPark
}

// Linger closes the write direction of conn. Then it reads and discards what the client still
// sends, for at most d and about limit bytes; 0: no limit. Unread bytes would make the kernel reset
// the connection before the client has read the last response.
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
