package http2

import (
	"math"
	"time"
)

// Flood names a way in which a peer costs more than it asks for.
type Flood uint8

// The floods.
const (
	NoFlood           Flood = iota
	FloodRapidReset         // streams opened and reset by the peer at once (CVE-2023-44487)
	FloodMadeYouReset       // streams that the peer makes us reset (CVE-2025-8671)
	FloodContinuation       // a header block of many or large CONTINUATION frames
	FloodSettings           // SETTINGS, each to be acknowledged
	FloodPing               // PING frames, and acknowledgements of PING frames that were not sent
	FloodEmptyData          // DATA without content that ends nothing
	FloodWindowUpdate       // WINDOW_UPDATE that let hardly anything through
	FloodPriority           // PRIORITY, PRIORITY_UPDATE, GOAWAY and frames of unknown types
	FloodSource             // what all connections of one source address cost together (Session.TakeCharges)
	FloodListener           // what all connections of one listener cost together

	floodCount
)

//nolint:gochecknoglobals // a constant table
var floodNames = [floodCount]string{
	NoFlood:           "none",
	FloodRapidReset:   "rapid_reset",
	FloodMadeYouReset: "made_reset",
	FloodContinuation: "continuation",
	FloodSettings:     "settings",
	FloodPing:         "ping",
	FloodEmptyData:    "empty_data",
	FloodWindowUpdate: "window_update",
	FloodPriority:     "priority",
	FloodSource:       "source",
	FloodListener:     "listener",
}

// String returns the flood's name as it is in metrics.
func (f Flood) String() string { return floodNames[f] }

// RateLimit bounds how often something may happen on a connection: Burst times at
// once, and PerSecond times a second in the long run. The zero value is replaced
// by the default; a negative Burst means no bound.
type RateLimit struct {
	Burst     int
	PerSecond int
}

// FloodLimits bound what a peer may cost. Work earns: what is common in honest
// traffic beside requests and contents is paid back by them, as the fields say.
type FloodLimits struct {
	// Reset: RST_STREAM frames of the peer within 50 ms of the head of the stream, or
	// when it is closed; later ones cost nothing, and neither do those of streams that
	// the session opened. Each stream that was answered in full pays for one. Default
	// 500, 50 a second.
	Reset RateLimit
	// MadeYouReset: StreamErrors given to Fail, with the same exception. Each stream that
	// was answered in full pays for one. Default 200, 20 a second.
	MadeYouReset RateLimit
	// Settings: SETTINGS frames. Default 32, 2 a second.
	Settings RateLimit
	// Ping: PING frames, except acknowledgements of PING frames that the session sent. Each header block received, and each DATA
	// frame with content either way, pays for one. Default 100, 10 a second.
	Ping RateLimit
	// EmptyData: DATA frames without content or END_STREAM. Each DATA frame with
	// content pays for one. Default 100, 10 a second.
	EmptyData RateLimit
	// WindowUpdate: WINDOW_UPDATE frames by less than 256 bytes. Each DATA frame sent
	// that the windows did not make tiny pays for two; each header block for two.
	// Default 1000, 100 a second.
	WindowUpdate RateLimit
	// Priority: PRIORITY, PRIORITY_UPDATE, GOAWAY and unknown frames. Each header block
	// pays for two. Default 500, 50 a second.
	Priority RateLimit
	// ContinuationFrames bounds the frames of one header block. Default 64.
	ContinuationFrames int
	// BlockBytes bounds a header block as it is on the wire. What is above
	// MaxHeaderListSize but below this can still be answered with 431. Default four
	// times MaxHeaderListSize, at least 64 KiB.
	BlockBytes int
}

// rapidResetWindow is how long a stream has to be open for its reset to be no attack. Streams
// that are open for so long are as many as MaxConcurrentStreams lets be, which is less
// than a peer may have answered; and callers whose deadlines pass while a host hangs
// reset all of theirs, on a connection that carries calls to other hosts.
const rapidResetWindow = 50 * time.Millisecond

func (b *FloodLimits) setDefaults(maxHeaderList uint32) {
	for _, d := range [...]struct {
		of *RateLimit
		is RateLimit
	}{
		{&b.Reset, RateLimit{500, 50}},
		{&b.MadeYouReset, RateLimit{200, 20}},
		{&b.Settings, RateLimit{32, 2}},
		{&b.Ping, RateLimit{100, 10}},
		{&b.EmptyData, RateLimit{100, 10}},
		{&b.WindowUpdate, RateLimit{1000, 100}},
		{&b.Priority, RateLimit{500, 50}},
	} {
		if *d.of == (RateLimit{}) {
			*d.of = d.is
		}
	}
	if b.ContinuationFrames == 0 {
		b.ContinuationFrames = 64
	}
	if b.BlockBytes == 0 {
		b.BlockBytes = max(64<<10, 4*int(min(maxHeaderList, math.MaxInt32/4)))
	}
}

// of returns the budget of a flood; those that are no rates have none.
func (b *FloodLimits) of(f Flood) RateLimit {
	switch f {
	case FloodRapidReset:
		return b.Reset
	case FloodMadeYouReset:
		return b.MadeYouReset
	case FloodSettings:
		return b.Settings
	case FloodPing:
		return b.Ping
	case FloodEmptyData:
		return b.EmptyData
	case FloodWindowUpdate:
		return b.WindowUpdate
	case FloodPriority:
		return b.Priority
	default:
		return RateLimit{Burst: -1}
	}
}

// floodBuckets count what was spent of the budgets. One is the time, since the first
// that the session was told, at which everything spent is paid back: a token
// bucket in one word.
type floodBuckets struct {
	start time.Time
	paid  [floodCount]time.Duration
}

// spend takes one of f's budget. false: it is used up.
func (m *floodBuckets) spend(f Flood, b RateLimit, now time.Time) bool {
	if b.Burst < 0 {
		return true
	}
	if m.start.IsZero() {
		m.start = now
	}
	elapsed := now.Sub(m.start)
	one := interval(b)
	paid := max(m.paid[f], elapsed) + one
	if paid-elapsed > time.Duration(b.Burst)*one {
		return false
	}
	m.paid[f] = paid
	return true
}

// earn gives n back of f's budget. Nothing is saved for later: a bucket that is
// full stays full.
func (m *floodBuckets) earn(f Flood, b RateLimit, n int) {
	m.paid[f] = max(0, m.paid[f]-time.Duration(n)*interval(b))
}

// resetSlots counts the streams that the peer reset before their answers were whole,
// as a token bucket like those of meters: until is the time at which none is held
// any more.
type resetSlots struct {
	start time.Time
	until time.Duration
}

// resetSlotHold is how long a stream that was reset goes on holding a place, of as many
// as the peer may have open: whoever works on it, at the other end of the proxy, may
// not have noticed, and nothing tells when it has. Callers whose deadlines pass have
// as many streams at once at most, so that those who wait for longer are never
// refused.
const resetSlotHold = 100 * time.Millisecond

// add holds a place of most.
func (c *resetSlots) add(most uint32, now time.Time) {
	if c.start.IsZero() {
		c.start = now
	}
	one := resetSlotHold / time.Duration(most)
	c.until = min(max(c.until, now.Sub(c.start))+one, now.Sub(c.start)+resetSlotHold)
}

// full reports whether all places of most are held.
func (c *resetSlots) full(most uint32, now time.Time) bool {
	return c.until > 0 && c.until-now.Sub(c.start) > resetSlotHold-resetSlotHold/time.Duration(most)
}

// earn gives a place back.
func (c *resetSlots) earn(most uint32) {
	if c.until > 0 {
		c.until = max(0, c.until-resetSlotHold/time.Duration(most))
	}
}

func interval(b RateLimit) time.Duration { return time.Second / time.Duration(max(1, b.PerSecond)) }

func flooded(f Flood, reason string) *ConnectionError {
	return &ConnectionError{Code: EnhanceYourCalm, Reason: reason, Flood: f}
}
