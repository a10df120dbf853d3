package logfile

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// readDir returns the uncompressed contents of the files in dir; the keys are their names.
func readDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var r io.Reader = file
		if strings.HasSuffix(entry.Name(), gzipSuffix) {
			if r, err = gzip.NewReader(file); err != nil {
				t.Fatalf("%s: %v", entry.Name(), err)
			}
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", entry.Name(), err)
		}
		file.Close()
		found[entry.Name()] = string(text)
	}
	return found
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if n, err := io.WriteString(w, text); n != len(text) || err != nil {
		t.Fatalf("Write(%d bytes) = %d, %v; want all bytes and no error", len(text), n, err)
	}
}

func mustOpen(t *testing.T, path string, r Roller) *File {
	t.Helper()
	f, err := Open(path, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// awaitArchive waits for the background work of f.
func awaitArchive(f *File) { f.archive.work.Wait() }

func wantFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := readDir(t, dir)
	for name, text := range want {
		if g, ok := got[name]; !ok || g != text {
			t.Errorf("%s: %.40q (exists: %v), want %.40q", name, g, ok, text)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("unexpected file %s", name)
		}
	}
}

const halfMB = 512 << 10

func TestRotateBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := mustOpen(t, filepath.Join(dir, "log"), Roller{MaxSizeMB: 1})
		a, b, c := strings.Repeat("a", halfMB), strings.Repeat("b", halfMB), strings.Repeat("c", 1<<20+1)
		write(t, f, a)
		write(t, f, b)
		time.Sleep(time.Hour)
		write(t, f, "next\n")
		write(t, f, c) // larger than the limit: gets a separate file
		write(t, f, "last\n")
		wantFiles(t, dir, map[string]string{
			"log.20000101T010000.000": a + b,
			"log.20000101T010000.001": "next\n",
			"log.20000101T010000.002": c,
			"log":                     "last\n",
		})
	})
}

func TestRotateByInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := mustOpen(t, filepath.Join(dir, "log"), Roller{Interval: 24 * time.Hour})
		last := time.Date(2000, 1, 1, 23, 59, 59, 0, time.Local)
		time.Sleep(time.Until(last))
		write(t, f, "today\n")
		time.Sleep(2 * time.Second)
		write(t, f, "tomorrow\n")
		write(t, f, "and more\n")
		wantFiles(t, dir, map[string]string{
			"log." + last.Add(2*time.Second).UTC().Format(timeFormat): "today\n",
			"log": "tomorrow\nand more\n",
		})
	})
}

func TestRotateFileOfPreviousProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		modTime := time.Now().Add(-48 * time.Hour)
		if err := os.Chtimes(path, modTime, modTime); err != nil {
			t.Fatal(err)
		}
		f := mustOpen(t, path, Roller{Interval: 24 * time.Hour})
		write(t, f, "after\n")
		wantFiles(t, dir, map[string]string{"log.20000101T000000.000": "before\n", "log": "after\n"})
	})
}

func TestSizeIncludesExistingContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	content := strings.Repeat("o", 1<<20)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path, Roller{MaxSizeMB: 1})
	write(t, f, "new\n")
	got := readDir(t, dir)
	if len(got) != 2 || got["log"] != "new\n" {
		t.Errorf("%d files, log is %.20q; want the old content in a rotated file", len(got), got["log"])
	}
}

func TestRotatedFilesArePruned(t *testing.T) {
	for _, c := range []struct {
		name   string
		roller Roller
		want   map[string]string
		path   string // below the directory; "": /log
	}{
		{"by number", Roller{MaxBackups: 2}, map[string]string{"log.19991231T000000.000": "d", "log.19991230T000000.000.gz": "c"}, ""},
		{"by age", Roller{MaxDays: 2}, map[string]string{"log.19991231T000000.000": "d", "log.19991230T000000.000.gz": "c"}, ""},
		{"by age, path not clean", Roller{MaxDays: 2}, map[string]string{"log.19991231T000000.000": "d", "log.19991230T000000.000.gz": "c"}, "/./log"},
		{"both", Roller{MaxBackups: 1, MaxDays: 300}, map[string]string{"log.19991231T000000.000": "d"}, ""},
		{"neither", Roller{}, map[string]string{"log.19990101T000000.000": "a", "log.19991001T000000.000": "b",
			"log.19991230T000000.000.gz": "c", "log.19991231T000000.000": "d"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				otherFiles := map[string]string{"log.txt": "x", "log.2000": "x", "other.19990101T000000.000": "x", "log.19990101T000000.000.zst": "x"}
				maps.Copy(c.want, otherFiles)
				files := map[string]string{"log.19990101T000000.000": "a", "log.19991001T000000.000": "b", "log.19991231T000000.000": "d"}
				for _, contents := range []map[string]string{otherFiles, files} {
					for name, text := range contents {
						if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
				compressed, err := os.Create(filepath.Join(dir, "log.19991230T000000.000.gz"))
				if err != nil {
					t.Fatal(err)
				}
				z := gzip.NewWriter(compressed)
				write(t, z, "c")
				z.Close()
				compressed.Close()
				c.want["log"] = ""

				f := mustOpen(t, dir+cmp.Or(c.path, "/log"), c.roller)
				awaitArchive(f)
				wantFiles(t, dir, c.want)
			})
		})
	}
}

func TestRotatedFilesAreCompressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := mustOpen(t, filepath.Join(dir, "log"), Roller{MaxSizeMB: 1, Compress: true, MaxBackups: 2})
		for i := range 4 {
			write(t, f, strings.Repeat(fmt.Sprint(i), 1<<20))
			awaitArchive(f)
		}
		wantFiles(t, dir, map[string]string{
			"log.20000101T000000.001.gz": strings.Repeat("1", 1<<20),
			"log.20000101T000000.002.gz": strings.Repeat("2", 1<<20),
			"log":                        strings.Repeat("3", 1<<20),
		})
	})
}

func TestReopenAfterRename(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "logs", "access", "log")
	f := mustOpen(t, path, Roller{})
	write(t, f, "one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, f, "two\n")
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	write(t, f, "three\n")
	wantFiles(t, filepath.Dir(path), map[string]string{"log.1": "one\ntwo\n", "log": "three\n"})
}

func TestFailedReopenKeepsFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "log")
	f := mustOpen(t, path, Roller{})
	if err := os.Rename(filepath.Dir(path), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err == nil {
		t.Error("Reopen below a file succeeded")
	}
	write(t, f, "kept\n")
	wantFiles(t, filepath.Join(dir, "moved"), map[string]string{"log": "kept\n"})
}

func TestFailedRotationLosesNoLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	f := mustOpen(t, path, Roller{MaxSizeMB: 1})
	write(t, f, strings.Repeat("a", 1<<20))
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	if n, err := io.WriteString(f, "kept\n"); n != 5 || err == nil {
		t.Errorf("Write = %d, %v; want 5 and the error of the rotation", n, err)
	}
	write(t, f, "and more\n")
	wantFiles(t, dir, map[string]string{"moved": strings.Repeat("a", 1<<20) + "kept\nand more\n"})
}

func TestStandardStreamsAreNotRotatedOrClosed(t *testing.T) {
	for _, name := range []string{"stdout", "stderr", "/dev/stdout", "/dev/stderr"} {
		f := mustOpen(t, name, Roller{MaxSizeMB: 1, Interval: time.Second, MaxBackups: 1, Compress: true})
		want := os.Stdout
		if strings.HasSuffix(name, "err") {
			want = os.Stderr
		}
		if f.out != io.Writer(want) || f.closer != nil || f.archive != nil {
			t.Errorf("Open(%q) writes to %v, want the stream of the process", name, f.out)
		}
		if err := f.Reopen(); err != nil {
			t.Errorf("Reopen of %s: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("Close of %s: %v", name, err)
		}
	}
	if _, err := os.Stdout.Stat(); err != nil {
		t.Errorf("stdout was closed: %v", err)
	}
}

func TestWriteAfterCloseFails(t *testing.T) {
	f := mustOpen(t, filepath.Join(t.TempDir(), "log"), Roller{})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "x"); err == nil || !strings.Contains(err.Error(), "file already closed") {
		t.Errorf("Write after Close: %v; want \"file already closed\"", err)
	}
	if err := f.Reopen(); err != nil || f.out != nil {
		t.Errorf("Reopen after Close = %v, file open: %v; want nil, false", err, f.out != nil)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, Roller{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open of a directory: %v, want an error with its path", err)
	}
}

func TestConcurrentWritesDuringRotation(t *testing.T) {
	dir := t.TempDir()
	f := mustOpen(t, filepath.Join(dir, "log"), Roller{MaxSizeMB: 1})
	const writers, linesPerWriter, length = 4, 200, 4 << 10
	var wg sync.WaitGroup
	for w := range writers {
		line := strings.Repeat(string(rune('a'+w)), length-1) + "\n"
		wg.Go(func() {
			for range linesPerWriter {
				io.WriteString(f, line)
			}
		})
	}
	wg.Wait()
	got := map[byte]int{}
	for name, text := range readDir(t, dir) {
		if len(text) > 1<<20 {
			t.Errorf("%s has %d bytes, want at most 1 MiB", name, len(text))
		}
		for line := range strings.Lines(text) {
			if strings.Count(line, line[:1]) != length-1 {
				t.Fatalf("%s: incomplete line %.20q…", name, line)
			}
			got[line[0]]++
		}
	}
	for w := range writers {
		if n := got[byte('a'+w)]; n != linesPerWriter {
			t.Errorf("%d lines of writer %d, want %d", n, w, linesPerWriter)
		}
	}
}
