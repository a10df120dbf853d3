package registry

import "sync"

// Notifier passes snapshots to a subscriber as Registry.Subscribe guarantees: one call at a time,
// on a goroutine that runs only while a snapshot is pending. A newer snapshot replaces a pending
// one. It is safe for concurrent use.
type Notifier struct {
	notify func(Snapshot) // immutable

	mu      sync.Mutex
	idle    sync.Cond // L is mu; signaled when running becomes false
	pending *Snapshot // guarded by mu; nil if no snapshot waits for delivery
	running bool      // guarded by mu; a goroutine delivers snapshots
	ended   bool      // guarded by mu
}

// NewNotifier returns a Notifier that calls notify.
func NewNotifier(notify func(Snapshot)) *Notifier {
	n := &Notifier{notify: notify}
	n.idle.L = &n.mu
	return n
}

// Notify schedules the delivery of a snapshot, unless a newer one replaces it first. It does not
// wait for the delivery.
func (n *Notifier) Notify(snap Snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return
	}
	n.pending = &snap
	if !n.running {
		n.running = true
		go n.deliver()
	}
}

// deliver delivers snapshots until none is pending.
func (n *Notifier) deliver() {
	for snap := n.takePending(); snap != nil; snap = n.takePending() {
		n.notify(*snap)
	}
}

func (n *Notifier) takePending() *Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	snap := n.pending
	n.pending = nil
	if snap == nil || n.ended {
		n.running = false
		n.idle.Broadcast()
		return nil
	}
	return snap
}

// End prevents further calls of notify, and waits until notify is not running. notify must not call
// End.
func (n *Notifier) End() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	for n.running {
		n.idle.Wait()
	}
}
