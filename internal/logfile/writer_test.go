package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeFile is a sink whose writes a test can block or fail.
type fakeFile struct {
	mu       sync.Mutex
	written  bytes.Buffer  // guarded by mu
	writes   int           // guarded by mu
	reopened int           // guarded by mu
	closed   bool          // guarded by mu
	err      error         // guarded by mu
	unblock  chan struct{} // Write blocks until a test closes it; nil: Write does not block
}

func (f *fakeFile) Write(p []byte) (int, error) {
	if f.unblock != nil {
		<-f.unblock
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if f.err != nil {
		return len(p) / 2, f.err
	}
	return f.written.Write(p)
}

func (f *fakeFile) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reopened++
	return nil
}

func (f *fakeFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fakeFile) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.written.String()
}

func (f *fakeFile) setError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestFlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{}
		w := newWriter("log", f, discardLog())
		defer w.Close()
		write(t, w, "one\n")
		time.Sleep(flushInterval / 2)
		write(t, w, "two\n")
		synctest.Wait()
		if got := f.text(); got != "" {
			t.Errorf("written immediately: %q, want nothing before flushInterval", got)
		}
		time.Sleep(flushInterval / 2)
		synctest.Wait()
		if got := f.text(); got != "one\ntwo\n" || f.writes != 1 {
			t.Errorf("after flushInterval: %q in %d writes, want both lines in one write", got, f.writes)
		}
		time.Sleep(time.Hour)
		if f.writes != 1 {
			t.Errorf("%d writes, want no further write without pending lines", f.writes)
		}
	})
}

func TestFlushSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{}
		w := newWriter("log", f, discardLog())
		defer w.Close()
		line := strings.Repeat("x", 1023) + "\n"
		for range flushSize / len(line) {
			write(t, w, line)
		}
		synctest.Wait()
		if got := len(f.text()); got != flushSize {
			t.Errorf("%d bytes written immediately, want %d", got, flushSize)
		}
	})
}

func TestFlushReopenCloseWritePendingLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{}
		w := newWriter("log", f, discardLog())
		for _, step := range []struct {
			name string
			do   func() error
		}{{"flush", w.Flush}, {"reopen", w.Reopen}, {"close", w.Close}} {
			write(t, w, step.name+"\n")
			if err := step.do(); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
			if got := f.text(); !strings.HasSuffix(got, step.name+"\n") {
				t.Errorf("after %s: %q, want the line last", step.name, got)
			}
		}
		if f.reopened != 1 || !f.closed {
			t.Errorf("reopened %d times, closed: %v; want once and closed", f.reopened, f.closed)
		}
		if err := w.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := io.WriteString(w, "late\n"); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Write after Close: %v; want os.ErrClosed", err)
		}
		if err := w.Flush(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Flush after Close: %v; want os.ErrClosed", err)
		}
	})
}

func TestWriteDoesNotBlockOnHungFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{unblock: make(chan struct{})}
		w := newWriter("log", f, discardLog())
		line := strings.Repeat("x", 1023) + "\n"
		const lines = 5 << 10 // 5 MiB
		start := time.Now()
		for range lines {
			write(t, w, line)
		}
		if elapsed := time.Since(start); elapsed != 0 {
			t.Errorf("writing took %v, want 0", elapsed)
		}
		dropped := w.Dropped()
		if dropped < lines-3*maxPending/1024 || dropped >= lines {
			t.Errorf("%d of %d lines dropped, want all except the pending lines", dropped, lines)
		}
		if bytesHeld := len(w.pending) + cap(w.freeBuf); bytesHeld > 2*maxPending {
			t.Errorf("%d bytes pending, want at most %d", bytesHeld, 2*maxPending)
		}
		if err := w.Flush(); !errors.Is(err, errTimeout) {
			t.Errorf("Flush: %v, want %v", err, errTimeout)
		}
		close(f.unblock)
		if err := w.Flush(); err != nil {
			t.Errorf("Flush of a file that no longer hangs: %v", err)
		}
		if got, want := strings.Count(f.text(), "\n"), lines-int(dropped); got != want {
			t.Errorf("%d lines written, want %d", got, want)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFile{unblock: make(chan struct{})}
		w := newWriter("log", f, discardLog())
		write(t, w, "x\n")
		start := time.Now()
		if err := w.Close(); !errors.Is(err, errTimeout) || time.Since(start) != waitTimeout {
			t.Errorf("Close: %v after %v, want %v after %v", err, time.Since(start), errTimeout, waitTimeout)
		}
		close(f.unblock) // lets the goroutine end, as the bubble requires
		if err := w.Close(); err != nil || f.text() != "x\n" {
			t.Errorf("Close of a file that no longer hangs: %v, written %q; want no error and %q", err, f.text(), "x\n")
		}
	})
}

func TestFailuresAreCountedAndReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var report bytes.Buffer
		f := &fakeFile{}
		w := newWriter("access.log", f, slog.New(slog.NewTextHandler(&report, nil)))
		f.setError(errors.New("no space left"))
		for range 3 {
			write(t, w, "lost\nlost\n")
			if err := w.Flush(); err == nil {
				t.Error("Flush returned no error")
			}
		}
		if got := w.Dropped(); got != 3 {
			t.Errorf("%d lines dropped, want 3: the file accepts half of each batch", got)
		}
		f.setError(nil)
		write(t, w, "kept\n")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if f.text() != "kept\n" {
			t.Errorf("written %q, want %q", f.text(), "kept\n")
		}
		for text, want := range map[string]int{"cannot write to the log file": 1, "no space left": 1, "the log file is writable again": 1, "file=access.log": 2} {
			if got := strings.Count(report.String(), text); got != want {
				t.Errorf("%q reported %d times, want %d:\n%s", text, got, want, &report)
			}
		}
	})
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	f := &fakeFile{}
	w := newWriter("log", f, discardLog())
	const writers, linesPerWriter = 8, 1000
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range linesPerWriter {
				fmt.Fprintf(w, "%d %d\n", i, n)
				if n%100 == 0 {
					w.Flush()
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(f.text(), "\n") + int(w.Dropped()); got != writers*linesPerWriter || w.Dropped() != 0 {
		t.Errorf("%d lines, %d dropped, want %d and 0", got, w.Dropped(), writers*linesPerWriter)
	}
}

func TestWriteDoesNotAllocate(t *testing.T) {
	w := newWriter("log", &discard{}, discardLog())
	defer w.Close()
	line := []byte(strings.Repeat("x", 199) + "\n")
	round := func() {
		for range 100 {
			w.Write(line)
		}
	}
	for range 10 {
		round()
		w.Flush()
	}
	if n := testing.AllocsPerRun(10, round); n > 1 {
		t.Errorf("%v allocations per 100 lines, want at most 1", n)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Reopen() error               { return nil }
func (discard) Close() error                { return nil }

func TestSetSharesWriterByPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	metered := map[string]int{}
	s := NewSet(SetOptions{Meter: func(path string, dropped func() float64) func() {
		metered[filepath.Base(path)]++
		if dropped() != 0 {
			t.Error("lines are dropped before the first write")
		}
		return func() { metered[filepath.Base(path)]-- }
	}})
	a, err := s.Open(path, Roller{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Open(dir+"/./log", Roller{MaxSizeMB: 1})
	if err != nil {
		t.Fatal(err)
	}
	write(t, a, "a\n")
	write(t, b, "b\n")
	if metered["log"] != 1 {
		t.Errorf("metered %d times, want once", metered["log"])
	}
	if got := s.writers[path].file.roller.Load().MaxSizeMB; got != 1 {
		t.Errorf("MaxSizeMB %d, want that of the last Open", got)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second Close must not release b's reference
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(t, b, "c\n")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, map[string]string{"log.1": "a\nb\n", "log": "c\n"})
	if len(s.writers) != 0 || metered["log"] != 0 {
		t.Errorf("%d files open and %d metered after all were closed, want none", len(s.writers), metered["log"])
	}
	if _, err := s.Open(dir, Roller{}); err == nil {
		t.Error("Open of a directory succeeded")
	}
}

func BenchmarkWrite(b *testing.B) {
	w := newWriter("log", &discard{}, discardLog())
	defer w.Close()
	line := []byte(strings.Repeat("x", 199) + "\n")
	b.ReportAllocs()
	for b.Loop() {
		w.Write(line)
	}
}
