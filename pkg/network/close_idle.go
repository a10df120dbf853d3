package network

import "time"

// CloseIdle drains the connections that have been parked for at least d, as earlier calls have
// recorded, because of overload. The first call ends none; the caller should call it several times
// within d. Connections with unread bytes stay. CloseIdle returns how many connections it has asked
// to end. ResetIdleTracking discards the records.
func (l *Listener) CloseIdle(now time.Time, d time.Duration) (ended int) {
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
		since, known := l.idle[c]
		switch {
		case !known || state&stateIdleSeen == 0: // it is new, or was busy meanwhile
			c.state.on(eventSeenIdle)
			l.idle[c] = now
		case now.Sub(since) >= d:
			delete(l.idle, c)
			c.drainOn(eventShedIdle)
			ended++
		}
	}
	return ended
}

// ResetIdleTracking discards the records of CloseIdle.
func (l *Listener) ResetIdleTracking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = nil
}
