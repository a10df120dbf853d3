package network

import "time"

// CloseIdle is for overload: it drains the connections that have been parked for at least d. Each
// call records which connections are parked, so the first call drains none, and the caller should
// make several calls within d. A drained connection whose bytes have just arrived ends after its
// next exchange. CloseIdle returns how many connections it drains. ResetIdleTracking discards the
// records.
func (l *Listener) CloseIdle(now time.Time, d time.Duration) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle == nil {
		l.idle = make(map[*Conn]time.Time)
	}
	for c := range l.conns {
		state := c.state.load()
		if state&stateParked == 0 || state&stateDraining != 0 {
			delete(l.idle, c)
			continue
		}
		since, tracked := l.idle[c]
		switch {
		case !tracked || state&stateIdleSeen == 0: // not recorded yet, or busy since it was recorded
			c.state.apply(eventIdleSeen)
			l.idle[c] = now
		case now.Sub(since) >= d:
			delete(l.idle, c)
			c.drainOn(eventShedIdle)
			n++
		}
	}
	return n
}

// ResetIdleTracking discards the records of CloseIdle.
func (l *Listener) ResetIdleTracking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = nil
}
