package stream

import "time"

// Keepalive decides when to probe the silent host of a multiplexed connection, and when to give the
// host up. It does no I/O: the caller passes the time, sends the probes, and holds a lock of the
// connection.
type Keepalive struct {
	Interval  time.Duration // how long the host may be silent before a probe; 0: no probes
	Timeout   time.Duration // how long a probe waits for a response; any bytes count as a response
	MaxMissed int           // number of consecutive probes without a response after which the host has failed; 0 means 1

	missed   int       // consecutive probes without a response at the last Check
	probedAt time.Time // when the last probe was sent
}

// KeepaliveAction is what the caller of Keepalive.Check has to do.
type KeepaliveAction uint8

// The actions.
const (
	KeepaliveWait  KeepaliveAction = iota // nothing
	KeepaliveProbe                        // send a probe
	KeepaliveFail                         // close the connection
)

// Check returns what to do now, and when to call Check again if the host sends nothing; the zero
// time: never. lastRead is when the host last sent something.
func (k *Keepalive) Check(now, lastRead time.Time) (action KeepaliveAction, next time.Time) {
	if k.Interval <= 0 {
		return KeepaliveWait, time.Time{}
	}
	if !lastRead.Before(k.probedAt) {
		k.missed = 0
	}
	next = lastRead.Add(k.Interval)
	if k.missed > 0 {
		next = k.probedAt.Add(k.Timeout)
	}
	switch {
	case now.Before(next):
		return KeepaliveWait, next
	case k.missed >= max(k.MaxMissed, 1):
		return KeepaliveFail, time.Time{}
	}
	k.missed++
	k.probedAt = now
	return KeepaliveProbe, now.Add(k.Timeout)
}
