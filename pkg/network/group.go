package network

import (
	"context"
	"sync"
	"time"
)

// ConnGroup is connections of a listener that end together while the listener goes on:
// those that took one of its filter chains. The zero value is open. Safe for concurrent
// use.
type ConnGroup struct {
	mu    sync.Mutex
	size  int           // guarded by mu; connections
	shut  bool          // guarded by mu; none joins any more
	empty chan struct{} // guarded by mu; closed when it is shut and the last has left; nil: nobody waits
}

// JoinGroup makes c one of g's, and of no other's. false: g has been ended, and nothing has
// changed. The handler's, before it serves c.
func (c *Conn) JoinGroup(g *ConnGroup) bool {
	before, ok := g.add(c)
	if before != nil {
		before.remove()
	}
	return ok
}

// leave makes c one of nobody's.
func (c *Conn) leave() {
	if before := c.group.Swap(nil); before != nil {
		before.remove()
	}
}

// add makes c one of g's unless g has been ended, and returns whose it was; nil: of
// nobody's. Under mu, so that whoever ends g finds all who have entered.
func (g *ConnGroup) add(c *Conn) (before *ConnGroup, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, false
	}
	g.size++
	return c.group.Swap(g), true
}

func (g *ConnGroup) remove() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size--
	g.settle()
}

// settle tells who waits for the end that it has come. Called under mu.
func (g *ConnGroup) settle() {
	if g.size == 0 && g.shut && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// end lets nobody join any more, and returns what is closed when the last has left.
func (g *ConnGroup) end() (empty <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := make(chan struct{})
	g.shut, g.empty = true, done
	g.settle()
	return done
}

// DrainGroupAfterNext ends g: each of its connections ends after its next exchange.
func (l *Listener) DrainGroupAfterNext(g *ConnGroup) {
	g.end()
	l.each(func(c *Conn) {
		if c.group.Load() == g {
			c.Drain(false)
		}
	})
}

// DrainGroup ends g as Drain ends all: idle connections now, busy ones after the
// exchange that they are in. Those that have had none yet have their first: to callers, a
// connection that is new is no idle one. What is left when ctx ends is closed. It returns,
// once all have ended, how many of them were closed while they were not idle.
func (l *Listener) DrainGroup(ctx context.Context, g *ConnGroup) (cut int) {
	return l.drain(ctx, g.end(), true, func(c *Conn) bool { return c.group.Load() == g })
}

// drain ends the connections that are meant, of which done says that all have ended;
// await: those that have had no exchange yet end after their first, unless ctx is about
// to end.
func (l *Listener) drain(ctx context.Context, done <-chan struct{}, await bool, meant func(*Conn) bool) (cut int) {
	each := func(f func(*Conn)) {
		l.each(func(c *Conn) {
			if meant(c) {
				f(c)
			}
		})
	}
	if ctx.Err() != nil { // there is no time to end in
		each(func(c *Conn) {
			if c.state.Load()&stateIdle == 0 {
				cut++
			}
			c.forceClose()
		})
		<-done
		return cut
	}
	each(func(c *Conn) {
		if await {
			c.state.Or(stateAwaited)
		} else {
			c.state.And(^uint32(stateAwaited))
		}
		c.Drain(true)
	})
	last := func() {
		each(func(c *Conn) {
			c.state.Or(stateEnding)
			c.state.And(^uint32(stateAwaited))
			c.Drain(true)
		})
	}
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		defer time.AfterFunc(left-min(left/4, lastAnswers), last).Stop()
	}
	select {
	case <-done:
		return 0
	case <-ctx.Done():
	}
	each(func(c *Conn) {
		if c.state.Load()&stateIdle == 0 {
			cut++
		}
		c.forceClose()
	})
	<-done
	return cut
}
