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

// Backoff computes the delays between attempts to keep a session open. The delay doubles from
// MinBackoff to MaxBackoff, and a random jitter shortens it by up to half. The zero value is ready
// for use.
type Backoff struct{ delay time.Duration }

// Next returns the delay before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.delay = min(max(2*b.delay, MinBackoff), MaxBackoff)
	return b.delay/2 + rand.N(b.delay/2) //nolint:gosec // a jitter
}

// ResetAfter resets the next delay to MinBackoff if the last session lasted longer than MaxBackoff.
func (b *Backoff) ResetAfter(session time.Duration) {
	if session > MaxBackoff {
		b.delay = 0
	}
}
