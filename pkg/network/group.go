package network

import (
	"context"
	"sync"
	"time"
)

// ConnGroup is a set of connections that end together while their listener continues: those
// of one filter chain. The zero value accepts connections. Safe for concurrent use.
type ConnGroup struct {
	mu    sync.Mutex
	size  int           // guarded by mu; connections
	ended bool          // guarded by mu; no connection may join any more
	empty chan struct{} // guarded by mu; closed once ended is set and the last connection has left; nil: not needed
}

// Join moves c from its group to g. It returns false and changes nothing if g has ended. The
// handler calls it before it serves c.
func (g *ConnGroup) Join(c *Conn) bool {
	before, ok := g.add(c)
	if before != nil {
		before.remove()
	}
	return ok
}

// leaveGroup removes c from its group.
func leaveGroup(c *Conn) {
	if before := c.group.Swap(nil); before != nil {
		before.remove()
	}
}

// add puts c into g unless g has ended, and returns the previous group of c; nil: none. It
// does so under mu, so that the goroutine that ends g finds all connections that have
// joined.
func (g *ConnGroup) add(c *Conn) (before *ConnGroup, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil, false
	}
	g.size++
	return c.group.Swap(g), true
}

func (g *ConnGroup) remove() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size--
	g.closeIfEmpty()
}

// closeIfEmpty closes empty once g has ended and has no connections. The caller holds mu.
func (g *ConnGroup) closeIfEmpty() {
	if g.size == 0 && g.ended && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// end lets no more connections join, and returns a channel that is closed when the last one
// has left.
func (g *ConnGroup) end() (empty <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := make(chan struct{})
	g.ended, g.empty = true, done
	g.closeIfEmpty()
	return done
}

// DrainGroupAfterNext ends g: each of its connections ends after its next exchange.
func (l *Listener) DrainGroupAfterNext(g *ConnGroup) {
	g.end()
	l.forEachConn(func(c *Conn) {
		if c.group.Load() == g {
			c.Drain(false)
		}
	})
}

// DrainGroup ends g as Drain ends all connections: idle ones now, busy ones after their
// current exchange. Connections without an exchange end after their first one, because a
// client does not expect a new connection to be idle. When ctx ends, DrainGroup closes the
// remaining connections. It returns, once all have ended, how many of those were not idle.
func (l *Listener) DrainGroup(ctx context.Context, g *ConnGroup) (cut int) {
	return l.drain(ctx, g.end(), true, func(c *Conn) bool { return c.group.Load() == g })
}

// drain ends the connections for which meant returns true; done is closed when all of them
// have ended. With await, connections without an exchange end after their first one, unless
// ctx is about to end.
func (l *Listener) drain(ctx context.Context, done <-chan struct{}, await bool, meant func(*Conn) bool) (cut int) {
	each := func(f func(*Conn)) {
		l.forEachConn(func(c *Conn) {
			if meant(c) {
				f(c)
			}
		})
	}
	if ctx.Err() != nil { // no time is left to drain
		each(func(c *Conn) {
			if !c.state.load().idle() {
				cut++
			}
			c.forceClose()
		})
		<-done
		return cut
	}
	begin := eventDrainNow
	if await {
		begin = eventDrainAwaitFirst
	}
	each(func(c *Conn) { c.drainOn(begin) })
	last := func() { each(func(c *Conn) { c.drainOn(eventDrainExpiring) }) }
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		defer time.AfterFunc(left-min(left/4, drainExpiryLead), last).Stop()
	}
	select {
	case <-done:
		return 0
	case <-ctx.Done():
	}
	each(func(c *Conn) {
		if !c.state.load().idle() {
			cut++
		}
		c.forceClose()
	})
	<-done
	return cut
}
