package subject

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// LogBuffer collects the output of a process. It is safe for concurrent use.
type LogBuffer struct {
	mu      sync.Mutex
	data    []byte
	changed chan struct{} // closed and replaced at each write
	closed  bool
}

// NewLogBuffer returns an empty LogBuffer.
func NewLogBuffer() *LogBuffer { return &LogBuffer{changed: make(chan struct{})} }

// Write implements io.Writer. It never fails.
func (j *LogBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.data = append(j.data, p...)
	j.notify()
	return len(p), nil
}

// Close reports that the process has exited and that no output follows.
func (j *LogBuffer) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	j.notify()
}

// notify wakes the waiters. j.mu is held.
func (j *LogBuffer) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// String returns the complete output.
func (j *LogBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.data)
}

// Len returns the length of the output in bytes, which is a valid start for Await.
func (j *LogBuffer) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.data)
}

// Await waits for a complete line that contains want after the first from bytes, and returns it. It
// returns an error on a timeout, or if the buffer is closed.
func (j *LogBuffer) Await(from int, want string, within time.Duration) (line string, err error) {
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
			return "", fmt.Errorf("the process exited without writing %q", want)
		}
		select {
		case <-changed:
		case <-late.C:
			return "", fmt.Errorf("no line with %q after %v in\n%s", want, within, data)
		}
	}
}

// CheckLog reports an error for each defect in the log of a Weft that has exited. If the test has
// failed, it also logs the beginning and the end of the log.
func (j *LogBuffer) CheckLog(t testing.TB) {
	t.Helper()
	log := j.String()
	for _, at := range findDefects(log) {
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

// findDefects returns the positions of messages that Weft must never log. A cluster in panic mode is
// not a defect: its hosts are unhealthy.
func findDefects(log string) (at []int) {
	log = "\n" + log
	for _, sign := range []string{"\npanic: ", "\"panic: ", "panic while", "DATA RACE", "fatal error", "level=ERROR msg=\"accept"} {
		if i := strings.Index(log, sign); i >= 0 {
			at = append(at, max(0, i-1))
		}
	}
	return at
}
