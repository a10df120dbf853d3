package stream

import "sync"

// DisconnectWatch is how an exchange of a connection that carries many learns that its caller
// is gone, and how its engine learns what the exchange is waiting for then, an On.
// The zero value is ready; safe for concurrent use.
type DisconnectWatch[On any] struct {
	mu    sync.Mutex
	ended bool          // guarded by mu; the caller is gone
	on    On            // guarded by mu; what the exchange waits for, or has waited for
	gone  func()        // guarded by mu; nil: no service watches
	done  chan struct{} // guarded by mu; closed when gone has returned; nil: it was not called
}

// Start is protocol.Downstream's Watch. run starts a goroutine and sees to it that its
// end is waited for.
func (w *DisconnectWatch[On]) Start(run func(func()), gone func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = gone
	if w.ended {
		w.call(run)
	}
	return w.stop
}

// call calls gone on a goroutine of its own. w.mu is held.
func (w *DisconnectWatch[On]) call(run func(func())) {
	gone, done := w.gone, make(chan struct{})
	w.gone, w.done = nil, done
	run(func() {
		defer close(done)
		gone()
	})
}

func (w *DisconnectWatch[On]) stop() {
	w.mu.Lock()
	done := w.done
	w.gone, w.done = nil, nil
	w.mu.Unlock()
	if done != nil {
		<-done
	}
}

// SetPending notes what the exchange waits for, and reports false if its caller is gone.
func (w *DisconnectWatch[On]) SetPending(on On) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = on
	return !w.ended
}

// On returns what the exchange waits for, or has waited for.
func (w *DisconnectWatch[On]) On() On {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.on
}

// NotifyDisconnect tells that the caller is gone, and returns what the exchange waits for, or
// has waited for: who ends that wait must be able to tell that it is over.
func (w *DisconnectWatch[On]) NotifyDisconnect(run func(func())) On {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.gone != nil {
		w.call(run)
	}
	return w.on
}

// Ended reports whether the caller is gone.
func (w *DisconnectWatch[On]) Ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// Reset makes w that of the next exchange. An engine that may be leaving an exchange
// which is just over clears once more before there is a next one.
func (w *DisconnectWatch[On]) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var none On
	w.ended, w.on, w.gone, w.done = false, none, nil, nil
}
