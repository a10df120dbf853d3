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

// TLSOptions are what a Secured needs. Immutable.
type TLSOptions struct {
	// Config is what handshakes begin with.
	Config *tls.Config
	// ByALPN serves connections by the protocol that was agreed on; Other those of
	// none, or of another.
	ByALPN  map[string]network.Handler
	Default network.Handler
	// Plaintext serves the connections that do not begin as a handshake does, and gets all
	// of their bytes; nil: every connection must speak TLS.
	Plaintext network.Handler
	// Timeout is how long a handshake may take from its first byte on.
	Timeout time.Duration
	// IdleTimeout is how long a connection may say nothing; 0: for ever.
	IdleTimeout time.Duration

	Listener string // for the log
	Log      *slog.Logger
	// OnHandshake is told of each handshake, with what it failed of; nil: of nothing.
	OnHandshake func(err error)
}

// TLSHandler is the handler of a listener that speaks TLS: it performs the handshake
// and hands the connection to who speaks the protocol on it. It is safe for
// concurrent use and starts no goroutine.
type TLSHandler struct {
	o    TLSOptions
	lull logLimiter
}

// handshakeByte begins every handshake: the type of its first record (RFC 8446 5.1).
const handshakeByte = 0x16

// NewTLSHandler returns the handler of a listener that speaks TLS.
func NewTLSHandler(o TLSOptions) *TLSHandler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnHandshake == nil {
		o.OnHandshake = func(error) {}
	}
	return &TLSHandler{o: o}
}

// IdleTimeout is network.ClientFirstHandler's: the caller speaks first.
func (s *TLSHandler) IdleTimeout() time.Duration { return s.o.IdleTimeout }

// ServeConn is network.Handler's. A connection whose handshake fails ends with
// CauseHandshake. One whose handshake is done is parked, since its caller speaks
// next: what the handshake needed of a stack is given back.
func (s *TLSHandler) ServeConn(ctx context.Context, conn *network.Conn) error {
	if s.o.Plaintext != nil {
		plain, err := s.isPlain(conn)
		switch {
		case err != nil:
			return silentEnd(conn, err)
		case plain:
			conn.Handler = s.o.Plaintext
			return s.o.Plaintext.ServeConn(ctx, conn)
		}
	}
	err := conn.ServerHandshake(s.o.Config, time.Now().Add(s.o.Timeout))
	s.o.OnHandshake(err)
	if err != nil {
		conn.CloseReason = network.CauseHandshake
		s.log(conn, err)
		return err
	}
	next := s.o.Default
	if h := s.o.ByALPN[conn.TLS().Protocol]; h != nil {
		next = h
	}
	conn.Handler = next
	p, ok := next.(network.ClientFirstHandler)
	if !ok {
		return next.ServeConn(ctx, conn)
	}
	if d := p.IdleTimeout(); d > 0 {
		conn.SetReadDeadline(time.Now().Add(d))
	}
	return network.ErrPark
}

// isPlain looks at how the connection begins, and leaves that unread.
func (s *TLSHandler) isPlain(conn *network.Conn) (bool, error) {
	if err := conn.SetIdle(true); err != nil {
		return false, err
	}
	var b *buffer.IoBuffer
	_, err := conn.Fill(&b, firstRead)
	_ = conn.SetIdle(false) // never fails
	if err != nil {
		if b != nil {
			b.Release()
		}
		return false, err
	}
	plain := b.Bytes()[0] != handshakeByte
	conn.Unread(b)
	if plain {
		conn.SetReadDeadline(time.Time{})
	}
	return plain, nil
}

// log tells of a failure, unless one was told of just now.
func (s *TLSHandler) log(conn *network.Conn, err error) {
	if err == io.EOF {
		return // a look at the port: monitors and balancers do it all the time
	}
	if skipped, ok := s.lull.allow(time.Now()); ok {
		s.o.Log.Warn("TLS handshake failed", "listener", s.o.Listener, "remote", conn.RemoteAddr(), "error", err,
			"not_logged_before", skipped)
	}
}
