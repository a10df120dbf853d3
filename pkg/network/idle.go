package network

import "time"

// States of a Conn beside those in conn.go.
const (
	stateParked   = 1 << (16 + iota) // the listener waits in the handler's stead
	stateIdleSeen                    // it is parked since CloseIdle looked at it last, or longer
	stateShed                        // it ends because the process is short of something
)

// Shed asks for the connection's end after the exchange that it is in, or its next
// one, because the process is short of something. Safe from any goroutine.
func (c *Conn) Shed() {
	c.state.Or(stateShed)
	c.Drain(false)
}

// ListenerDraining reports whether the exchange being served is to be the last because whoever
// serves it goes, and not because of Shed or CloseIdle. Safe from any goroutine.
func (c *Conn) ListenerDraining() bool { return c.Draining() && c.state.Load()&stateShed == 0 }

// CloseIdle ends the connections that carry nothing and have said nothing for at least
// d, as far as earlier calls have seen: the first call ends none, and calls should come
// some times within d. Those on which more is on its way stay. It returns how many it
// has asked to end. ResetIdleTracking drops what was seen.
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
		case !known || state&stateIdleSeen == 0: // it was busy meanwhile
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

// ResetIdleTracking drops what CloseIdle has seen.
func (l *Listener) ResetIdleTracking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = nil
}
