package registry

import "sync"

// Delivery tells a subscriber of views as Registry.Subscribe promises: one after the
// other, on a goroutine that is there while there is something to tell. A view that is
// old before its turn is left out. Safe for concurrent use.
type Delivery struct {
	notify func(View) // immutable

	mu      sync.Mutex
	idle    sync.Cond // L is mu: running is false
	pending *View     // guarded by mu; nil: all was told
	running bool      // guarded by mu; a goroutine tells
	ended   bool      // guarded by mu
}

// NewDelivery returns a Delivery to notify.
func NewDelivery(notify func(View)) *Delivery {
	d := &Delivery{notify: notify}
	d.idle.L = &d.mu
	return d
}

// Offer has the subscriber told of a view, unless a newer one comes before. It does not
// wait for that.
func (d *Delivery) Offer(v View) {
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
func (d *Delivery) tell() {
	for v := d.next(); v != nil; v = d.next() {
		d.notify(*v)
	}
}

func (d *Delivery) next() *View {
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
func (d *Delivery) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for d.running {
		d.idle.Wait()
	}
}
