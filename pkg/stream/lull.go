package stream

import (
	"sync/atomic"
	"time"
)

// logLimiter keeps from the log what anybody can cause as often as he likes. The zero value
// is ready; it is safe for concurrent use.
type logLimiter struct {
	logged     atomic.Int64 // when something was logged last, in nanoseconds since 1970
	suppressed atomic.Int64 // what was not since then
}

// logEvery is how often something is logged at most.
const logEvery = time.Second

// allow reports whether something may be logged now, and if so, how much was not since
// the last time.
func (l *logLimiter) allow(at time.Time) (skipped int64, ok bool) {
	now, last := at.UnixNano(), l.logged.Load()
	if now-last < int64(logEvery) || !l.logged.CompareAndSwap(last, now) {
		l.suppressed.Add(1)
		return 0, false
	}
	return l.suppressed.Swap(0), true
}
