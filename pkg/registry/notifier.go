package registry

import "sync"

// Notifier passes snapshots to a subscriber as Registry.Subscribe promises: one call at a time, on
// a goroutine that runs only while a snapshot is pending. It drops a snapshot when a newer one
// arrives before its delivery. It is safe for concurrent use.
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
	d := &Notifier{notify: notify}
	d.idle.L = &d.mu
	return d
}

// Notify schedules the delivery of a snapshot, unless a newer one replaces it first. It does not
// wait for the delivery.
func (d *Notifier) Notify(v Snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.pending = &v
	if !d.running {
		d.running = true
		go d.deliver()
	}
}

// deliver delivers snapshots until none is pending.
func (d *Notifier) deliver() {
	for v := d.takePending(); v != nil; v = d.takePending() {
		d.notify(*v)
	}
}

func (d *Notifier) takePending() *Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.pending
	d.pending = nil
	if v == nil || d.ended {
		d.running = false
		d.idle.Broadcast()
		return nil
	}
	return v
}

// End waits until notify is not running, and prevents further calls of it. notify must not call
// End.
func (d *Notifier) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for d.running {
		d.idle.Wait()
	}
}
