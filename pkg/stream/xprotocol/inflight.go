package xprotocol

import (
	"slices"
	"sync"
	"sync/atomic"
)

// inflight is a semaphore for the requests of one connection, and a free list of their storage. The
// connection's reader acquires, and any goroutine releases. release locks mu only while the reader
// waits; acquire never locks it.
//
// A request is in flight between acquire and release. Otherwise it is idle, in one of two lists:
//
//	acquire ──▶ in flight ── release ──▶ returned ── reclaim ──▶ free ── acquire ──▶ …
//
// mu is a leaf lock: its holder acquires no other lock.
type inflight struct {
	engine *Engine // immutable; keeps the requests that no connection uses
	limit  int64   // immutable; the maximum number of requests in flight; 0: no limit

	// The reader owns these fields.
	requests     []*request // requests taken from the engine and not returned to it
	free         *request   // idle requests, linked by next
	acquired     int64      // number of calls of acquire
	seenReleased int64      // the value of released that atLimit read last

	returned atomic.Pointer[request] // requests that ended since the last reclaim, linked by next
	released atomic.Int64            // number of calls of release
	waiting  atomic.Bool             // the reader waits on changed

	mu           sync.Mutex
	changed      sync.Cond // on mu: released has grown, or disconnected was set
	disconnected bool      // guarded by mu; wait returns immediately
}

// maxIdleRequests is the maximum number of idle requests that reclaim leaves to the connection.
const maxIdleRequests = 64

func (f *inflight) init(e *Engine, limit int) {
	f.engine, f.limit = e, int64(limit)
	f.changed.L = &f.mu
}

// acquire returns an idle request, which is in flight from now on. It does not check the limit: see
// atLimit. Only the reader calls it.
func (f *inflight) acquire() *request {
	if f.free == nil {
		f.reclaim()
	}
	r := f.free
	if r == nil {
		r = f.engine.getRequest()
		f.requests = append(f.requests, r)
	} else {
		f.free, r.next = r.next, nil
	}
	f.acquired++
	return r
}

// release ends r. The caller must not use r afterwards.
func (f *inflight) release(r *request) {
	for {
		r.next = f.returned.Load()
		if f.returned.CompareAndSwap(r.next, r) {
			break
		}
	}
	f.released.Add(1)
	if f.waiting.Load() {
		f.mu.Lock()
		f.changed.Broadcast()
		f.mu.Unlock()
	}
}

// count returns the number of requests in flight. Only the reader calls it.
func (f *inflight) count() int64 { return f.acquired - f.released.Load() }

// atLimit reports whether the limit is reached. Only the reader calls it.
func (f *inflight) atLimit() bool {
	if f.limit <= 0 || f.acquired-f.seenReleased < f.limit {
		return false // without reading released, which other goroutines write
	}
	f.seenReleased = f.released.Load()
	return f.acquired-f.seenReleased >= f.limit
}

// wait waits until done returns true or disconnect was called. It holds mu while it calls done:
// before it waits, and after requests ended. Only the reader calls wait.
func (f *inflight) wait(done func() bool) {
	f.waiting.Store(true) // a concurrent release either sees waiting and broadcasts, or done sees its effect
	defer f.waiting.Store(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.disconnected && !done() {
		f.changed.Wait()
	}
}

// disconnect records that the client has disconnected: current and later calls of wait return.
func (f *inflight) disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disconnected = true
	f.changed.Broadcast()
}

func (f *inflight) isDisconnected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.disconnected
}

// drain waits until no request is in flight, even after disconnect. Only the reader calls it.
func (f *inflight) drain() {
	f.waiting.Store(true)
	defer f.waiting.Store(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.count() > 0 {
		f.changed.Wait()
	}
}

// active returns the requests in flight, and possibly some that are ending. The reader calls it, or
// another goroutine while the reader is in drain.
func (f *inflight) active() []*request {
	idle := map[*request]bool{}
	for _, first := range [...]*request{f.free, f.returned.Load()} {
		for r := first; r != nil; r = r.next {
			idle[r] = true
		}
	}
	var active []*request
	for _, r := range f.requests {
		if !idle[r] {
			active = append(active, r)
		}
	}
	return active
}

// reclaim moves the returned requests to free, and those beyond maxIdleRequests to the engine. The
// caller has checked that free is empty.
func (f *inflight) reclaim() {
	if f.returned.Load() == nil {
		return // the common case during a burst, in which every acquire calls reclaim
	}
	f.free = f.returned.Swap(nil)
	if len(f.requests)-int(f.count()) <= maxIdleRequests {
		return
	}
	last := f.free
	for n := 1; last != nil && n < maxIdleRequests; n++ {
		last = last.next
	}
	if last == nil {
		return // the other idle requests were released after the swap
	}
	extra := last.next
	last.next = nil
	for r := extra; r != nil; r = r.next {
		r.c = nil
	}
	f.requests = slices.DeleteFunc(f.requests, func(r *request) bool { return r.c == nil })
	for r := extra; r != nil; {
		next := r.next
		f.engine.putRequest(r)
		r = next
	}
}

// close returns all requests to the engine. No request is in flight.
func (f *inflight) close() {
	for _, r := range f.requests {
		f.engine.putRequest(r)
	}
	f.requests, f.free = nil, nil
	f.returned.Store(nil)
}

// requestQueue is a queue of requests, linked by next. The zero value is empty.
type requestQueue struct{ first, last *request }

func (q *requestQueue) push(r *request) {
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
}

// pop removes and returns the oldest request, or returns nil.
func (q *requestQueue) pop() *request {
	r := q.first
	if r != nil {
		q.first, r.next = r.next, nil
	}
	return r
}
