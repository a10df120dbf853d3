package upstream

import (
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
)

// lazyRecorder is the recorder of a scope: a cluster or a host. The scope opens it at the first
// use, because most of ten thousand hosts may never need a recorder. The zero value is ready.
type lazyRecorder[R Recorder] struct{ recorder atomic.Pointer[R] }

// get returns the recorder; ok is false if it is not open.
func (l *lazyRecorder[R]) get() (r R, ok bool) {
	if p := l.recorder.Load(); p != nil {
		return *p, true
	}
	return r, false
}

// open opens the recorder unless it is open. The caller holds the scope's mu.
func (l *lazyRecorder[R]) open(newRecorder func() R) {
	if l.recorder.Load() == nil {
		r := newRecorder()
		l.recorder.Store(&r)
	}
}

// close closes the recorder if it is open. The caller holds the scope's mu.
func (l *lazyRecorder[R]) close() {
	if p := l.recorder.Swap(nil); p != nil {
		(*p).Close()
	}
}

// add adds b to the recorder if it is open.
func (l *lazyRecorder[R]) add(b metrics.Batch) {
	if r, ok := l.get(); ok {
		r.Add(b)
	}
}
