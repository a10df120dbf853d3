package upstream

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// slots are the connections that a cluster may have open (max_connections) and
// the exchanges that wait for one of them, oldest first. Without a limit nobody
// ever waits.
//
// No wake-up is lost: who gives something back (an idle connection, a slot) looks
// at waiting after the other side can see it; who comes to wait adds to waiting
// before it looks for the last time.
type slots struct {
	open    atomic.Int64 // connections open or being opened
	waiting atomic.Int64 // length of queue; changed with mu held, read without

	mu    sync.Mutex // taken before a pool's mu
	queue list.List  // of *waiter; guarded by mu
}

// waiter is an exchange that waits for a connection of pool.
type waiter struct {
	pool *pool
	// grant receives once: a connection that another exchange has just left, or
	// nil for a slot to open one with. It has room for that, so that giving never
	// blocks.
	grant chan *member
	place *list.Element // guarded by slots.mu; nil once granted
}

// take takes a slot if one is free.
func (s *slots) take(limit int) bool { return enter(&s.open, limit) }

// freeSlot gives a slot back, to the oldest waiter if there is one.
func (c *Cluster) freeSlot() {
	c.slots.open.Add(-1)
	c.grantSlots()
}

// grantSlots gives free slots to the oldest waiters.
func (c *Cluster) grantSlots() {
	s := &c.slots
	if s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for limit := c.settings().Breakers.MaxConnections; s.queue.Len() > 0 && s.take(limit); {
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
func (c *Cluster) handOver(m *member) bool {
	s := &c.slots
	s.mu.Lock()
	front := s.queue.Front()
	if front == nil {
		s.mu.Unlock()
		return false
	}
	if oldest := front.Value.(*waiter); oldest.pool == m.pool || oldest.pool.open.Load() > 0 { //nolint:forcetypeassert // it holds nothing else
		for e, n := front, 0; e != nil && n < lookFor; e, n = e.Next(), n+1 {
			if e.Value.(*waiter).pool == m.pool { //nolint:forcetypeassert // it holds nothing else
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

// wait waits for a connection of p until x.Deadline, or until the caller is
// gone. It returns one, or nil with a slot taken. fresh asks for one that was
// not idle.
func (c *Cluster) wait(ctx context.Context, x *protocol.Exchange, p *pool, fresh bool) (*member, error) {
	w := &waiter{pool: p, grant: make(chan *member, 1)}
	if m, done := c.enqueue(w, fresh); done {
		return m, nil
	}
	var timeout <-chan time.Time
	if !x.Deadline.IsZero() {
		timer := time.NewTimer(time.Until(x.Deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	gone := make(chan struct{})
	if x.Caller != nil {
		stop := x.Caller.Watch(func() { close(gone) })
		defer stop()
	}
	var err error
	select {
	case m := <-w.grant:
		return m, nil
	case <-timeout:
		err = protocol.Faultf(protocol.UpstreamTimeout, "cluster %s: no connection became free; max_connections is %d", c.name, c.settings().Breakers.MaxConnections)
	case <-gone:
		err = protocol.Faultf(protocol.DownstreamGone, "client closed its connection while it waited for one to cluster %s", c.name)
	case <-ctx.Done():
		err = protocol.Faultf(protocol.DownstreamGone, "waiting for a connection to cluster %s: %w", c.name, context.Cause(ctx))
	}
	if !c.leave(w) {
		// It was granted something at the same moment: pass that on.
		if m := <-w.grant; m != nil {
			m.put()
		} else {
			c.freeSlot()
		}
	}
	return nil, err
}

// enqueue makes w wait, unless there is something for it at the last moment:
// then done is true, and the connection or slot is w's. An idle connection to
// another host gives way.
func (c *Cluster) enqueue(w *waiter, fresh bool) (m *member, done bool) {
	s := &c.slots
	s.mu.Lock()
	s.waiting.Add(1)
	done = s.take(c.settings().Breakers.MaxConnections)
	if !done && !fresh {
		m = w.pool.pop()
		done = m != nil
	}
	var giveWay *member
	if !done {
		giveWay = c.anyIdle()
		done = giveWay != nil
	}
	if done {
		s.waiting.Add(-1)
	} else {
		w.place = s.queue.PushBack(w)
	}
	s.mu.Unlock()
	if giveWay != nil {
		giveWay.end()
	}
	return m, done
}

// leave ends w's wait and reports true, or false if it was granted something
// before.
func (c *Cluster) leave(w *waiter) bool {
	s := &c.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.place == nil {
		return false
	}
	s.queue.Remove(w.place)
	s.waiting.Add(-1)
	return true
}

// anyIdle takes an idle connection from any of the cluster's pools.
func (c *Cluster) anyIdle() *member {
	for _, h := range c.state.Load().hosts {
		for p := h.pools.Load(); p != nil; p = p.next {
			if m := p.popOldest(); m != nil {
				return m
			}
		}
	}
	return nil
}
