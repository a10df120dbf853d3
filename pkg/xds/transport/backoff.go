package transport

import (
	"math/rand/v2"
	"time"
)

// Bounds of a Backoff.
const (
	MinBackoff = 500 * time.Millisecond
	MaxBackoff = 30 * time.Second
)

// Backoff computes the waits between attempts to keep a session open. A wait doubles from
// MinBackoff to MaxBackoff and has a jitter of up to half. Its zero value is ready for use.
type Backoff struct{ pause time.Duration }

// Next returns how long to wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.pause = min(max(2*b.pause, MinBackoff), MaxBackoff)
	return b.pause/2 + rand.N(b.pause/2) //nolint:gosec // a jitter
}

// ResetAfter makes the next wait the shortest if the last session took longer than MaxBackoff.
func (b *Backoff) ResetAfter(session time.Duration) {
	if session > MaxBackoff {
		b.pause = 0
	}
}
