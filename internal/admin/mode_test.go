package admin

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnixSocketMode verifies that the unix socket has the configured mode.
func TestUnixSocketMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(t.Context(), Options{Address: path, Mode: 0o660})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o660 {
		t.Errorf("mode %v, want 0660", mode)
	}
}
