// Package demand connects goroutines that use resources on demand with the provider that adds and
// removes these resources:
//
//	user                               provider
//	Item.Use                           polls Item.Used
//	if absent: Item.Wait,
//	Desk.Ask                     ──▶   Desk.Asked, Desk.Take
//	waits                        ◀──   Item.Come
//
// Using a resource that is present costs one atomic load.
package demand

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Desk collects requests for resources by name. NewDesk returns one. Safe for concurrent use.
type Desk struct {
	bell chan struct{} // has capacity 1

	mu    sync.Mutex
	asked map[string]struct{} // guarded by mu
}

// NewDesk returns a Desk without requests.
func NewDesk() *Desk {
	return &Desk{bell: make(chan struct{}, 1), asked: map[string]struct{}{}}
}

// Ask requests a name. Repeated calls before the next Take count as one. Ask does not block.
func (d *Desk) Ask(name string) {
	d.mu.Lock()
	d.asked[name] = struct{}{}
	d.mu.Unlock()
	select {
	case d.bell <- struct{}{}:
	default: // a notification is already pending
	}
}

// Asked returns a channel that receives after names were requested since the last Take, and
// sometimes when none were. Only one goroutine may receive from it.
func (d *Desk) Asked() <-chan struct{} { return d.bell }

// Take returns the names that were requested since the previous call, in sorted order.
func (d *Desk) Take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Sorted(maps.Keys(d.asked))
	clear(d.asked)
	return names
}

// Item tracks the use of one on-demand resource. The zero value is unused and has no waiters. An
// Item does not record whether its resource is present. Safe for concurrent use.
type Item struct {
	used atomic.Bool

	mu   sync.Mutex
	come chan struct{} // guarded by mu; shared by all waiters; nil: no waiters
}

// Use marks the item as used.
func (i *Item) Use() {
	if !i.used.Load() { // an unconditional store would invalidate the cache line of other processors
		i.used.Store(true)
	}
}

// Used reports whether Use was called since the previous call of Used.
func (i *Item) Used() bool { return i.used.Swap(false) }

// Wait returns a channel that the next Come closes. After Wait, the caller must check again whether
// the resource is present, because Come may have run just before.
func (i *Item) Wait() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.come == nil {
		i.come = make(chan struct{})
	}
	return i.come
}

// Come wakes all waiters. The caller makes the resource available first.
func (i *Item) Come() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.come != nil {
		close(i.come)
		i.come = nil
	}
}
