package logfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheckMatchesOpen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		ok   bool
	}{
		"an existing file":                     {file, true},
		"a new file":                           {filepath.Join(dir, "new"), true},
		"a new file in new directories":        {filepath.Join(dir, "a", "b", "new"), true},
		"a directory":                          {dir, false},
		"a file instead of a directory":        {filepath.Join(file, "new"), false},
		"a file instead of a parent directory": {filepath.Join(file, "a", "new"), false},
		"stdout":                               {"stdout", true},
		"stderr":                               {"stderr", true},
	} {
		t.Run(name, func(t *testing.T) {
			checkErr := Check(c.path)
			if (checkErr == nil) != c.ok {
				t.Errorf("Check(%q) = %v; want success %v", c.path, checkErr, c.ok)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Fatalf("files after Check: %v (%v), want one", entries, err)
			}
			f, err := Open(c.path, Roller{})
			if (err == nil) != c.ok {
				t.Errorf("Open(%q) = %v, Check returned %v; want success %v", c.path, err, checkErr, c.ok)
			}
			if err == nil {
				_ = f.Close()
			}
			for _, created := range []string{"new", "a"} {
				if err := os.RemoveAll(filepath.Join(dir, created)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestCheckOnlySet(t *testing.T) {
	dir := t.TempDir()
	s := NewSet(SetOptions{CheckOnly: true})
	w, err := s.Open(filepath.Join(dir, "log"), Roller{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("line\n")); n != 5 || err != nil {
		t.Errorf("Write = %d, %v; want 5 and no error", n, err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("Close = %v; want nil", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("files after Close: %v (%v), want none", entries, err)
	}
	if _, err := s.Open(dir, Roller{}); err == nil {
		t.Error("Open of a directory succeeded")
	}
}
