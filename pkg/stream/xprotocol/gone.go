package xprotocol

import (
	"context"
	"time"
)

// close abandons the requests in flight, because the client has disconnected, and waits for them to
// end. One-way requests run to their end. Responses already in the batch are still sent.
func (c *downstreamConn) close(cancel context.CancelFunc) {
	c.in.release()
	c.dropFresh()
	c.batch.flush()
	cancel()
	if c.count() > 0 {
		_ = c.conn.Close() // the listener closes it again
		stop := c.abandonLasting()
		c.mu.Lock()
		c.waits.Store(true)
		for c.count() > 0 {
			c.fewer.Wait()
		}
		c.mu.Unlock()
		stop()
	}
	for _, r := range c.allRequests { // the reader is the only goroutine left
		c.s.engine.give(r)
	}
	c.outbox.Close()
}

// dropFresh ends the requests that have not started. It starts one-way requests, because their
// client expects no response.
func (c *downstreamConn) dropFresh() {
	for r := c.takeFresh(); r != nil; r = c.takeFresh() {
		if r.oneWay() && !c.rejecting {
			r.serve(&c.batch)
		} else {
			r.cancel(&c.batch)
		}
	}
}

// abandonLasting notifies every request in flight that its client has disconnected, but one-way
// requests only once the drain deadline is near or their context has ended. stop cancels that.
func (c *downstreamConn) abandonLasting() (stop func()) {
	over := c.lasting.Err() != nil || c.conn.DrainExpiring()
	if !c.abandon(over) {
		return func() {}
	}
	done := make(chan struct{})
	cancel := context.AfterFunc(c.lasting, func() {
		defer close(done)
		defer c.s.engine.contain("canceling one-way requests")
		c.abandon(true)
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}

// abandon notifies every request in flight that its client has disconnected, but one-way requests
// only if all is true. It reports whether it left any out.
func (c *downstreamConn) abandon(all bool) (others bool) {
	idle := map[*request]bool{}
	for _, first := range [...]*request{c.freeRequests, c.returnedRequests.Load()} {
		for r := first; r != nil; r = r.next {
			idle[r] = true
		}
	}
	var pending []waiting
	for _, r := range c.allRequests {
		switch {
		case idle[r]:
			continue
		case r.oneWay() && !all:
			others = true
			continue
		}
		for _, on := range [...]waiting{r.sent, r.watch.NotifyDisconnect(c.s.engine.start)} {
			if on.client != nil {
				pending = append(pending, on)
			}
		}
	}
	c.batch.now = time.Now()
	for _, on := range pending {
		on.client.abandon(on.id, &c.batch)
	}
	c.batch.flush()
	return others
}
