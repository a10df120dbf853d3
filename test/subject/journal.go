package subject

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Journal is what a process writes. Safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	data    []byte
	changed chan struct{} // closed and replaced at each write
	closed  bool
}

// NewJournal returns a journal in which nothing is written.
func NewJournal() *Journal { return &Journal{changed: make(chan struct{})} }

// Write is io.Writer's. It never fails.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.data = append(j.data, p...)
	j.tell()
	return len(p), nil
}

// Close says that nothing more will be written: the process has ended.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	j.tell()
}

// tell wakes those that wait. j.mu is held.
func (j *Journal) tell() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// String returns all that was written.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.data)
}

// Len returns how many bytes were written: where Await begins to look for what comes.
func (j *Journal) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.data)
}

// Await waits for a whole line that has want behind the first from bytes, and returns it.
// The error says that none has come in time, or none will.
func (j *Journal) Await(from int, want string, within time.Duration) (line string, err error) {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		j.mu.Lock()
		data, changed, closed := j.data[from:], j.changed, j.closed
		j.mu.Unlock()
		if at := bytes.Index(data, []byte(want)); at >= 0 {
			if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
				return string(data[bytes.LastIndexByte(data[:at], '\n')+1 : at+n]), nil
			}
		}
		if closed {
			return "", fmt.Errorf("the process ended without writing %q", want)
		}
		select {
		case <-changed:
		case <-late.C:
			return "", fmt.Errorf("no line with %q after %v in\n%s", want, within, data)
		}
	}
}

// Judge fails the test for each defect that the log of a Weft shows that has ended, and
// then, or if the test had failed before, puts the log's beginning and end into the test's.
func (j *Journal) Judge(t testing.TB) {
	t.Helper()
	log := j.String()
	for _, at := range defects(log) {
		t.Errorf("the log has a defect:\n%s", log[at:min(len(log), at+6<<10)])
	}
	if t.Failed() {
		const most = 8 << 10
		if len(log) > most {
			log = log[:most/2] + "\n…\n" + log[len(log)-most/2:]
		}
		t.Logf("log of weft:\n%s", log)
	}
}

// defects returns where a log tells of what Weft must never do. A cluster in panic is none:
// its hosts are what is wrong.
func defects(log string) (at []int) {
	log = "\n" + log
	for _, sign := range []string{"\npanic: ", "\"panic: ", "panic while", "DATA RACE", "fatal error", "level=ERROR msg=\"accept"} {
		if i := strings.Index(log, sign); i >= 0 {
			at = append(at, max(0, i-1))
		}
	}
	return at
}
