package api

import (
	"context"
	"net"
	"net/netip"
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
		s.listeners = append(s.listeners, bounded(ln))
	}
	if socket == "" {
		return nil
	}
	ln, err := unixsocket.ListenOwnerOnly(ctx, socket)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, bounded(ln))
	return nil
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(a net.Addr) bool {
	address, err := netip.ParseAddrPort(a.String())
	return err != nil || address.Addr().Unmap().IsLoopback() // an error means a Unix socket
}

// boundedListener limits the number of open connections to maxConnections.
type boundedListener struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func bounded(ln net.Listener) *boundedListener {
	return &boundedListener{Listener: ln, slots: make(chan struct{}, maxConnections), closed: make(chan struct{})}
}

// Accept waits for a free slot, and then for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
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
	return &boundedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close closes the listener and ends Accept.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn releases its slot when it is closed.
type boundedConn struct {
	net.Conn
	leave func() // once
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
