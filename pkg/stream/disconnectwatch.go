package stream

import "sync"

// DisconnectWatch notifies an exchange of a multiplexed connection that its client has
// disconnected. W identifies what the exchange is waiting for, so that the engine can end that
// wait. The zero value is ready to use; it is safe for concurrent use.
type DisconnectWatch[W any] struct {
	mu           sync.Mutex
	disconnected bool          // guarded by mu; the client disconnected
	pending      W             // guarded by mu; the current or last wait of the exchange
	onDisconnect func()        // guarded by mu; nil: not watched
	done         chan struct{} // guarded by mu; closed when the called onDisconnect has returned; nil: none to wait for
}

// Start implements Downstream.OnDisconnect of package protocol: it calls onDisconnect once the
// client has disconnected. run calls its argument in a new goroutine, for which the engine waits.
func (w *DisconnectWatch[W]) Start(run func(func()), onDisconnect func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onDisconnect = onDisconnect
	if w.disconnected {
		w.notify(run)
	}
	return w.stop
}

// notify calls w.onDisconnect on a new goroutine. The caller holds w.mu.
func (w *DisconnectWatch[W]) notify(run func(func())) {
	onDisconnect, done := w.onDisconnect, make(chan struct{})
	w.onDisconnect, w.done = nil, done
	run(func() {
		defer close(done)
		onDisconnect()
	})
}

// stop ends the watch. If onDisconnect was called, stop waits until it has returned.
func (w *DisconnectWatch[W]) stop() {
	w.mu.Lock()
	done := w.done
	w.onDisconnect, w.done = nil, nil
	w.mu.Unlock()
	if done != nil {
		<-done
	}
}

// SetPending records what the exchange is waiting for. It returns false if the client has
// disconnected.
func (w *DisconnectWatch[W]) SetPending(wait W) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = wait
	return !w.disconnected
}

// NotifyDisconnect records that the client has disconnected, and returns the current or last wait
// of the exchange. The caller ends this wait, unless it has already ended. The HTTP/2 engine also
// calls NotifyDisconnect for an exchange whose deadline has passed.
func (w *DisconnectWatch[W]) NotifyDisconnect(run func(func())) W {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disconnected = true
	if w.onDisconnect != nil {
		w.notify(run)
	}
	return w.pending
}

// Disconnected reports whether the client has disconnected.
func (w *DisconnectWatch[W]) Disconnected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.disconnected
}

// Reset prepares w for the next exchange. If NotifyDisconnect may run just after an exchange has
// ended, the engine calls Reset again before the next exchange.
func (w *DisconnectWatch[W]) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var zero W
	w.disconnected, w.pending, w.onDisconnect, w.done = false, zero, nil, nil
}
