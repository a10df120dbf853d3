package network

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// Dialer connects to upstream hosts. The zero value is ready.
type Dialer struct {
	// KeepAlive is the TCP keep-alive idle time; 0: the runtime's 15 s.
	KeepAlive time.Duration

	// Mark is what rules of the kernel know the socket by (SO_MARK); 0: none. It needs
	// CAP_NET_ADMIN.
	Mark uint32
}

// Dial connects before the deadline (zero: ctx alone bounds it). IsTimeout
// tells a deadline that passed from a refusal.
func (d Dialer) Dial(ctx context.Context, network, address string, deadline time.Time) (*Conn, error) {
	nd := net.Dialer{Deadline: deadline, KeepAlive: d.KeepAlive}
	if d.Mark != 0 {
		nd.Control = func(_, _ string, raw syscall.RawConn) error { return mark(raw, d.Mark) }
	}
	nc, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return NewConn(nc), nil
}

// IsTimeout reports whether err means that time ran out.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
