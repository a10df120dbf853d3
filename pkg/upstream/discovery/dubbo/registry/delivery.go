package registry

import "sync"

// Notifier tells a subscriber of views as Registry.Subscribe promises: one after the
// other, on a goroutine that is there while there is something to tell. A view that is
// old before its turn is left out. Safe for concurrent use.
type Notifier struct {
	notify func(Snapshot) // immutable

	mu      sync.Mutex
	idle    sync.Cond // L is mu: running is false
	pending *Snapshot // guarded by mu; nil: all was told
	running bool      // guarded by mu; a goroutine tells
	ended   bool      // guarded by mu
}

// NewDelivery returns a Delivery to notify.
func NewDelivery(notify func(Snapshot)) *Notifier {
	d := &Notifier{notify: notify}
	d.idle.L = &d.mu
	return d
}

// Notify has the subscriber told of a view, unless a newer one comes before. It does not
// wait for that.
func (d *Notifier) Notify(v Snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.pending = &v
	if !d.running {
		d.running = true
		go d.tell()
	}
}

// tell tells until there is nothing more.
func (d *Notifier) tell() {
	for v := d.next(); v != nil; v = d.next() {
		d.notify(*v)
	}
}

func (d *Notifier) next() *Snapshot {
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

// End returns once the subscriber is not being told, and will not be told again. It must
// not be called by notify.
func (d *Notifier) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for d.running {
		d.idle.Wait()
	}
}
