package stream

import (
	"sync/atomic"
	"time"
)

// lull keeps from the log what anybody can cause as often as he likes. The zero value
// is ready; it is safe for concurrent use.
type lull struct {
	logged atomic.Int64 // when something was logged last, in nanoseconds since 1970
	silent atomic.Int64 // what was not since then
}

// logEvery is how often something is logged at most.
const logEvery = time.Second

// over reports whether something may be logged now, and if so, how much was not since
// the last time.
func (l *lull) over(at time.Time) (skipped int64, ok bool) {
	now, last := at.UnixNano(), l.logged.Load()
	if now-last < int64(logEvery) || !l.logged.CompareAndSwap(last, now) {
		l.silent.Add(1)
		return 0, false
	}
	return l.silent.Swap(0), true
}
