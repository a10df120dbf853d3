package network

import (
	"context"
	"sync"
	"time"
)

// ConnGroup is a set of connections that end together while their listener continues: the
// connections of one filter chain. The zero value accepts connections. Safe for concurrent use.
type ConnGroup struct {
	mu    sync.Mutex
	size  int           // guarded by mu; number of connections
	ended bool          // guarded by mu; no connection may join any more
	empty chan struct{} // guarded by mu; closed when the last connection leaves after end; nil before end and after the close
}

// Join moves c from its group to g. It returns false and changes nothing if g has ended. The
// listener or a handler calls it before it serves c.
func (g *ConnGroup) Join(c *Conn) bool {
	previous, ok := g.add(c)
	if previous != nil {
		previous.remove()
	}
	return ok
}

// leaveGroup removes c from its group.
func leaveGroup(c *Conn) {
	if previous := c.group.Swap(nil); previous != nil {
		previous.remove()
	}
}

// add puts c into g unless g has ended, and returns the previous group of c; nil: none. It does
// both under mu, so that a goroutine that has called end finds all connections of g.
func (g *ConnGroup) add(c *Conn) (previous *ConnGroup, ok bool) {
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

// end prevents further connections from joining, and returns a channel that is closed when the last
// one has left. A second call replaces the channel of the first, which may then stay open.
func (g *ConnGroup) end() (empty <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := make(chan struct{})
	g.ended, g.empty = true, done
	g.closeIfEmpty()
	return done
}

// DrainGroupAfterNext ends g: each of its connections ends after its current exchange, or after its
// next one if it is idle.
func (l *Listener) DrainGroupAfterNext(g *ConnGroup) {
	g.end()
	l.forEachConn(func(c *Conn) {
		if c.group.Load() == g {
			c.Drain(false)
		}
	})
}

// DrainGroup ends g as Drain ends all connections: idle ones now, busy ones after their current
// exchange. Connections without an exchange end after their first one, because the client does not
// expect a new connection to close. When ctx ends, DrainGroup force-closes the remaining
// connections. Once all have ended, it returns how many of the force-closed connections were not
// idle.
func (l *Listener) DrainGroup(ctx context.Context, g *ConnGroup) (forceClosed int) {
	return l.drain(ctx, g.end(), 0, func(c *Conn) bool { return c.group.Load() == g })
}

// drain ends the connections for which matches returns true; done is closed when all of them have
// ended. Connections without an exchange end after their first one, unless ctx is about to end. If
// firstExchange is not 0, they end after that time at the latest.
func (l *Listener) drain(ctx context.Context, done <-chan struct{}, firstExchange time.Duration, matches func(*Conn) bool) (forceClosed int) {
	forEach := func(f func(*Conn)) {
		l.forEachConn(func(c *Conn) {
			if matches(c) {
				f(c)
			}
		})
	}
	if ctx.Err() != nil { // the drain deadline has passed
		forEach(func(c *Conn) {
			if !c.state.load().idle() {
				forceClosed++
			}
			c.forceClose()
		})
		<-done
		return forceClosed
	}
	forEach(func(c *Conn) { c.drainOn(eventDrainAwaitFirst) })
	if firstExchange > 0 {
		endUnused := func() { forEach(func(c *Conn) { c.drainOn(eventDrainNow) }) }
		defer time.AfterFunc(firstExchange, endUnused).Stop()
	}
	expire := func() { forEach(func(c *Conn) { c.drainOn(eventDrainExpiring) }) }
	if deadline, ok := ctx.Deadline(); ok {
		remaining := time.Until(deadline)
		defer time.AfterFunc(remaining-min(remaining/4, drainExpiryLead), expire).Stop()
	}
	select {
	case <-done:
		return 0
	case <-ctx.Done():
	}
	forEach(func(c *Conn) {
		if !c.state.load().idle() {
			forceClosed++
		}
		c.forceClose()
	})
	<-done
	return forceClosed
}
