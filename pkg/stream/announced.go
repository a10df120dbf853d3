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

// ProxyProtocolOptions are the options of a ProxyProtocolHandler. Immutable.
type ProxyProtocolOptions struct {
	// Headers says which headers are required, and how soon.
	Headers config.ProxyProtocol
	// Next serves the connections from the first byte after the header.
	Next network.Handler

	Listener string // for the log
	Log      *slog.Logger
}

// ProxyProtocolHandler is the handler of a listener behind proxies that report the addresses of
// their clients with the PROXY protocol. It is safe for concurrent use and starts no goroutine.
type ProxyProtocolHandler struct {
	o    ProxyProtocolOptions
	lull logLimiter
}

// NewProxyProtocolHandler returns the handler of a listener whose connections begin with a PROXY
// protocol header.
func NewProxyProtocolHandler(o ProxyProtocolOptions) *ProxyProtocolHandler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &ProxyProtocolHandler{o: o}
}

// Errors of the first bytes of a connection, in addition to those of Parse.
var (
	errHeaderVersion = errors.New("the version of the PROXY protocol is not allowed")
	errHeaderLate    = errors.New("timeout before a complete PROXY protocol header")
)

// ServeConn implements network.Handler. It reads the header and unreads the bytes after it; from
// then on the connection reports the addresses in the header. A connection without a valid header
// ends with CauseProxyProtocol.
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

// await waits for the first byte. Until it arrives, a drain may close the connection.
func (*ProxyProtocolHandler) await(conn *network.Conn) error {
	if err := conn.SetIdle(true); err != nil {
		return err
	}
	err := conn.AwaitReadable()
	_ = conn.SetIdle(false) // never fails
	return err
}

// read reads the header into *b and returns its size, or 0 if there is none and none is required.
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

// parse calls proxyproto.Parse after it has checked that the version is allowed.
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

// next passes the connection to the next handler. more says that bytes of the client have arrived.
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

// refuse sets the close reason of the connection. It logs a missing or invalid header, at most once
// per logEvery. It does not log connections without a byte: monitors and load balancers probe ports
// all the time.
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
		a.o.Log.Warn("connection rejected because of its PROXY protocol header", "listener", a.o.Listener, "remote", conn.RemoteAddr(), "error", err,
			"not_logged_before", skipped)
	}
	return err
}
