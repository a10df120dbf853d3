// Package demand connects goroutines that use resources on demand with the provider that adds and
// removes these resources:
//
//	user                             provider
//	Item.MarkUsed                    polls Item.ResetUsed
//	if absent: Item.Wait,
//	RequestQueue.Request       ──▶   RequestQueue.Requested, RequestQueue.Take
//	waits                      ◀──   Item.Notify
//
// Using a resource that is present and marked as used costs one atomic load.
package demand

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// RequestQueue collects the names of requested resources. NewRequestQueue returns one. Safe for
// concurrent use.
type RequestQueue struct {
	notify chan struct{} // has capacity 1

	mu      sync.Mutex
	pending map[string]struct{} // guarded by mu
}

// NewRequestQueue returns an empty RequestQueue.
func NewRequestQueue() *RequestQueue {
	return &RequestQueue{notify: make(chan struct{}, 1), pending: map[string]struct{}{}}
}

// Request requests a name. Repeated calls before the next Take count as one. Request does not
// block.
func (q *RequestQueue) Request(name string) {
	q.mu.Lock()
	q.pending[name] = struct{}{}
	q.mu.Unlock()
	select {
	case q.notify <- struct{}{}:
	default: // a notification is already pending
	}
}

// Requested returns a channel that receives a value if names were requested since the last Take. It
// may also receive one if none were requested. Only one goroutine may receive from it.
func (q *RequestQueue) Requested() <-chan struct{} { return q.notify }

// Take returns the names that were requested since the previous call, in sorted order.
func (q *RequestQueue) Take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := slices.Sorted(maps.Keys(q.pending))
	clear(q.pending)
	return names
}

// Item tracks the use of one on-demand resource. The zero value is unused and has no waiters. An
// Item does not record whether its resource is present. Safe for concurrent use.
type Item struct {
	used atomic.Bool

	mu    sync.Mutex
	ready chan struct{} // guarded by mu; all waiters share it; nil: no waiters
}

// MarkUsed marks the item as used.
func (i *Item) MarkUsed() {
	if !i.used.Load() { // an unconditional store would invalidate the cache line of other processors
		i.used.Store(true)
	}
}

// ResetUsed reports whether MarkUsed was called since the previous call of ResetUsed.
func (i *Item) ResetUsed() bool { return i.used.Swap(false) }

// Wait returns a channel that the next Notify closes. After Wait, the caller must check again
// whether the resource is present, because Notify may have run just before.
func (i *Item) Wait() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ready == nil {
		i.ready = make(chan struct{})
	}
	return i.ready
}

// Notify wakes all waiters. The caller first makes the resource available.
func (i *Item) Notify() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ready != nil {
		close(i.ready)
		i.ready = nil
	}
}
