package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Dialer connects to upstream hosts. The zero value is ready.
type Dialer struct {
	// KeepAlive configures TCP keepalive. The zero value sends nine probes: the first after 15 s,
	// the others 15 s apart.
	KeepAlive KeepAlive

	// Source4 and Source6 are the source addresses of connections to IPv4 and IPv6 hosts; the zero
	// Addr: the system chooses. They have no effect on unix sockets.
	Source4, Source6 netip.Addr
	// Port4 and Port6 are the source ports of connections to IPv4 and IPv6 hosts, with or without a
	// source address; 0: the system chooses. They apply to TCP only.
	Port4, Port6 uint16

	// Mark is the socket mark (SO_MARK) that kernel rules match; 0: none. It needs CAP_NET_ADMIN, or
	// CAP_NET_RAW since Linux 5.17.
	Mark uint32
}

// Dial connects to address. It fails at the latest when ctx ends or at the deadline. A zero
// deadline means none. IsTimeout reports whether an error is a timeout.
func (d Dialer) Dial(ctx context.Context, network, address string, deadline time.Time) (*Conn, error) {
	nd := net.Dialer{Deadline: deadline, LocalAddr: d.sourceAddr(network, address)}
	if d.KeepAlive.Enabled {
		nd.KeepAliveConfig = d.KeepAlive.config()
	}
	if d.Mark != 0 || nd.LocalAddr != nil {
		nd.Control = func(_, _ string, raw syscall.RawConn) error {
			err := setMark(raw, d.Mark)
			if nd.LocalAddr != nil {
				err = errors.Join(err, allowPortSharing(raw, nd.LocalAddr))
			}
			return err
		}
	}
	nc, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return NewConn(nc), nil
}

// IsTimeout reports whether err is a timeout.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
