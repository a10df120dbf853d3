// Package demand owns the meeting of those who need something that is there only while it
// is used, and of whoever brings it and takes it away:
//
//	who needs it                       who brings it
//	Item.Use                           Item.Used, now and then
//	it is absent: Item.Wait,
//	Desk.Ask                     ──▶   Desk.Asked, Desk.Take
//	waits                        ◀──   Item.Come
//
// Using what is there costs one load.
package demand

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Desk is where things are asked for by name. New makes one. Safe for concurrent use.
type Desk struct {
	bell chan struct{} // of one place

	mu    sync.Mutex
	asked map[string]struct{} // guarded by mu
}

// NewDesk returns a desk where nothing was asked for yet.
func NewDesk() *Desk {
	return &Desk{bell: make(chan struct{}, 1), asked: map[string]struct{}{}}
}

// Ask asks for a name, once however often it is called before the next Take. It does not
// wait.
func (d *Desk) Ask(name string) {
	d.mu.Lock()
	d.asked[name] = struct{}{}
	d.mu.Unlock()
	select {
	case d.bell <- struct{}{}:
	default: // it rings already
	}
}

// Asked receives when names were asked for since the last Take, and sometimes when none
// were. It is one receiver's.
func (d *Desk) Asked() <-chan struct{} { return d.bell }

// Take returns the names that were asked for since it was called last, in order.
func (d *Desk) Take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Sorted(maps.Keys(d.asked))
	clear(d.asked)
	return names
}

// Item is something that is there only while it is used. The zero value was not used, and
// nobody waits for it. Whether it is there its user has to know otherwise. Safe for
// concurrent use.
type Item struct {
	used atomic.Bool

	mu   sync.Mutex
	come chan struct{} // guarded by mu; those who wait have it; nil: nobody waits
}

// Use notes that somebody uses it.
func (i *Item) Use() {
	if !i.used.Load() { // a store would take the line from other processors
		i.used.Store(true)
	}
}

// Used reports whether somebody has used it since it was called last.
func (i *Item) Used() bool { return i.used.Swap(false) }

// Wait returns what is closed by the next Come. Who has called it looks once more whether
// the thing is there before it waits: it may have come just before.
func (i *Item) Wait() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.come == nil {
		i.come = make(chan struct{})
	}
	return i.come
}

// Come has those who wait go on. It is called once the thing can be found there.
func (i *Item) Come() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.come != nil {
		close(i.come)
		i.come = nil
	}
}
