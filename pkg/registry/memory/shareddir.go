package memory

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A session has two files in the directory that processes share. Its urls file contains its
// registrations, one URL or instance per line; the session replaces the file as a whole, and
// empties it at the end. The session holds a lock on its lock file for its lifetime, and the kernel
// releases the lock when the process ends, in whatever way. Registrations of a session without a
// lock that were not removed count as lost, even if the urls file is gone. Other sessions delete
// old files later.
const (
	urlsSuffix = ".urls"
	lockSuffix = ".lock"
	nextSuffix = ".new" // temporary file that replaces urls

	fileHeader = "weft dubbo 1" // the first line of urls

	pollInterval = 200 * time.Millisecond
	sweepAge     = time.Hour // age of urls without a lock at which they are deleted
	maxFileSize  = 64 << 20  // maximum size of urls
)

// sharedDir synchronizes a store with the files of a directory. One goroutine uses it.
type sharedDir struct {
	path  string
	id    string
	store *store
	log   *slog.Logger

	lock   *os.File // nil: not acquired
	others map[string]*otherSession
}

// otherSession is another session that has, or had, a urls file.
type otherSession struct {
	info  fs.FileInfo
	lines map[string]record
	lost  bool
	since time.Time // since when lost is true
}

func newSharedDir(path string, b *store, log *slog.Logger) *sharedDir {
	id := strconv.Itoa(os.Getpid()) + "-" + rand.Text()
	return &sharedDir{path: path, id: id, store: b, log: log, others: map[string]*otherSession{}}
}

// hasLock reports whether the session holds its lock.
func (f *sharedDir) hasLock() bool { return f.lock != nil }

func (f *sharedDir) file(id, suffix string) string { return filepath.Join(f.path, id+suffix) }

// write replaces the urls file of this session by lines; nil: it is unchanged. It returns an error
// if the lock file has disappeared, so that the next call with lines creates the directory and
// files again.
func (f *sharedDir) write(lines []string) error {
	if f.lock != nil {
		if _, err := os.Stat(f.file(f.id, lockSuffix)); errors.Is(err, fs.ErrNotExist) {
			err = f.lock.Close()
			f.lock = nil
			return errors.Join(fmt.Errorf("the lock file in %s was deleted", f.path), err)
		}
	}
	if lines == nil {
		return nil
	}
	if f.lock == nil {
		if err := f.acquireLock(); err != nil {
			return err
		}
	}
	slices.Sort(lines)
	text := fileHeader + "\n" + strings.Join(lines, "\n") + "\n"
	next := f.file(f.id, nextSuffix)
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, f.file(f.id, urlsSuffix))
}

// acquireLock creates the directory and acquires the lock.
func (f *sharedDir) acquireLock() error {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(f.file(f.id, lockSuffix), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return errors.Join(err, lock.Close())
	}
	f.lock = lock
	return nil
}

// read updates the store from the urls files.
func (f *sharedDir) read() error {
	list, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, one := range list {
		id, ok := strings.CutSuffix(one.Name(), urlsSuffix)
		if !ok || id == f.id {
			continue
		}
		info, err := one.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since the listing
		}
		if err != nil {
			return err
		}
		seen[id] = true
		if err := f.readSession(id, info); err != nil {
			f.log.Warn("cannot read the registrations of another process", logFile, f.file(id, urlsSuffix), logError, err)
		}
	}
	for id, o := range f.others {
		if !seen[id] {
			f.removeSession(id, o)
		}
	}
	return nil
}

// removeSession updates the store for a session whose urls file is gone.
func (f *sharedDir) removeSession(id string, o *otherSession) {
	if o.lost && time.Since(o.since) > sweepAge {
		delete(f.others, id)
		f.store.removeAll(id)
		return
	}
	f.markLost(id, o)
}

// markLost marks the registrations of a session as lost.
func (f *sharedDir) markLost(id string, o *otherSession) {
	if !o.lost {
		o.lost, o.since = true, time.Now()
	}
	for text, l := range o.lines {
		f.store.putRecord(id, text, l, true)
	}
}

// The keys of log records.
const (
	logFile  = "file"
	logError = "error"
)

// readSession updates the store from the files of one session, or deletes the files if they are old and
// unlocked.
func (f *sharedDir) readSession(id string, info fs.FileInfo) error {
	lost := f.isUnlocked(id)
	if lost && time.Since(info.ModTime()) > sweepAge {
		return errors.Join(remove(f.file(id, urlsSuffix)), remove(f.file(id, nextSuffix)), remove(f.file(id, lockSuffix)))
	}
	old := f.others[id]
	if old != nil && old.lost == lost && os.SameFile(old.info, info) && old.info.ModTime().Equal(info.ModTime()) {
		return nil
	}
	lines, err := readURLs(f.file(id, urlsSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the next read finds it missing
	}
	next := &otherSession{info: info, lines: lines, lost: lost, since: time.Now()}
	if err != nil && old != nil {
		next.lines = old.lines
	}
	f.others[id] = next
	for text, l := range next.lines {
		f.store.putRecord(id, text, l, lost)
	}
	if old == nil {
		return err
	}
	for text, l := range old.lines {
		if _, ok := next.lines[text]; !ok {
			f.store.removeRecord(id, text, l)
		}
	}
	return err
}

// isUnlocked reports whether no process holds the lock of a session.
func (f *sharedDir) isUnlocked(id string) bool {
	lock, err := os.Open(f.file(id, lockSuffix))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if closed := lock.Close(); closed != nil {
		f.log.Warn("cannot close a lock file", logFile, lock.Name(), logError, closed)
	}
	return err == nil
}

// removeOwn removes the registrations of this session.
func (f *sharedDir) removeOwn() {
	if f.lock == nil {
		return
	}
	err := errors.Join(f.write([]string{}), remove(f.file(f.id, lockSuffix)))
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	if err != nil {
		f.log.Warn("cannot remove the registrations", logFile, f.path, logError, err)
	}
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func readURLs(path string) (map[string]record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFileSize))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return parseURLs(text)
}

// parseURLs parses the content of a urls file.
func parseURLs(text []byte) (map[string]record, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxLineSize+1)
	if !lines.Scan() || lines.Text() != fileHeader {
		return nil, errors.New("not a registry file of Weft, or a version that is not supported")
	}
	all := map[string]record{}
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		l, err := parseLine(lines.Text())
		if err != nil {
			return nil, err
		}
		all[lines.Text()] = l
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return all, nil
}
