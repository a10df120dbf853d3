package unixsocket

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestListenSetsMode verifies that Listen sets the mode whatever the umask is.
func TestListenSetsMode(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		for _, test := range []struct{ mode, want fs.FileMode }{
			{0, 0o600}, {0o600, 0o600}, {0o660, 0o660}, {0o666, 0o666}, {0o400, 0o400},
		} {
			t.Run(fmt.Sprintf("%v with umask %#o", test.mode, umask), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "s")
				previous := syscall.Umask(umask)
				defer syscall.Umask(previous)
				ln, err := Listen(t.Context(), path, test.mode)
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if mode := info.Mode().Perm(); mode != test.want {
					t.Errorf("mode %v, want %v", mode, test.want)
				}
			})
		}
	}
}

func TestListenRejectsNonPermissionBits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, mode := range []fs.FileMode{fs.ModeSetuid | 0o600, 0o1000} {
		if ln, err := Listen(t.Context(), path, mode); err == nil {
			_ = ln.Close()
			t.Errorf("Listen accepts the mode %v", mode)
		}
	}
}
