package stream

import (
	"sync/atomic"
	"time"
)

// logLimiter limits the rate of log lines that any client can cause. The zero value is ready to
// use; it is safe for concurrent use.
type logLimiter struct {
	lastLogged atomic.Int64 // time of the last log line, in nanoseconds since 1970
	suppressed atomic.Int64 // number of lines suppressed since then
}

// logEvery is the minimum interval between two log lines.
const logEvery = time.Second

// allow reports whether a line may be logged now, and if so, how many were suppressed since the
// last one.
func (l *logLimiter) allow(t time.Time) (skipped int64, ok bool) {
	now, last := t.UnixNano(), l.lastLogged.Load()
	if now-last < int64(logEvery) || !l.lastLogged.CompareAndSwap(last, now) {
		l.suppressed.Add(1)
		return 0, false
	}
	return l.suppressed.Swap(0), true
}
