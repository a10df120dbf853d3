package logfile

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// timeFormat is the format of the UTC time at which a file was rotated, in the suffix of its
	// name: access.log.20261121T041537.123. Names sort by time.
	timeFormat = "20060102T150405.000"
	// gzipSuffix is the suffix of compressed files, partSuffix the suffix of files whose
	// compression is incomplete.
	gzipSuffix = ".gz"
	partSuffix = ".gz.part"
)

// archive manages the rotated files of one path. At most one goroutine at a time deletes and
// compresses them.
type archive struct {
	path string // immutable; clean, as are the paths of rotatedFiles

	ctx    context.Context //nolint:containedctx // the lifetime of the background work
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu          sync.Mutex
	running     bool    // guarded by mu; run is active
	nextCleanup *Roller // guarded by mu; configures the next pass of run; nil: no further pass
	closed      bool    // guarded by mu
}

func newArchive(path string) *archive {
	a := &archive{path: filepath.Clean(path)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// add renames the log file into the archive.
func (a *archive) add(now time.Time) error {
	for {
		name := a.path + "." + now.UTC().Format(timeFormat)
		if !exists(name) && !exists(name+gzipSuffix) {
			return os.Rename(a.path, name)
		}
		now = now.Add(time.Millisecond) // rotated twice in a millisecond: keep both, in order
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// startCleanup starts compression and deletion in the background, as r configures.
func (a *archive) startCleanup(r Roller) {
	if r.MaxDays <= 0 && r.MaxBackups <= 0 && !r.Compress {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.nextCleanup = &r
	if a.running {
		return
	}
	a.running = true
	a.work.Go(a.run)
}

func (a *archive) run() {
	for {
		a.mu.Lock()
		r := a.nextCleanup
		a.nextCleanup = nil
		a.running = r != nil
		a.mu.Unlock()
		if r == nil {
			return
		}
		a.prune(*r, time.Now())
		if r.Compress {
			a.compress()
		}
	}
}

// stop waits for the background work: it lets deletions finish and cancels compression.
func (a *archive) stop() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.work.Wait()
}

// rotatedFiles returns the paths of the rotated files, oldest first.
func (a *archive) rotatedFiles() []string {
	dir, base := filepath.Split(a.path)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return nil // the next rotation tries again
	}
	var paths []string
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), base+".")
		if !ok || !entry.Type().IsRegular() {
			continue
		}
		if _, err := time.Parse(timeFormat, strings.TrimSuffix(rest, gzipSuffix)); err == nil {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

// prune deletes files that exceed MaxDays or MaxBackups. If a deletion fails, the next prune
// retries it.
func (a *archive) prune(r Roller, now time.Time) {
	paths := a.rotatedFiles()
	for i, path := range paths {
		rotatedAt, err := time.Parse(timeFormat, strings.TrimSuffix(path[len(a.path)+1:], gzipSuffix))
		tooOld := err == nil && r.MaxDays > 0 && now.Sub(rotatedAt) > time.Duration(r.MaxDays)*24*time.Hour
		tooMany := r.MaxBackups > 0 && len(paths)-i > r.MaxBackups
		if tooOld || tooMany {
			_ = os.Remove(path)
		}
	}
}

// compress compresses the uncompressed files, oldest first. If that fails for a file, the next
// compress retries it.
func (a *archive) compress() {
	for _, path := range a.rotatedFiles() {
		if a.ctx.Err() != nil {
			return
		}
		if !strings.HasSuffix(path, gzipSuffix) {
			_ = a.compressFile(path)
		}
	}
}

// compressFile replaces the file at path with a compressed file. At any time, at least one of the
// two files is complete.
func (a *archive) compressFile(path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	partPath := path + partSuffix
	out, err := os.OpenFile(partPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(partPath)
		}
	}()
	gz, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // compression competes with requests for processors
	if err != nil {
		panic(fmt.Sprintf("logfile: gzip level: %v", err))
	}
	_, err = io.Copy(gz, contextReader{a.ctx, in})
	if err = errors.Join(err, gz.Close(), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err = os.Rename(partPath, path+gzipSuffix); err != nil {
		return err
	}
	return os.Remove(path)
}

// contextReader reads from r until ctx ends.
type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Copy takes no other
	r   io.Reader
}

func (cr contextReader) Read(p []byte) (int, error) {
	if err := cr.ctx.Err(); err != nil {
		return 0, err
	}
	return cr.r.Read(p)
}
