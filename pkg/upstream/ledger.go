package upstream

import (
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
)

// lazyRecorder is a place's account: opened when it is first needed, because most of
// ten thousand hosts may never be. The zero value is ready.
type lazyRecorder[A Recorder] struct{ account atomic.Pointer[A] }

// get returns the account; ok is false while there is none.
func (l *lazyRecorder[A]) get() (account A, ok bool) {
	if p := l.account.Load(); p != nil {
		return *p, true
	}
	return account, false
}

// open opens the account unless it is open. Called under the place's mutex.
func (l *lazyRecorder[A]) open(account func() A) {
	if l.account.Load() == nil {
		a := account()
		l.account.Store(&a)
	}
}

// close closes the account, if there is one. Called under the place's mutex.
func (l *lazyRecorder[A]) close() {
	if p := l.account.Swap(nil); p != nil {
		(*p).Close()
	}
}

// add accounts for exchanges, if there is an account.
func (l *lazyRecorder[A]) add(s metrics.Sum) {
	if a, ok := l.get(); ok {
		a.Add(s)
	}
}
