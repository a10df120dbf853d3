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
	// Headers says which versions are allowed, whether a header may be missing, and the timeout.
	Headers config.ProxyProtocol
	// Next serves the connections from the first byte after the header.
	Next network.Handler

	Listener string // for the log
	Log      *slog.Logger
}

// ProxyProtocolHandler is the handler of a listener behind proxies that report the addresses of
// their clients with the PROXY protocol. It is safe for concurrent use and starts no goroutine.
type ProxyProtocolHandler struct {
	opts       ProxyProtocolOptions
	logLimiter logLimiter
}

// NewProxyProtocolHandler returns the handler of a listener whose connections begin with a PROXY
// protocol header.
func NewProxyProtocolHandler(o ProxyProtocolOptions) *ProxyProtocolHandler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &ProxyProtocolHandler{opts: o}
}

// Errors of the first bytes of a connection, in addition to those of Parse.
var (
	errVersionNotAllowed = errors.New("the version of the PROXY protocol is not allowed")
	errHeaderTimeout     = errors.New("timeout before a complete PROXY protocol header")
)

// ServeConn implements network.Handler. It reads the header and unreads the bytes after it. From
// then on, the connection reports the addresses in the header, if it has any. A connection ends
// with ClosedProxyProtocolError if its header is malformed or late, or if a required header is
// missing or has a version that is not allowed.
func (h *ProxyProtocolHandler) ServeConn(ctx context.Context, conn *network.Conn) error {
	conn.SetReadDeadline(time.Now().Add(h.opts.Headers.Timeout))
	if err := h.awaitFirstByte(conn); err != nil {
		return h.reject(conn, err)
	}
	var b *buffer.IoBuffer
	n, err := h.readHeader(conn, &b)
	if err != nil {
		if b != nil {
			b.Release()
		}
		return h.reject(conn, err)
	}
	b.Discard(n)
	hasBytes := b.Len() > 0
	if hasBytes {
		conn.Unread(b)
	} else {
		b.Release()
	}
	return h.serveNext(ctx, conn, hasBytes)
}

// awaitFirstByte waits for the first byte. Until it arrives, a drain may close the connection.
func (*ProxyProtocolHandler) awaitFirstByte(conn *network.Conn) error {
	if err := conn.SetIdle(true); err != nil {
		return err
	}
	err := conn.AwaitReadable()
	_ = conn.SetIdle(false) // never fails
	return err
}

// readHeader reads the header into *b and returns its size in bytes. It returns 0 if no header is
// required and the connection begins with none, or with one of a version that is not allowed.
func (h *ProxyProtocolHandler) readHeader(conn *network.Conn, b **buffer.IoBuffer) (int, error) {
	for {
		if _, err := conn.Fill(b, initialReadSize); err != nil {
			return 0, err
		}
		header, n, err := h.parseHeader((*b).Bytes())
		switch {
		case err != nil && h.opts.Headers.AllowMissing && !errors.Is(err, proxyproto.ErrMalformed):
			return 0, nil
		case err != nil:
			return 0, err
		case n == 0:
			continue
		case !header.Local:
			conn.Addrs().SetProxied(endpointAddr(header.Destination), endpointAddr(header.Source))
		}
		return n, nil
	}
}

// parseHeader calls proxyproto.Parse after it has checked that the version is allowed.
func (h *ProxyProtocolHandler) parseHeader(b []byte) (header proxyproto.Header, n int, err error) {
	if v := proxyproto.Version(b); slices.Contains(h.opts.Headers.DisallowedVersions, v) {
		return header, 0, fmt.Errorf("%w: %d", errVersionNotAllowed, v)
	}
	return proxyproto.Parse(b)
}

func endpointAddr(e proxyproto.Endpoint) net.Addr {
	if e.Address.IsValid() {
		return net.TCPAddrFromAddrPort(e.Address)
	}
	return &net.UnixAddr{Name: e.Path, Net: "unix"}
}

// serveNext passes the connection to the next handler. hasBytes says that bytes after the header
// have arrived.
func (h *ProxyProtocolHandler) serveNext(ctx context.Context, conn *network.Conn, hasBytes bool) error {
	conn.SetReadDeadline(time.Time{})
	conn.Handler = h.opts.Next
	clientFirst, ok := h.opts.Next.(network.ClientFirstHandler)
	if !ok {
		return h.opts.Next.ServeConn(ctx, conn)
	}
	if d := clientFirst.IdleTimeout(); d > 0 {
		conn.SetReadDeadline(time.Now().Add(d))
	}
	if hasBytes {
		return clientFirst.ServeConn(ctx, conn)
	}
	return network.ErrPark
}

// reject sets the close reason of the connection. It logs a missing, invalid or late header, at
// most once per logEvery. It does not log connections that the client closes or resets: monitors
// and load balancers probe ports all the time.
func (h *ProxyProtocolHandler) reject(conn *network.Conn, err error) error {
	switch {
	case errors.Is(err, network.ErrDraining):
		return SetIdleCloseReason(conn, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errHeaderTimeout
	case errors.Is(err, proxyproto.ErrAbsent), errors.Is(err, proxyproto.ErrMalformed), errors.Is(err, errVersionNotAllowed):
	case err == io.EOF:
		return SetIdleCloseReason(conn, err)
	default:
		conn.CloseReason = network.ClosedByPeer
		return err
	}
	conn.CloseReason = network.ClosedProxyProtocolError
	if skipped, ok := h.logLimiter.allow(time.Now()); ok {
		h.opts.Log.Warn("connection rejected because of its PROXY protocol header", "listener", h.opts.Listener, "remote", conn.RemoteAddr(), "error", err,
			"not_logged_before", skipped)
	}
	return err
}
