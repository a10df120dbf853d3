package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
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
	if err := removeDeadSocket(ctx, socket); err != nil {
		return err
	}
	// The mode of a socket becomes that of its file, so that there is no moment at which
	// others may connect.
	config.Control = func(_, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return os.NewSyscallError("fchmod", failed)
	}
	ln, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, bounded(ln))
	return nil
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(a net.Addr) bool {
	address, err := netip.ParseAddrPort(a.String())
	return err != nil || address.Addr().Unmap().IsLoopback() // an error: a unix socket
}

// removeDeadSocket removes a socket that a process left behind which was killed; not one
// that somebody listens on, however busy he is, nor anything else.
func removeDeadSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is there and is no socket", path)
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED): // unix(7): nobody listens
		return os.Remove(path)
	case err == nil:
		_ = conn.Close() // nothing was said on it
	}
	return fmt.Errorf("%s: %w", path, syscall.EADDRINUSE)
}

// boundedListener has maxConnections at a time at most.
type boundedListener struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func bounded(ln net.Listener) *boundedListener {
	return &boundedListener{Listener: ln, slots: make(chan struct{}, maxConnections), closed: make(chan struct{})}
}

// Accept waits until there is room, and for a connection.
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

// Close ends Accept as well.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn makes room when it is closed.
type boundedConn struct {
	net.Conn
	leave func() // once
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
