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
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	b.notify()
	return len(p), nil
}

// Close reports that the process has exited and that no output follows.
func (b *LogBuffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.notify()
}

// notify wakes the waiters. The caller holds b.mu.
func (b *LogBuffer) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// String returns the complete output.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.data)
}

// Len returns the length of the output in bytes. A caller can pass it to Await as from.
func (b *LogBuffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.data)
}

// Await waits for a complete line that contains want, and returns the line. It ignores the first
// from bytes of the output. It returns an error on a timeout, or if the buffer is closed without
// such a line.
func (b *LogBuffer) Await(from int, want string, timeout time.Duration) (line string, err error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		b.mu.Lock()
		data, changed, closed := b.data[from:], b.changed, b.closed
		b.mu.Unlock()
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
		case <-timer.C:
			return "", fmt.Errorf("no line with %q after %v in\n%s", want, timeout, data)
		}
	}
}

// CheckLog reports an error for each kind of defect in the log of a Weft process that has exited.
// If the test has failed, CheckLog also logs the output: of a long output only the beginning and
// the end.
func (b *LogBuffer) CheckLog(t testing.TB) {
	t.Helper()
	log := b.String()
	for _, position := range findDefects(log) {
		t.Errorf("the log has a defect:\n%s", log[position:min(len(log), position+6<<10)])
	}
	if t.Failed() {
		const maxLen = 8 << 10
		if len(log) > maxLen {
			log = log[:maxLen/2] + "\n…\n" + log[len(log)-maxLen/2:]
		}
		t.Logf("log of weft:\n%s", log)
	}
}

// findDefects returns the position of the first message of each kind that Weft must never log. A
// message about a cluster in panic mode is not a defect, although it contains "panic": it reports
// unhealthy hosts.
func findDefects(log string) (positions []int) {
	log = "\n" + log
	for _, pattern := range []string{"\npanic: ", "\"panic: ", "panic while", "DATA RACE", "fatal error", "level=ERROR msg=\"accept"} {
		if i := strings.Index(log, pattern); i >= 0 {
			positions = append(positions, max(0, i-1))
		}
	}
	return positions
}
