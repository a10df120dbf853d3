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

// A session has two files in the folder that processes share. Its urls have what it
// registered, a URL or an instance a line, and are replaced as a whole; in the end they are
// empty. Its lock is held as long as it lives: the kernel lets go of it when the process
// ends, however that ends. What a session has not taken back that is no longer there counts
// as lost, whether its urls are there or not. They are swept away later.
const (
	urlsSuffix = ".urls"
	lockSuffix = ".lock"
	nextSuffix = ".new" // of what becomes urls

	header = "weft dubbo 1" // the first line of urls

	pollEvery = 200 * time.Millisecond
	sweepAge  = time.Hour // since urls were written that nobody has a lock for
	mostBytes = 64 << 20  // of urls
)

// sharedDir keeps a board as the files of a folder say. One goroutine uses it.
type sharedDir struct {
	path  string
	id    string
	board *store
	log   *slog.Logger

	lock   *os.File // nil: not here yet
	others map[string]*other
}

// other is a session of which there are, or were, urls.
type other struct {
	info  fs.FileInfo
	lines map[string]record
	lost  bool
	since time.Time // of lost
}

func newFolder(path string, b *store, log *slog.Logger) *sharedDir {
	id := strconv.Itoa(os.Getpid()) + "-" + rand.Text()
	return &sharedDir{path: path, id: id, board: b, log: log, others: map[string]*other{}}
}

// here reports whether the session has its lock.
func (f *sharedDir) here() bool { return f.lock != nil }

func (f *sharedDir) file(id, suffix string) string { return filepath.Join(f.path, id+suffix) }

// write replaces the urls of this session by lines; nil: they are as they are to be. Of a
// folder that was taken away it makes a new one.
func (f *sharedDir) write(lines []string) error {
	if f.lock != nil {
		if _, err := os.Stat(f.file(f.id, lockSuffix)); errors.Is(err, fs.ErrNotExist) {
			err = f.lock.Close()
			f.lock = nil
			return errors.Join(fmt.Errorf("the lock in %s is gone", f.path), err)
		}
	}
	if lines == nil {
		return nil
	}
	if f.lock == nil {
		if err := f.enter(); err != nil {
			return err
		}
	}
	slices.Sort(lines)
	text := header + "\n" + strings.Join(lines, "\n") + "\n"
	next := f.file(f.id, nextSuffix)
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, f.file(f.id, urlsSuffix))
}

// enter makes the folder and takes the lock.
func (f *sharedDir) enter() error {
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

// read brings the board to what the urls say.
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
			continue // it was taken away since
		}
		if err != nil {
			return err
		}
		seen[id] = true
		if err := f.take(id, info); err != nil {
			f.log.Warn("what another process registered cannot be read", logFile, f.file(id, urlsSuffix), logError, err)
		}
	}
	for id, o := range f.others {
		if !seen[id] {
			f.removeSession(id, o)
		}
	}
	return nil
}

// removeSession brings the board to a session whose urls are gone.
func (f *sharedDir) removeSession(id string, o *other) {
	if o.lost && time.Since(o.since) > sweepAge {
		delete(f.others, id)
		f.board.removeAll(id)
		return
	}
	f.markLost(id, o)
}

// markLost marks what a session registered as lost.
func (f *sharedDir) markLost(id string, o *other) {
	if !o.lost {
		o.lost, o.since = true, time.Now()
	}
	for text, l := range o.lines {
		f.board.putLine(id, text, l, true)
	}
}

// The keys of log records.
const (
	logFile  = "file"
	logError = "error"
)

// take brings the board to what one session says.
func (f *sharedDir) take(id string, info fs.FileInfo) error {
	lost := f.isFree(id)
	if lost && time.Since(info.ModTime()) > sweepAge {
		return errors.Join(remove(f.file(id, urlsSuffix)), remove(f.file(id, nextSuffix)), remove(f.file(id, lockSuffix)))
	}
	old := f.others[id]
	if old != nil && old.lost == lost && os.SameFile(old.info, info) && old.info.ModTime().Equal(info.ModTime()) {
		return nil
	}
	lines, err := readURLs(f.file(id, urlsSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is missed next time
	}
	next := &other{info: info, lines: lines, lost: lost, since: time.Now()}
	if err != nil && old != nil {
		next.lines = old.lines
	}
	f.others[id] = next
	for text, l := range next.lines {
		f.board.putLine(id, text, l, lost)
	}
	if old == nil {
		return err
	}
	for text, l := range old.lines {
		if _, ok := next.lines[text]; !ok {
			f.board.removeLine(id, text, l)
		}
	}
	return err
}

// isFree reports whether nobody holds the lock of a session.
func (f *sharedDir) isFree(id string) bool {
	lock, err := os.Open(f.file(id, lockSuffix))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if closed := lock.Close(); closed != nil {
		f.log.Warn("a lock cannot be closed", logFile, lock.Name(), logError, closed)
	}
	return err == nil
}

// leave takes back what this session registered.
func (f *sharedDir) leave() {
	if f.lock == nil {
		return
	}
	err := errors.Join(f.write([]string{}), remove(f.file(f.id, lockSuffix)))
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	if err != nil {
		f.log.Warn("what was registered cannot be taken back", logFile, f.path, logError, err)
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
	text, err := io.ReadAll(io.LimitReader(file, mostBytes))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return parseURLs(text)
}

// parseURLs reads the content of urls.
func parseURLs(text []byte) (map[string]record, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, mostLine+1)
	if !lines.Scan() || lines.Text() != header {
		return nil, errors.New("it is not a file of Weft, or of another version")
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
