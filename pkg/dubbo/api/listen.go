package api

import (
	"context"
	"net"
	"sync"

	"github.com/weft-proxy/weft/internal/unixsocket"
)

// listen binds the addresses.
func (s *Server) listen(ctx context.Context, address, socket string) error {
	var config net.ListenConfig
	if address != "" {
		ln, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		s.port.Add(newLimitListener(ln))
	}
	if socket == "" {
		return nil
	}
	ln, err := unixsocket.ListenOwnerOnly(ctx, socket)
	if err != nil {
		return err
	}
	s.port.Add(newLimitListener(ln))
	return nil
}

// limitListener limits the number of open connections to maxConnections.
type limitListener struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func newLimitListener(ln net.Listener) *limitListener {
	return &limitListener{Listener: ln, slots: make(chan struct{}, maxConnections), closed: make(chan struct{})}
}

// Accept waits for a free slot, and then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitListenerConn{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close closes the listener and ends Accept.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitListenerConn releases its slot when it is closed.
type limitListenerConn struct {
	net.Conn
	release func() // frees the slot; later calls do nothing
}

// Close closes the connection.
func (c *limitListenerConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
