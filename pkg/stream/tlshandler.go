package stream

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
)

// TLSOptions are the options of a TLSHandler. Immutable.
type TLSOptions struct {
	// Config is the TLS configuration of the handshakes.
	Config *tls.Config
	// ByALPN serves connections by the protocol that ALPN selected. Default serves those without a
	// protocol in ByALPN.
	ByALPN  map[string]network.Handler
	Default network.Handler
	// Plaintext serves the connections that do not begin with a handshake, and receives all of
	// their bytes; nil: every connection must use TLS.
	Plaintext network.Handler
	// Timeout bounds the handshake from its first byte on.
	Timeout time.Duration
	// IdleTimeout bounds the time until a connection sends its first byte; 0: no limit.
	IdleTimeout time.Duration

	Listener string // for the log
	Log      *slog.Logger
	// OnHandshake receives the error of each handshake; nil: the handshake succeeded. May be nil.
	OnHandshake func(err error)
}

// TLSHandler is the handler of a TLS listener: it performs the handshake and passes the connection
// to the handler of its protocol. It is safe for concurrent use and starts no goroutine.
type TLSHandler struct {
	opts       TLSOptions
	logLimiter logLimiter
}

// handshakeByte is the first byte of every handshake: the type of its first record (RFC 8446 5.1).
const handshakeByte = 0x16

// NewTLSHandler returns the handler of a TLS listener.
func NewTLSHandler(o TLSOptions) *TLSHandler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnHandshake == nil {
		o.OnHandshake = func(error) {}
	}
	return &TLSHandler{opts: o}
}

// IdleTimeout implements network.ClientFirstHandler: the client sends first.
func (h *TLSHandler) IdleTimeout() time.Duration { return h.opts.IdleTimeout }

// ServeConn implements network.Handler. A connection whose handshake fails ends with
// ClosedHandshakeFailed. If the client sends next, the connection is parked after the handshake:
// this frees the stack that the handshake needed.
func (h *TLSHandler) ServeConn(ctx context.Context, conn *network.Conn) error {
	if h.opts.Plaintext != nil {
		isPlain, err := h.isPlaintext(conn)
		switch {
		case err != nil:
			return SetIdleCloseReason(conn, err)
		case isPlain:
			conn.Handler = h.opts.Plaintext
			return h.opts.Plaintext.ServeConn(ctx, conn)
		}
	}
	err := conn.ServerHandshake(h.opts.Config, time.Now().Add(h.opts.Timeout))
	h.opts.OnHandshake(err)
	if err != nil {
		conn.CloseReason = network.ClosedHandshakeFailed
		h.logHandshakeError(conn, err)
		return err
	}
	next := h.opts.Default
	if handler := h.opts.ByALPN[conn.TLS().Protocol]; handler != nil {
		next = handler
	}
	conn.Handler = next
	clientFirst, ok := next.(network.ClientFirstHandler)
	if !ok {
		return next.ServeConn(ctx, conn)
	}
	if d := clientFirst.IdleTimeout(); d > 0 {
		conn.SetReadDeadline(time.Now().Add(d))
	}
	return network.ErrPark
}

// isPlaintext reports whether the connection does not begin with a handshake. It unreads the bytes.
func (h *TLSHandler) isPlaintext(conn *network.Conn) (bool, error) {
	if err := conn.SetIdle(true); err != nil {
		return false, err
	}
	var b *buffer.IoBuffer
	_, err := conn.Fill(&b, initialReadSize)
	_ = conn.SetIdle(false) // never fails
	if err != nil {
		if b != nil {
			b.Release()
		}
		return false, err
	}
	isPlain := b.Bytes()[0] != handshakeByte
	conn.Unread(b)
	if isPlain {
		conn.SetReadDeadline(time.Time{})
	}
	return isPlain, nil
}

// logHandshakeError logs a failed handshake, at most once per logEvery. It does not log the
// ordinary close of a client.
func (h *TLSHandler) logHandshakeError(conn *network.Conn, err error) {
	if err == io.EOF {
		return // monitors and load balancers probe ports all the time
	}
	if skipped, ok := h.logLimiter.allow(time.Now()); ok {
		h.opts.Log.Warn("TLS handshake failed", "listener", h.opts.Listener, "remote", conn.RemoteAddr(), "error", err,
			"not_logged_before", skipped)
	}
}
