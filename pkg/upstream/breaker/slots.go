package breaker

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// slots counts the open connections of a priority of a cluster against max_connections, and queues
// the connects that wait for a slot, oldest first. Without a limit no connect waits.
//
// No wake-up is lost. A goroutine that returns an idle connection or a slot makes it visible to
// other goroutines before it reads waiting. A connect that starts to wait increments waiting before
// it checks for a slot a last time.
type slots struct {
	open     atomic.Int64 // connections that are open or being opened
	waiting  atomic.Int64 // length of queue; changed with mu held, read without mu
	draining atomic.Int64 // evictions that BeginEviction allowed and that have not ended

	mu    sync.Mutex // locked before the mu of a pool
	queue list.List  // of *Waiter; guarded by mu
}

// Pool is a pool whose connects wait for slots. Implementations are pointers, because pools are
// compared.
type Pool interface {
	// Connections returns how many connections are open or being opened. It must not wait.
	Connections() int64
}

// Evicted is a connection that its pool has removed. The receiver closes it and owns its slot.
type Evicted interface{ CloseConn() }

// Idle is a connection that no exchange uses.
type Idle interface {
	Evicted
	// Pool returns the pool of the connection.
	Pool() Pool
	// GrantToOldest gives the connection to the exchange of its pool that has waited longest, and
	// returns false if none waits. canceled holds the waiters that the pool no longer needs. The
	// caller holds the lock of the slots.
	GrantToOldest() (served bool, canceled []*Waiter)
}

// Waiter is a connect of a pool that may have to wait for a slot.
type Waiter struct {
	pool Pool
	// grant receives one value: true with an acquired slot, or false if the pool no longer needs a
	// connection. It is buffered, so that sending never blocks.
	grant chan bool
	elem  *list.Element // guarded by slots.mu; nil if it is not queued
}

// NewWaiter returns a Waiter for one connect of a pool. It must not be copied after first use.
func NewWaiter(p Pool) Waiter { return Waiter{pool: p, grant: make(chan bool, 1)} }

// SlotsAwaited reports whether a connect waits for a slot.
func (b *Breaker) SlotsAwaited() bool { return b.slots.waiting.Load() > 0 }

// TryAcquireSlot takes a slot if one is free and no connect waits for a slot. After true, the
// caller calls ReleaseSlot or passes the slot on.
func (b *Breaker) TryAcquireSlot() bool {
	return !b.SlotsAwaited() && b.slots.tryAcquire(b.limits().MaxConnections)
}

// tryAcquire takes a slot if one is free.
func (s *slots) tryAcquire(limit int) bool { return tryIncrement(&s.open, limit) }

// MaxConnectionsReached reports whether another connection has to wait for a slot.
func (b *Breaker) MaxConnectionsReached() bool { return b.maxConnectionsReached(b.limits()) }

func (b *Breaker) maxConnectionsReached(limits *config.CircuitBreakers) bool {
	return b.SlotsAwaited() || limits.MaxConnections != 0 && b.slots.open.Load() >= int64(limits.MaxConnections)
}

// CountConnectionLimit counts that an exchange has to wait because of max_connections.
func (b *Breaker) CountConnectionLimit() { b.options.OnLimit(metrics.LimitConnections) }

// MaxConnectionsExceeded reports whether more connections are open than max_connections allows:
// after max_connections was lowered, or while a session moves.
func (b *Breaker) MaxConnectionsExceeded() bool {
	limit := b.limits().MaxConnections
	return limit != 0 && b.slots.open.Load() > int64(limit)
}

// SlotsScarce reports whether an idle connection must close: a connect waits for its slot, or
// max_connections is exceeded. The caller first makes the idle connection visible to other
// goroutines, or holds the lock that guards it, so that no wake-up is lost.
func (b *Breaker) SlotsScarce() bool { return b.SlotsAwaited() || b.MaxConnectionsExceeded() }

// BeginEviction reports whether one more busy connection may drain because a connect waits for its
// slot: at most one drains for each waiter. After true, the caller calls EndEviction when the
// connection is closed.
func (b *Breaker) BeginEviction() bool {
	if b.slots.draining.Add(1) > b.slots.waiting.Load() {
		b.slots.draining.Add(-1)
		return false
	}
	return true
}

// EndEviction ends an eviction that BeginEviction allowed.
func (b *Breaker) EndEviction() { b.slots.draining.Add(-1) }

// ReleaseSlot frees a slot and grants it to the oldest waiter, if there is one.
func (b *Breaker) ReleaseSlot() {
	b.slots.open.Add(-1)
	b.GrantSlots()
}

// GrantSlots grants free slots to the oldest waiters. The cluster calls it when the limit may have
// been raised.
func (b *Breaker) GrantSlots() {
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

// wakeWaiter ends the wait of the waiter in elem, with a slot if granted is true. The caller holds
// s.mu.
func (s *slots) wakeWaiter(elem *list.Element, granted bool) {
	w := s.queue.Remove(elem).(*Waiter) //nolint:forcetypeassert // it holds nothing else
	w.elem = nil
	s.waiting.Add(-1)
	w.grant <- granted
}

// HandOver gives an idle connection to the exchange of its pool that has waited longest, or its
// slot to the oldest waiter, and returns false if there is neither. Exchanges of its pool come
// first, unless the oldest waiter belongs to another pool that has no connections: no exchange of
// that pool can free a connection. To pass the slot on, HandOver closes the connection.
func (b *Breaker) HandOver(c Idle) bool {
	s := &b.slots
	s.mu.Lock()
	for {
		front := s.queue.Front()
		samePool := false
		if front != nil {
			oldest := front.Value.(*Waiter).pool //nolint:forcetypeassert // it holds nothing else
			samePool = oldest == c.Pool()
			if !samePool && oldest.Connections() == 0 {
				s.wakeWaiter(front, true) // the slot of c, which is closed below
				break
			}
		}
		served, canceled := c.GrantToOldest()
		for _, w := range canceled {
			s.cancel(w)
		}
		if served || front == nil {
			s.mu.Unlock()
			return served
		}
		s.wakeWaiter(front, !samePool)
		if !samePool {
			break
		}
		// No exchange of c's pool waits, so its connects do not need a slot.
	}
	s.mu.Unlock()
	c.CloseConn()
	return true
}

// cancel ends the wait of w, if it is queued. The caller holds s.mu.
func (s *slots) cancel(w *Waiter) {
	if w.elem != nil {
		s.wakeWaiter(w.elem, false)
	}
}

// CancelWaits ends the wait of connects that the pool no longer needs.
func (b *Breaker) CancelWaits(waiters []*Waiter) {
	if len(waiters) == 0 {
		return
	}
	s := &b.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range waiters {
		s.cancel(w)
	}
}

// ErrNotNeeded ends a connect that no exchange waits for any more. It is never wrapped.
var ErrNotNeeded = errors.New("no request waits for the connection any more")

// AwaitSlot waits for a slot for w until the deadline (zero: none) or the end of ctx. Errors are
// ErrNotNeeded and Faults. After nil, the caller calls ReleaseSlot or passes the slot on.
func (b *Breaker) AwaitSlot(ctx context.Context, deadline time.Time, w *Waiter) error {
	if b.enqueue(w) {
		return nil
	}
	granted, reason := wait.For(ctx, deadline, nil, w.grant)
	switch {
	case reason == protocol.ReasonNone && granted:
		return nil
	case reason == protocol.ReasonNone:
		return ErrNotNeeded
	case !b.dequeue(w) && <-w.grant:
		b.ReleaseSlot() // the slot was granted in the meantime: pass it on
	}
	return b.ConnectionFault(reason)
}

// ConnectionFault returns the Fault of an exchange or a connect that waited for a connection
// without success because of max_connections.
func (b *Breaker) ConnectionFault(reason protocol.Reason) error {
	return protocol.Faultf(reason, "cluster %s: no connection became free; max_connections is %d", b.options.Cluster, b.limits().MaxConnections)
}

// enqueue queues w, unless a slot has become free or an idle connection of the priority can be
// closed: then it returns true, and w owns the slot.
func (b *Breaker) enqueue(w *Waiter) (acquired bool) {
	s := &b.slots
	s.mu.Lock()
	s.waiting.Add(1)
	acquired = s.tryAcquire(b.limits().MaxConnections)
	var idle Evicted
	if !acquired {
		idle = b.options.EvictIdle()
		acquired = idle != nil
	}
	if acquired {
		s.waiting.Add(-1)
	} else {
		w.elem = s.queue.PushBack(w)
	}
	s.mu.Unlock()
	if idle != nil {
		idle.CloseConn()
	}
	return acquired
}

// dequeue removes w from the queue and returns true, or returns false if grant has a value for w.
func (b *Breaker) dequeue(w *Waiter) bool {
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
