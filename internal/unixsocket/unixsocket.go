// Package unixsocket owns how Weft listens on unix sockets: whom a socket's file lets in,
// and when a file that another process has left may be replaced.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// ownerOnly is the mode of a socket that only its owner may connect to.
const ownerOnly = 0o600

// dialTimeout bounds the check whether a process listens on a socket.
const dialTimeout = time.Second

// IsAbstract reports whether name is one of Linux' abstract space (unix(7)). Such a socket
// has no file, so that every user of the machine may connect to it.
func IsAbstract(name string) bool { return strings.HasPrefix(name, "@") }

// ListenOwnerOnly listens on a socket at path that only this process's user may connect
// to, replacing one that no process listens on any more. An abstract name is an error:
// it could not be kept from others.
func ListenOwnerOnly(ctx context.Context, path string) (net.Listener, error) {
	return Listen(ctx, path, ownerOnly)
}

// Listen is ListenOwnerOnly for a socket that those may connect to whom mode allows to
// write. mode has permissions only; 0 means the owner's. The umask takes nothing away
// from it.
func Listen(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	switch {
	case mode != mode.Perm():
		return nil, fmt.Errorf("%s: the mode %v has more than permissions", path, mode)
	case mode == 0:
		mode = ownerOnly
	}
	if IsAbstract(path) {
		return nil, fmt.Errorf("%s is an abstract socket, which every user of the machine can connect to: use the path of a unix socket", path)
	}
	if err := RemoveStale(ctx, path); err != nil {
		return nil, err
	}
	// bind(2) gives the file the mode that the socket has, so that there is no moment at
	// which others may connect. The umask takes away from that at most.
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), uint32(mode)) })
		return errors.Join(err, os.NewSyscallError("fchmod", failed))
	}}
	ln, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := widen(path, mode); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// widen gives the socket at path what the umask took away from mode.
func widen(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(path, mode)
}

// RemoveStale removes the socket at path if no process listens on it any more, as a process
// that was killed leaves it behind. That is known only when a connection is refused: a
// listener that is busy, or that this process may not connect to, is alive, and then the
// error is EADDRINUSE. What is at path and is not a socket is an error as well. An abstract
// name has nothing to remove.
func RemoveStale(ctx context.Context, path string) error {
	if IsAbstract(path) {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED): // no process listens (unix(7))
		return os.Remove(path)
	case err == nil:
		_ = conn.Close() // nothing was said on it
		return fmt.Errorf("%s: %w", path, syscall.EADDRINUSE)
	}
	return fmt.Errorf("%s: %w: it cannot be told that nobody listens: %w", path, syscall.EADDRINUSE, err)
}
