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
// registrations, one URL or instance per line; the session replaces the file atomically, and
// empties it at its end. The session holds a lock on its lock file for its lifetime, and the kernel
// releases the lock when the process ends for any reason. Registrations that a session without a
// lock did not remove count as lost, even if the urls file was deleted. Other sessions delete the
// files of such a session after sweepAge.
const (
	urlsSuffix = ".urls"
	lockSuffix = ".lock"
	nextSuffix = ".new" // temporary file that replaces urls

	fileHeader = "weft dubbo 1" // the first line of urls

	pollInterval = 200 * time.Millisecond
	sweepAge     = time.Hour // age at which an unlocked urls file is deleted
	maxFileSize  = 64 << 20  // maximum size of urls
)

// sharedDir synchronizes a store with the files of a directory. One goroutine uses it.
type sharedDir struct {
	path  string
	id    string
	store *store
	log   *slog.Logger

	lock          *os.File                 // nil: not acquired
	otherSessions map[string]*otherSession // by session ID
}

// otherSession is another session that has, or had, a urls file.
type otherSession struct {
	info      fs.FileInfo
	lines     map[string]record // the registrations, by line
	lost      bool              // the session does not hold its lock
	lostSince time.Time         // if lost: when this session noticed it
}

func newSharedDir(path string, st *store, log *slog.Logger) *sharedDir {
	id := strconv.Itoa(os.Getpid()) + "-" + rand.Text()
	return &sharedDir{path: path, id: id, store: st, log: log, otherSessions: map[string]*otherSession{}}
}

// hasLock reports whether the session holds its lock.
func (d *sharedDir) hasLock() bool { return d.lock != nil }

func (d *sharedDir) file(id, suffix string) string { return filepath.Join(d.path, id+suffix) }

// write replaces the content of the session's urls file with lines; nil lines leave it unchanged.
// It returns an error if the lock file was deleted; the next call with lines creates the directory
// and the files again.
func (d *sharedDir) write(lines []string) error {
	if d.lock != nil {
		if _, err := os.Stat(d.file(d.id, lockSuffix)); errors.Is(err, fs.ErrNotExist) {
			err = d.lock.Close()
			d.lock = nil
			return errors.Join(fmt.Errorf("the lock file in %s was deleted", d.path), err)
		}
	}
	if lines == nil {
		return nil
	}
	if d.lock == nil {
		if err := d.acquireLock(); err != nil {
			return err
		}
	}
	slices.Sort(lines)
	text := fileHeader + "\n" + strings.Join(lines, "\n") + "\n"
	next := d.file(d.id, nextSuffix)
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, d.file(d.id, urlsSuffix))
}

// acquireLock creates the directory and acquires the lock.
func (d *sharedDir) acquireLock() error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(d.file(d.id, lockSuffix), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return errors.Join(err, lock.Close())
	}
	d.lock = lock
	return nil
}

// read updates the store from the urls files of other sessions.
func (d *sharedDir) read() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), urlsSuffix)
		if !ok || id == d.id {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since the listing
		}
		if err != nil {
			return err
		}
		seen[id] = true
		if err := d.readSession(id, info); err != nil {
			d.log.Warn("cannot read the registrations of another process", logFile, d.file(id, urlsSuffix), logError, err)
		}
	}
	for id, o := range d.otherSessions {
		if !seen[id] {
			d.removeSession(id, o)
		}
	}
	return nil
}

// removeSession updates the store for a session whose urls file was deleted.
func (d *sharedDir) removeSession(id string, o *otherSession) {
	if o.lost && time.Since(o.lostSince) > sweepAge {
		delete(d.otherSessions, id)
		d.store.removeAll(id)
		return
	}
	d.markLost(id, o)
}

// markLost marks the registrations of a session as lost.
func (d *sharedDir) markLost(id string, o *otherSession) {
	if !o.lost {
		o.lost, o.lostSince = true, time.Now()
	}
	for text, rec := range o.lines {
		d.store.putRecord(id, text, rec, true)
	}
}

// The keys of log records.
const (
	logFile  = "file"
	logError = "error"
)

// readSession updates the store from the files of one session, or deletes the files if they are old
// and unlocked.
func (d *sharedDir) readSession(id string, info fs.FileInfo) error {
	lost := d.isUnlocked(id)
	if lost && time.Since(info.ModTime()) > sweepAge {
		return errors.Join(remove(d.file(id, urlsSuffix)), remove(d.file(id, nextSuffix)), remove(d.file(id, lockSuffix)))
	}
	old := d.otherSessions[id]
	if old != nil && old.lost == lost && os.SameFile(old.info, info) && old.info.ModTime().Equal(info.ModTime()) {
		return nil
	}
	lines, err := readURLs(d.file(id, urlsSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the next read calls removeSession
	}
	next := &otherSession{info: info, lines: lines, lost: lost, lostSince: time.Now()}
	if err != nil && old != nil {
		next.lines = old.lines
	}
	d.otherSessions[id] = next
	for text, rec := range next.lines {
		d.store.putRecord(id, text, rec, lost)
	}
	if old == nil {
		return err
	}
	for text, rec := range old.lines {
		if _, ok := next.lines[text]; !ok {
			d.store.removeRecord(id, text, rec)
		}
	}
	return err
}

// isUnlocked reports whether no process holds the lock of a session.
func (d *sharedDir) isUnlocked(id string) bool {
	lock, err := os.Open(d.file(id, lockSuffix))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if closeErr := lock.Close(); closeErr != nil {
		d.log.Warn("cannot close a lock file", logFile, lock.Name(), logError, closeErr)
	}
	return err == nil
}

// removeOwn removes the registrations of this session.
func (d *sharedDir) removeOwn() {
	if d.lock == nil {
		return
	}
	err := errors.Join(d.write([]string{}), remove(d.file(d.id, lockSuffix)))
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	if err != nil {
		d.log.Warn("cannot remove the registrations", logFile, d.path, logError, err)
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
	records := map[string]record{}
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		rec, err := parseLine(lines.Text())
		if err != nil {
			return nil, err
		}
		records[lines.Text()] = rec
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return records, nil
}
