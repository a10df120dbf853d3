package upstream

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// slots are the connections that a priority of a cluster may have open (max_connections) and
// the exchanges that wait for one of them, oldest first. Without a limit nobody
// ever waits.
//
// No wake-up is lost: who gives something back (an idle connection, a slot) looks
// at waiting after the other side can see it; who comes to wait adds to waiting
// before it looks for the last time.
type slots struct {
	open    atomic.Int64 // connections open or being opened
	waiting atomic.Int64 // length of queue; changed with mu held, read without
	leaving atomic.Int64 // shared connections that were given up for those who wait, and carry something yet

	mu    sync.Mutex // taken before a pool's mu
	queue list.List  // of *waiter; guarded by mu
}

// waiter is who waits for a connection, or a slot for one, of a pool.
type waiter struct {
	pool *base
	// grant receives once: a connection that another exchange has just left, or
	// nil for a slot to open one with. It has room for that, so that giving never
	// blocks.
	grant chan *member
	place *list.Element // guarded by slots.mu; nil once granted
}

// take takes a slot if one is free.
func (s *slots) take(limit int) bool { return enter(&s.open, limit) }

// freeSlot gives a slot back, to the oldest waiter if there is one.
func (b *Breaker) freeSlot() {
	b.slots.open.Add(-1)
	b.grantSlots()
}

// grantSlots gives free slots to the oldest waiters.
func (b *Breaker) grantSlots() {
	s := &b.slots
	if s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for limit := b.limits().MaxConnections; s.queue.Len() > 0 && s.take(limit); {
		s.give(s.queue.Front(), nil)
	}
}

// give ends the wait of the waiter at place. s.mu is held.
func (s *slots) give(place *list.Element, m *member) {
	w := s.queue.Remove(place).(*waiter) //nolint:forcetypeassert // it holds nothing else
	w.place = nil
	s.waiting.Add(-1)
	w.grant <- m
}

// lookFor is how many waiters are looked through for one that wants a
// connection to the same host.
const lookFor = 64

// handOver gives a connection that nobody uses to a waiter, and reports false if
// there is none. It prefers the oldest that waits for this host; but if the
// oldest of all waits for a host without any connection, which therefore none
// will be given back for, the connection is closed and its slot passed on.
func (b *Breaker) handOver(m *member) bool {
	s := &b.slots
	s.mu.Lock()
	front := s.queue.Front()
	if front == nil {
		s.mu.Unlock()
		return false
	}
	if oldest := front.Value.(*waiter); oldest.pool == &m.pool.base || oldest.pool.open.Load() > 0 { //nolint:forcetypeassert // it holds nothing else
		for e, n := front, 0; e != nil && n < lookFor; e, n = e.Next(), n+1 {
			if e.Value.(*waiter).pool == &m.pool.base { //nolint:forcetypeassert // it holds nothing else
				s.give(e, m)
				s.mu.Unlock()
				return true
			}
		}
	}
	s.give(front, nil) // m's slot, which is open until m is
	s.mu.Unlock()
	m.end()
	return true
}

// wait waits for a connection to the host of pool until the deadline, or until the
// caller, if there is one, is gone. It returns one that was idle, if the pool
// from is not nil, or nil with a slot taken.
func (b *Breaker) wait(ctx context.Context, deadline time.Time, caller protocol.Caller, pool *base, from *exclusive) (*member, error) {
	w := &waiter{pool: pool, grant: make(chan *member, 1)}
	if m, done := b.enqueue(w, from); done {
		return m, nil
	}
	m, why := await(ctx, deadline, caller, w.grant)
	if why == protocol.None {
		return m, nil
	}
	if !b.leave(w) {
		// It was granted something at the same moment: pass that on.
		if m := <-w.grant; m != nil {
			m.put()
		} else {
			b.freeSlot()
		}
	}
	if why == protocol.UpstreamTimeout {
		return nil, protocol.Faultf(why, "cluster %s: no connection became free; max_connections is %d", b.cluster.name, b.limits().MaxConnections)
	}
	return nil, protocol.Faultf(why, "client closed its connection while it waited for one to cluster %s", b.cluster.name)
}

// enqueue makes w wait, unless there is something for it at the last moment:
// then done is true, and the connection or slot is w's. An idle connection to
// another host gives way.
func (b *Breaker) enqueue(w *waiter, from *exclusive) (m *member, done bool) {
	s := &b.slots
	s.mu.Lock()
	s.waiting.Add(1)
	done = s.take(b.limits().MaxConnections)
	if !done && from != nil {
		m = from.pop()
		done = m != nil
	}
	var idle ender
	if !done {
		idle = b.anyIdle()
		done = idle != nil
	}
	if done {
		s.waiting.Add(-1)
	} else {
		w.place = s.queue.PushBack(w)
	}
	s.mu.Unlock()
	if idle != nil {
		idle.end()
	}
	return m, done
}

// leave ends w's wait and reports true, or false if it was granted something
// before.
func (b *Breaker) leave(w *waiter) bool {
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.place == nil {
		return false
	}
	s.queue.Remove(w.place)
	s.waiting.Add(-1)
	return true
}

// anyIdle takes an idle connection from any of the pools of the priority.
func (b *Breaker) anyIdle() ender {
	s := b.cluster.state.Load()
	if s.destinations != nil {
		return s.destinations.anyIdle(b.priority)
	}
	for _, h := range s.hosts {
		if idle := h.giveWay(b.priority); idle != nil {
			return idle
		}
	}
	return nil
}

// giveWay takes an idle connection from any of the host's pools of a priority, nil if
// there is none. The caller ends it, and has its slot.
func (h *Host) giveWay(p config.Priority) ender {
	for l := h.lanes.Load(); l != nil; l = l.next {
		if l.priority != p {
			continue
		}
		if idle := l.pool.giveWay(); idle != nil {
			return idle
		}
	}
	return nil
}
