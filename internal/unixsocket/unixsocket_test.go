package unixsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// listenUnix binds a socket of the given type at path with system calls; backlog < 0: it does not
// listen.
func listenUnix(t *testing.T, path string, socketType, backlog int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, socketType, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if backlog >= 0 {
		if err := syscall.Listen(fd, backlog); err != nil {
			t.Fatal(err)
		}
	}
}

// TestListenRejectsLiveSocket verifies that RemoveStale keeps a socket unless the kernel refuses a
// connection to it.
func TestListenRejectsLiveSocket(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, path string) context.Context{
		"listening": func(t *testing.T, path string) context.Context {
			listenUnix(t, path, syscall.SOCK_STREAM, 10)
			return t.Context()
		},
		"full backlog": func(t *testing.T, path string) context.Context {
			listenUnix(t, path, syscall.SOCK_STREAM, 0)
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return t.Context()
		},
		"datagram socket": func(t *testing.T, path string) context.Context {
			listenUnix(t, path, syscall.SOCK_DGRAM, -1)
			return t.Context()
		},
		"canceled context": func(t *testing.T, path string) context.Context {
			listenUnix(t, path, syscall.SOCK_STREAM, 10)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			ctx := prepare(t, path)
			if err := RemoveStale(ctx, path); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("RemoveStale = %v, want EADDRINUSE", err)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the socket was removed: %v", err)
			}
		})
	}
}

func TestListenReplacesStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = ln.Close()
	if ln, err = ListenOwnerOnly(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := ListenOwnerOnly(t.Context(), path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second Listen = %v, want EADDRINUSE", err)
	}
}

func TestRemoveStaleKeepsOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStale(t.Context(), path); err == nil {
		t.Error("RemoveStale accepts a regular file")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestSocketIsOwnerOnlyFromCreation verifies that with umask 0 the file has its mode from its
// creation: nothing changes the mode afterwards, so its change time equals its modification time.
func TestSocketIsOwnerOnlyFromCreation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	previous := syscall.Umask(0)
	defer syscall.Umask(previous)
	ln, err := ListenOwnerOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %v, want 0600", mode)
	}
	stat := info.Sys().(*syscall.Stat_t)
	if stat.Ctim != stat.Mtim {
		t.Errorf("change time %[2]v differs from modification time %[1]v", stat.Mtim, stat.Ctim)
	}
}

func TestListenOwnerOnlyRejectsAbstractName(t *testing.T) {
	if ln, err := ListenOwnerOnly(t.Context(), "@weft-test"); err == nil {
		_ = ln.Close()
		t.Error("ListenOwnerOnly accepts an abstract name")
	}
	if err := RemoveStale(t.Context(), "@weft-test"); err != nil {
		t.Errorf("RemoveStale of an abstract name: %v", err)
	}
}
