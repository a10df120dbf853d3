package upstream

import (
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
)

// lazyRecorder is the recorder of a scope. It is opened at the first use, because most of ten
// thousand hosts may never need one. The zero value is ready.
type lazyRecorder[A Recorder] struct{ recorder atomic.Pointer[A] }

// get returns the recorder; ok is false while there is none.
func (l *lazyRecorder[A]) get() (r A, ok bool) {
	if p := l.recorder.Load(); p != nil {
		return *p, true
	}
	return r, false
}

// open opens the recorder unless it is open. The scope's mu is held.
func (l *lazyRecorder[A]) open(newRecorder func() A) {
	if l.recorder.Load() == nil {
		r := newRecorder()
		l.recorder.Store(&r)
	}
}

// close closes the recorder, if there is one. The scope's mu is held.
func (l *lazyRecorder[A]) close() {
	if p := l.recorder.Swap(nil); p != nil {
		(*p).Close()
	}
}

// add accounts for exchanges, if there is a recorder.
func (l *lazyRecorder[A]) add(b metrics.Batch) {
	if r, ok := l.get(); ok {
		r.Add(b)
	}
}
