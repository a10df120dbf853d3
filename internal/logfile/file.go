// Package logfile writes log files: it rotates them by size and age, reopens them after an external
// rename, and does not block requests on writes.
//
//	Writer   buffers lines of requests, never blocks on a disk   writer.go
//	File     writes and rotates one file, stdout or stderr       file.go
//	archive  names, compresses and deletes rotated files         archive.go
//	Set      the Writers of a process, one for each path         set.go
package logfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Roller configures the rotation of a file. A rotation renames the file and starts a new one. The
// zero value never rotates.
type Roller struct {
	MaxSizeMB  int           // rotate before the file exceeds this size in MiB; 0: not by size
	Interval   time.Duration // rotate at multiples of Interval in local time (24h: at midnight); 0: not by age
	MaxDays    int           // delete rotated files after this number of days; 0: never
	MaxBackups int           // number of rotated files to keep; 0: all
	Compress   bool          // gzip rotated files
}

// File is a log file, "stdout" or "stderr". Each Write goes to a single file. Safe for concurrent
// use.
type File struct {
	path    string // immutable
	archive *archive

	// Write holds mu, which orders the writes. Callers that must not block use a Writer.
	mu        sync.Mutex
	out       io.Writer // guarded by mu; nil after Close
	closer    io.Closer // guarded by mu; nil for stdout and stderr
	size      int64     // guarded by mu; bytes in the file
	lastWrite time.Time // guarded by mu; time of the last write, if the file is rotated by age

	roller atomic.Pointer[Roller]
}

// Open opens the file for appending. It creates the file and its directory if needed. The paths
// "stdout", "stderr", "/dev/stdout" and "/dev/stderr" mean the streams of the process, which are
// never rotated or closed.
func Open(path string, r Roller) (*File, error) {
	f := &File{path: path}
	f.roller.Store(&r)
	switch path {
	case "stdout", "/dev/stdout":
		f.out = os.Stdout
		return f, nil
	case "stderr", "/dev/stderr":
		f.out = os.Stderr
		return f, nil
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	f.archive = newArchive(path)
	f.archive.startCleanup(r) // rotated files of an earlier process
	return f, nil
}

// open opens the path and, on success, closes the previous file. The caller holds f.mu, or f is not
// shared yet.
func (f *File) open() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	stat, err := file.Stat()
	if err != nil {
		_ = file.Close() // nothing was written
		return fmt.Errorf("log file: %w", err)
	}
	if f.closer != nil {
		_ = f.closer.Close() // each write has reported its own error
	}
	f.out, f.closer = file, file
	f.size = stat.Size()
	f.lastWrite = time.Now()
	if f.size > 0 {
		f.lastWrite = stat.ModTime() // the last write of an earlier process
	}
	return nil
}

// Write appends p, after rotating the file if necessary. If rotating fails, Write appends p to the
// old file.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out == nil {
		return 0, fmt.Errorf("log file %s: %w", f.path, os.ErrClosed)
	}
	if f.archive != nil && f.needsRotation(len(p)) {
		if err := f.rotate(); err != nil {
			n, werr := f.append(p)
			return n, errors.Join(err, werr)
		}
	}
	return f.append(p)
}

func (f *File) append(p []byte) (int, error) {
	n, err := f.out.Write(p)
	f.size += int64(n)
	return n, err
}

// needsRotation reports whether the file must be rotated before n bytes are written. It updates
// lastWrite.
func (f *File) needsRotation(n int) bool {
	r := f.roller.Load()
	previousWrite := f.lastWrite
	if r.Interval > 0 {
		f.lastWrite = time.Now()
	}
	if f.size == 0 {
		return false
	}
	if limit := int64(r.MaxSizeMB) << 20; limit > 0 && f.size+int64(n) > limit {
		return true
	}
	return r.Interval > 0 && period(previousWrite, r.Interval) != period(f.lastWrite, r.Interval)
}

// period returns the number of the period of the given length that contains t, in local time.
func period(t time.Time, length time.Duration) int64 {
	t = t.Local()
	_, offset := t.Zone()
	return (t.UnixMilli() + int64(offset)*1000) / max(length.Milliseconds(), 1)
}

func (f *File) rotate() error {
	if err := f.archive.add(time.Now()); err != nil {
		f.size = 0 // if the rotation fails, retry it after MaxSizeMB more, not at every line
		return err
	}
	if err := f.open(); err != nil {
		return err
	}
	f.archive.startCleanup(*f.roller.Load())
	return nil
}

// Reopen opens the path again, after another process renamed the file. On failure the previous file
// stays in use.
func (f *File) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.archive == nil || f.out == nil {
		return nil
	}
	return f.open()
}

// SetRotation replaces the Roller. It does not wait for a Write.
func (f *File) SetRotation(r Roller) { f.roller.Store(&r) }

// Close closes the file. It waits for background work, except for compression: Close cancels
// compression, and a later process completes it.
func (f *File) Close() error {
	f.mu.Lock()
	closer := f.closer
	f.out, f.closer = nil, nil
	f.mu.Unlock()
	if f.archive != nil {
		f.archive.stop()
	}
	if closer == nil {
		return nil
	}
	return closer.Close()
}
