package network

// Drain asks the connection to end after its current exchange. With closeIdle, an idle connection
// ends now, unless bytes of an exchange have arrived or a drain waits for the first exchange.
// Without closeIdle, an idle connection ends after its next exchange. Safe from any goroutine.
func (c *Conn) Drain(closeIdle bool) {
	if !closeIdle {
		c.state.apply(eventDrainAfterNext)
		return
	}
	c.drainOn(eventDrain)
}

// drainOn applies an event that drains the connection, and wakes its reader if it is idle.
func (c *Conn) drainOn(e connEvent) {
	if c.state.apply(e).drainingWhileIdle() {
		_ = c.nc.SetReadDeadline(aLongTimeAgo())
	}
}

// Shed asks the connection to end after its current exchange, or its next one, because of overload.
// Safe from any goroutine.
func (c *Conn) Shed() { c.state.apply(eventShed) }

// Draining reports whether the connection ends after its current exchange.
func (c *Conn) Draining() bool { return c.state.load().endsAfterExchange() }

// ListenerDraining reports whether the connection ends after its current exchange because the
// listener or the filter chain drains. After Shed or CloseIdle it returns false. Safe from any
// goroutine.
func (c *Conn) ListenerDraining() bool {
	state := c.state.load()
	return state.endsAfterExchange() && state&stateShed == 0
}

// DrainExpiring reports whether the drain deadline is near: a handler with exchanges in flight then
// reads no more requests.
func (c *Conn) DrainExpiring() bool { return c.state.load()&stateDrainExpiring != 0 }

// SetIdle sets whether the reader waits between exchanges; Drain wakes a waiting reader. SetIdle
// returns ErrDraining when the connection must end instead of waiting. The reading goroutine calls
// SetIdle.
func (c *Conn) SetIdle(idle bool) error {
	if !idle {
		c.state.apply(eventBusy)
		return nil
	}
	e := eventIdle
	if c.Requests > 0 {
		e = eventIdleAfterExchange
	}
	if c.state.apply(e).drainingWhileIdle() {
		return c.checkDrained()
	}
	return nil
}

// checkDrained returns ErrDraining for an idle connection that must end. If bytes of another
// exchange have arrived meanwhile, it marks the connection as busy and returns nil.
func (c *Conn) checkDrained() error {
	if c.reader.unread.buf == nil && !c.hasBytes() {
		return ErrDraining
	}
	c.state.apply(eventBusy)
	return nil
}

// Interrupt makes the reader return ErrInterrupted, now or when it next waits, until Resume. Safe
// from any goroutine.
func (c *Conn) Interrupt() {
	c.state.apply(eventInterrupt)
	_ = c.nc.SetReadDeadline(aLongTimeAgo())
}

// Resume ends an interruption. No goroutine may read during the call.
func (c *Conn) Resume() {
	c.state.apply(eventResume)
	d := &c.reader.deadline
	d.armed = d.want
	c.armRead(d.want.time())
}

// forceClose closes a connection that did not drain in time. Safe from any goroutine.
func (c *Conn) forceClose() {
	c.state.apply(eventForceClose)
	_ = c.closeWithoutNotify() // it may already be closed
}
