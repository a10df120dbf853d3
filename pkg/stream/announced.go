package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/proxyproto"
)

// ProxyProtocolOptions are what an Announced needs. Immutable.
type ProxyProtocolOptions struct {
	// Headers says which there must be, and when.
	Headers config.ProxyProtocol
	// Next serves the connections, which begin after their header.
	Next network.Handler

	Listener string // for the log
	Log      *slog.Logger
}

// ProxyProtocolHandler is the handler of a listener behind proxies that say, by the PROXY
// protocol, whose connections they carry on. It is safe for concurrent use and starts
// no goroutine.
type ProxyProtocolHandler struct {
	o    ProxyProtocolOptions
	lull logLimiter
}

// NewProxyProtocolHandler returns the handler of a listener whose connections begin with a header of
// the PROXY protocol.
func NewProxyProtocolHandler(o ProxyProtocolOptions) *ProxyProtocolHandler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &ProxyProtocolHandler{o: o}
}

// What is wrong with the beginning of a connection, beside what Parse says.
var (
	errHeaderVersion = errors.New("the version of the PROXY protocol is not allowed")
	errHeaderLate    = errors.New("no PROXY protocol header in time")
)

// ServeConn is network.Handler's. It reads the header and gives back what follows:
// from then on the connection's addresses are those that the header says. A connection
// that does not begin as it must ends with CauseProxyProtocol.
func (a *ProxyProtocolHandler) ServeConn(ctx context.Context, conn *network.Conn) error {
	conn.SetReadDeadline(time.Now().Add(a.o.Headers.Timeout))
	if err := a.await(conn); err != nil {
		return a.refuse(conn, err)
	}
	var b *buffer.IoBuffer
	n, err := a.read(conn, &b)
	if err != nil {
		if b != nil {
			b.Release()
		}
		return a.refuse(conn, err)
	}
	b.Discard(n)
	more := b.Len() > 0
	if more {
		conn.Unread(b)
	} else {
		b.Release()
	}
	return a.next(ctx, conn, more)
}

// await waits for the first byte: until then the connection may end with a drain.
func (*ProxyProtocolHandler) await(conn *network.Conn) error {
	if err := conn.SetIdle(true); err != nil {
		return err
	}
	err := conn.AwaitReadable()
	_ = conn.SetIdle(false) // never fails
	return err
}

// read reads the header into *b and returns its size, 0 if there is none and need be
// none.
func (a *ProxyProtocolHandler) read(conn *network.Conn, b **buffer.IoBuffer) (int, error) {
	for {
		if _, err := conn.Fill(b, firstRead); err != nil {
			return 0, err
		}
		h, n, err := a.parse((*b).Bytes())
		switch {
		case err != nil && a.o.Headers.AllowMissing && !errors.Is(err, proxyproto.ErrMalformed):
			return 0, nil
		case err != nil:
			return 0, err
		case n == 0:
			continue
		case !h.Local:
			conn.SetProxiedAddrs(addressIn(h.Destination), addressIn(h.Source))
		}
		return n, nil
	}
}

// parse is proxyproto.Parse with regard to the versions that are allowed.
func (a *ProxyProtocolHandler) parse(b []byte) (h proxyproto.Header, n int, err error) {
	if v := proxyproto.Version(b); slices.Contains(a.o.Headers.Disallowed, v) {
		return h, 0, fmt.Errorf("%w: %d", errHeaderVersion, v)
	}
	return proxyproto.Parse(b)
}

func addressIn(e proxyproto.Endpoint) net.Addr {
	if e.Address.IsValid() {
		return net.TCPAddrFromAddrPort(e.Address)
	}
	return &net.UnixAddr{Name: e.Path, Net: "unix"}
}

// next hands the connection on. more says that it has begun.
func (a *ProxyProtocolHandler) next(ctx context.Context, conn *network.Conn, more bool) error {
	conn.SetReadDeadline(time.Time{})
	conn.Handler = a.o.Next
	p, ok := a.o.Next.(network.ClientFirstHandler)
	if !ok {
		return a.o.Next.ServeConn(ctx, conn)
	}
	if d := p.IdleTimeout(); d > 0 {
		conn.SetReadDeadline(time.Now().Add(d))
	}
	if more {
		return p.ServeConn(ctx, conn)
	}
	return network.ErrPark
}

// refuse notes why a connection ends, and tells of it, unless it told of another just
// now, or the connection said nothing: monitors and balancers look at ports all the
// time.
func (a *ProxyProtocolHandler) refuse(conn *network.Conn, err error) error {
	switch {
	case errors.Is(err, network.ErrDraining):
		return silentEnd(conn, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errHeaderLate
	case errors.Is(err, proxyproto.ErrAbsent), errors.Is(err, proxyproto.ErrMalformed), errors.Is(err, errHeaderVersion):
	case err == io.EOF:
		return silentEnd(conn, err)
	default:
		conn.CloseReason = network.ClosedByPeer
		return err
	}
	conn.CloseReason = network.CauseProxyProtocol
	if skipped, ok := a.lull.allow(time.Now()); ok {
		a.o.Log.Warn("connection refused for its PROXY protocol header", "listener", a.o.Listener, "remote", conn.RemoteAddr(), "error", err,
			"not_logged_before", skipped)
	}
	return err
}
