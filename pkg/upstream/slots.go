package upstream

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// slots counts the open connections of a priority of a cluster against max_connections and queues
// the connects that wait for a slot, oldest first. Without a limit none waits.
//
// No wake-up is lost: a goroutine that returns something (an idle connection, a slot) reads waiting
// after other goroutines can see it; a connect that starts to wait increments waiting before it
// looks for the last time.
type slots struct {
	open     atomic.Int64 // connections open or being opened
	waiting  atomic.Int64 // length of queue; changed with mu held, read without
	draining atomic.Int64 // multiplexed connections that evictBusy closed for waiters and that still carry exchanges

	mu    sync.Mutex // taken before a pool's mu
	queue list.List  // of *waiter; guarded by mu
}

// slotWaiter is a connect of a pool that waits for a slot.
type slotWaiter struct {
	pool *base
	// grant receives once: true with a slot taken, or false if the pool no longer needs a
	// connection. It is buffered, so that sending never blocks.
	grant chan bool
	elem  *list.Element // guarded by slots.mu; nil if it is not queued
}

// tryAcquire takes a slot if one is free.
func (s *slots) tryAcquire(limit int) bool { return tryIncrement(&s.open, limit) }

// releaseSlot frees a slot and grants it to the oldest waiter, if there is one.
func (b *Breaker) releaseSlot() {
	b.slots.open.Add(-1)
	b.grantSlots()
}

// grantSlots grants free slots to the oldest waiters.
func (b *Breaker) grantSlots() {
	s := &b.slots
	if s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for limit := b.limits().MaxConnections; s.queue.Len() > 0 && s.tryAcquire(limit); {
		s.wakeWaiter(s.queue.Front(), true)
	}
}

// wakeWaiter ends the wait of the waiter at place. s.mu is held.
func (s *slots) wakeWaiter(place *list.Element, slot bool) {
	w := s.queue.Remove(place).(*slotWaiter) //nolint:forcetypeassert // it holds nothing else
	w.elem = nil
	s.waiting.Add(-1)
	w.grant <- slot
}

// handOver gives an idle connection to the exchange of its pool that has waited longest, or its
// slot to the oldest waiter, and returns false if there is neither. Its own pool comes first. But
// if the oldest waiter belongs to a host without any connection, which no release could serve,
// handOver closes the connection and passes its slot on.
func (b *Breaker) handOver(m *pingPongConn) bool {
	s := &b.slots
	s.mu.Lock()
	for {
		front := s.queue.Front()
		own := false
		if front != nil {
			oldest := front.Value.(*slotWaiter).pool //nolint:forcetypeassert // it holds nothing else
			own = oldest == &m.pool.base
			if !own && oldest.open.Load() == 0 {
				s.wakeWaiter(front, true) // the slot of m, which is closed below
				break
			}
		}
		served, canceled := m.pool.grantToOldest(m)
		for _, d := range canceled {
			s.cancel(&d.slot)
		}
		if served || front == nil {
			s.mu.Unlock()
			return served
		}
		s.wakeWaiter(front, !own)
		if !own {
			break
		}
		// No exchange of m's pool waits, so its connects do not need a slot.
	}
	s.mu.Unlock()
	m.closeConn()
	return true
}

// cancel ends the wait of w, if it is queued. s.mu is held.
func (s *slots) cancel(w *slotWaiter) {
	if w.elem != nil {
		s.wakeWaiter(w.elem, false)
	}
}

// cancelSlotWaits ends the wait of canceled connects for slots.
func (b *Breaker) cancelSlotWaits(list []*pingPongConnect) {
	if len(list) == 0 {
		return
	}
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range list {
		s.cancel(&d.slot)
	}
}

// errNotNeeded ends a connect that no exchange waits for any more.
var errNotNeeded = errors.New("no request waits for the connection any more")

// awaitSlot waits for a slot for w until the deadline (zero: none) or the end of ctx. Errors are
// errNotNeeded and Faults.
func (b *Breaker) awaitSlot(ctx context.Context, deadline time.Time, w *slotWaiter) error {
	if b.enqueue(w) {
		return nil
	}
	slot, why := await(ctx, deadline, nil, w.grant)
	switch {
	case why == protocol.ReasonNone && slot:
		return nil
	case why == protocol.ReasonNone:
		return errNotNeeded
	case !b.dequeue(w) && <-w.grant:
		b.releaseSlot() // the slot was granted at the same moment: pass it on
	}
	return protocol.Faultf(why, "cluster %s: no connection became free; max_connections is %d", b.cluster.name, b.limits().MaxConnections)
}

// enqueue queues w, unless a slot becomes free at the last moment or an idle connection of the
// priority can be closed: then it returns true and the slot is w's.
func (b *Breaker) enqueue(w *slotWaiter) (taken bool) {
	s := &b.slots
	s.mu.Lock()
	s.waiting.Add(1)
	taken = s.tryAcquire(b.limits().MaxConnections)
	var idle evictedConn
	if !taken {
		idle = b.evictIdleConn()
		taken = idle != nil
	}
	if taken {
		s.waiting.Add(-1)
	} else {
		w.elem = s.queue.PushBack(w)
	}
	s.mu.Unlock()
	if idle != nil {
		idle.closeConn()
	}
	return taken
}

// dequeue removes w from the queue and returns true, or returns false if w was granted something
// before.
func (b *Breaker) dequeue(w *slotWaiter) bool {
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.elem == nil {
		return false
	}
	s.queue.Remove(w.elem)
	w.elem = nil
	s.waiting.Add(-1)
	return true
}

// evictIdleConn removes an idle connection from any of the pools of the priority.
func (b *Breaker) evictIdleConn() evictedConn {
	s := b.cluster.state.Load()
	if s.originalDst != nil {
		return s.originalDst.evictIdleConn(b.priority)
	}
	for _, h := range s.hosts {
		if idle := h.evictIdleConn(b.priority); idle != nil {
			return idle
		}
	}
	return nil
}

// evictIdleConn removes an idle connection from any of the host's pools of a priority, or returns nil if
// there is none. The caller closes it and owns its slot.
func (h *Host) evictIdleConn(p config.Priority) evictedConn {
	for l := h.pools.Load(); l != nil; l = l.next {
		if l.priority != p {
			continue
		}
		if idle := l.pool.evictIdleConn(); idle != nil {
			return idle
		}
	}
	return nil
}
