package http2

import "sync"

// watch is how an exchange learns that its caller is gone.
type watch struct {
	mu    sync.Mutex
	ended bool          // guarded by mu; the caller is gone
	on    waiting       // guarded by mu; what the exchange waits for, or has waited for
	gone  func()        // guarded by mu; nil: no service watches
	done  chan struct{} // guarded by mu; closed when gone has returned; nil: it was not called
}

// waiting says on which connection, and as which call of it, an exchange waits for
// an answer. A number comes only once.
type waiting struct {
	client *Client
	call   *call
	number uint64
}

// start is protocol.Caller's Watch.
func (w *watch) start(e *Engine, gone func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = gone
	if w.ended {
		w.call(e)
	}
	return w.stop
}

// call calls gone on a goroutine of its own. w.mu is held.
func (w *watch) call(e *Engine) {
	gone, done := w.gone, make(chan struct{})
	w.gone, w.done = nil, done
	e.start(func() {
		defer close(done)
		gone()
	})
}

func (w *watch) stop() {
	w.mu.Lock()
	done := w.done
	w.gone, w.done = nil, nil
	w.mu.Unlock()
	if done != nil {
		<-done
	}
}

// wait notes what the exchange waits for, and reports false if its caller is gone.
func (w *watch) wait(on waiting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = on
	return !w.ended
}

// leave tells that the caller is gone, and returns what the exchange waits for.
func (w *watch) leave(e *Engine) waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.gone != nil {
		w.call(e)
	}
	return w.on
}

// clear makes w that of the next exchange. Nobody else knows of w now.
func (w *watch) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.on, w.gone, w.done = false, waiting{}, nil, nil
}
