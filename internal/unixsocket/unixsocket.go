// Package unixsocket listens on unix sockets. It controls which users can connect, and replaces
// stale socket files of other processes.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/internal/unixaddr"
)

// ownerOnly is the mode of a socket that only its owner may connect to.
const ownerOnly = 0o600

// dialTimeout bounds the check whether a process listens on a socket.
const dialTimeout = time.Second

// ListenOwnerOnly listens on a socket at path that only this process's user can connect to. It
// replaces a stale socket, on which no process listens. It returns an error for an abstract name,
// which it cannot protect.
func ListenOwnerOnly(ctx context.Context, path string) (net.Listener, error) {
	return Listen(ctx, path, ownerOnly)
}

// Listen is ListenOwnerOnly with a mode: users to whom mode gives write permission can connect.
// mode must have permission bits only; 0 means owner only. The umask does not reduce mode.
func Listen(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	switch {
	case mode != mode.Perm():
		return nil, fmt.Errorf("%s: the mode %v has bits other than permission bits", path, mode)
	case mode == 0:
		mode = ownerOnly
	}
	if unixaddr.IsAbstract(path) {
		return nil, fmt.Errorf("%s is an abstract socket, which every user of the machine can connect to: use the path of a unix socket", path)
	}
	if err := RemoveStale(ctx, path); err != nil {
		return nil, err
	}
	// bind(2) creates the file with the mode of the socket minus the umask, so even before
	// restoreMode only users whom mode allows can connect.
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var chmodErr error
		err := raw.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), uint32(mode)) })
		return errors.Join(err, os.NewSyscallError("fchmod", chmodErr))
	}}
	ln, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := restoreMode(path, mode); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// restoreMode restores the permissions of mode that the umask removed from the socket at path.
func restoreMode(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(path, mode)
}

// RemoveStale removes the socket at path if no process listens on it, for example after a process
// was killed. It removes the socket only if the kernel refuses a connection. A listener that is
// busy, or that denies this process, counts as alive; the error is then EADDRINUSE. A file at path
// that is not a socket is an error too. An abstract name needs no removal.
func RemoveStale(ctx context.Context, path string) error {
	if unixaddr.IsAbstract(path) {
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
		_ = conn.Close() // no data was sent
		return fmt.Errorf("%s: %w", path, syscall.EADDRINUSE)
	}
	return fmt.Errorf("%s: %w: cannot determine whether a process listens: %w", path, syscall.EADDRINUSE, err)
}
