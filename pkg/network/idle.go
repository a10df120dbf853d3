package network

import "time"

// States of a Conn in addition to those in conn.go.
const (
	stateParked   = 1 << (16 + iota) // the listener waits instead of the handler
	stateIdleSeen                    // the connection has been parked since CloseIdle last saw it, or longer
	stateShed                        // the connection ends because of overload
)

// Shed asks the connection to end after its current exchange, or its next one, because of
// overload. Safe from any goroutine.
func (c *Conn) Shed() {
	c.state.Or(stateShed)
	c.Drain(false)
}

// ListenerDraining reports whether the current exchange is the last because the listener or
// the filter chain drains, and not because of Shed or CloseIdle. Safe from any goroutine.
func (c *Conn) ListenerDraining() bool { return c.Draining() && c.state.Load()&stateShed == 0 }

// CloseIdle ends connections that have been parked for at least d, as far as earlier calls
// have seen. The first call ends none; the caller should call it several times within d.
// Connections with unread bytes stay. It returns how many it has asked to end.
// ResetIdleTracking discards what it has seen.
func (l *Listener) CloseIdle(now time.Time, d time.Duration) (ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle == nil {
		l.idle = make(map[*Conn]time.Time)
	}
	for c := range l.conns {
		state := c.state.Load()
		if state&stateParked == 0 || state&stateDraining != 0 {
			delete(l.idle, c)
			continue
		}
		since, known := l.idle[c]
		switch {
		case !known || state&stateIdleSeen == 0: // it is new, or was busy meanwhile
			c.state.Or(stateIdleSeen)
			l.idle[c] = now
		case now.Sub(since) >= d:
			delete(l.idle, c)
			c.state.Or(stateShed)
			c.Drain(true)
			ended++
		}
	}
	return ended
}

// ResetIdleTracking discards what CloseIdle has seen.
func (l *Listener) ResetIdleTracking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = nil
}
