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
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	l.notify()
	return len(p), nil
}

// Close reports that the process has exited and that no output follows.
func (l *LogBuffer) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.notify()
}

// notify wakes the waiters. l.mu is held.
func (l *LogBuffer) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// String returns the complete output.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.data)
}

// Len returns the length of the output in bytes, which is a valid start for Await.
func (l *LogBuffer) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.data)
}

// Await waits for a complete line that contains want after the first from bytes, and returns it. It
// returns an error on a timeout, or if the buffer is closed.
func (l *LogBuffer) Await(from int, want string, within time.Duration) (line string, err error) {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		l.mu.Lock()
		data, changed, closed := l.data[from:], l.changed, l.closed
		l.mu.Unlock()
		if i := bytes.Index(data, []byte(want)); i >= 0 {
			if n := bytes.IndexByte(data[i:], '\n'); n >= 0 {
				return string(data[bytes.LastIndexByte(data[:i], '\n')+1 : i+n]), nil
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
func (l *LogBuffer) CheckLog(t testing.TB) {
	t.Helper()
	log := l.String()
	for _, position := range findDefects(log) {
		t.Errorf("the log has a defect:\n%s", log[position:min(len(log), position+6<<10)])
	}
	if t.Failed() {
		const most = 8 << 10
		if len(log) > most {
			log = log[:most/2] + "\n…\n" + log[len(log)-most/2:]
		}
		t.Logf("log of weft:\n%s", log)
	}
}

// findDefects returns the positions of messages that Weft must never log. A cluster in panic mode
// is not a defect: its hosts are unhealthy.
func findDefects(log string) (positions []int) {
	log = "\n" + log
	for _, sign := range []string{"\npanic: ", "\"panic: ", "panic while", "DATA RACE", "fatal error", "level=ERROR msg=\"accept"} {
		if i := strings.Index(log, sign); i >= 0 {
			positions = append(positions, max(0, i-1))
		}
	}
	return positions
}
