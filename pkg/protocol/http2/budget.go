package http2

import (
	"math"
	"time"
)

// Flood names a pattern of frames that costs more than it asks for.
type Flood uint8

// The floods.
const (
	NoFlood           Flood = iota
	FloodRapidReset         // streams opened and reset by the peer immediately (CVE-2023-44487)
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

// RateLimit bounds how often something may happen on a connection: in bursts of Burst, and
// PerSecond times a second in the long run. The zero value means the default; a negative Burst
// means no bound.
type RateLimit struct {
	Burst     int
	PerSecond int
}

// FloodLimits bound what a peer may cost. Frames that are common in regular traffic are refunded by
// requests and content, as the fields say.
type FloodLimits struct {
	// Reset: RST_STREAM frames of the peer within 50 ms of the head of the stream, or on a closed
	// stream. Later ones and those of streams that the session opened cost nothing. Each stream
	// that got its complete response refunds one. Default 500, 50 a second.
	Reset RateLimit
	// MadeYouReset: StreamErrors passed to Fail, with the same exception. Each stream that got its
	// complete response refunds one. Default 200, 20 a second.
	MadeYouReset RateLimit
	// Settings: SETTINGS frames. Default 32, 2 a second.
	Settings RateLimit
	// Ping: PING frames, except acknowledgements of PING frames that the session sent. Each header
	// block received, and each DATA frame with content sent or received, refunds one. Default 100,
	// 10 a second.
	Ping RateLimit
	// EmptyData: DATA frames without content or END_STREAM. Each DATA frame with content refunds
	// one. Default 100, 10 a second.
	EmptyData RateLimit
	// WindowUpdate: WINDOW_UPDATE frames by less than 256 bytes. Each DATA frame sent that the
	// windows did not make tiny refunds two; each header block two. Default 1000, 100 a second.
	WindowUpdate RateLimit
	// Priority: PRIORITY, PRIORITY_UPDATE, GOAWAY and unknown frames. Each header block refunds
	// two. Default 500, 50 a second.
	Priority RateLimit
	// ContinuationFrames bounds the frames of one header block. Default 64.
	ContinuationFrames int
	// BlockBytes bounds the encoded size of a header block. A block above MaxHeaderListSize but
	// below this can still get a 431 response. Default four times MaxHeaderListSize, at least 64
	// KiB.
	BlockBytes int
}

// rapidResetWindow is how long a stream has to be open for its reset to be free.
// MaxConcurrentStreams bounds the streams that stay open for so long, to fewer than a peer may have
// served. Clients whose deadlines pass while a host hangs reset all their streams, on a connection
// that carries requests to other hosts.
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

// of returns the rate limit of a flood; Burst is -1 if it has none.
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

// floodBuckets are the token buckets of the floods. paid is the time since start at which
// everything spent is refunded: a token bucket in one word.
type floodBuckets struct {
	start time.Time
	paid  [floodCount]time.Duration
}

// spend takes one token of f's bucket; it returns false if there is none.
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

// earn refunds n tokens of f's bucket. A full bucket stays full.
func (m *floodBuckets) earn(f Flood, b RateLimit, n int) {
	m.paid[f] = max(0, m.paid[f]-time.Duration(n)*interval(b))
}

// resetSlots counts the streams that the peer reset before they got a complete response, as a token
// bucket like those of floodBuckets: until is the time at which no slot is held.
type resetSlots struct {
	start time.Time
	until time.Duration
}

// resetSlotHold is how long a reset stream holds a slot, of as many as the peer may have open: the
// upstream may not have noticed the reset, and nothing reports when it has. Clients whose deadlines
// pass have at most that many streams open, so those that wait for longer are never refused.
const resetSlotHold = 100 * time.Millisecond

// add holds one of most slots.
func (c *resetSlots) add(most uint32, now time.Time) {
	if c.start.IsZero() {
		c.start = now
	}
	one := resetSlotHold / time.Duration(most)
	c.until = min(max(c.until, now.Sub(c.start))+one, now.Sub(c.start)+resetSlotHold)
}

// full reports whether all of most slots are held.
func (c *resetSlots) full(most uint32, now time.Time) bool {
	return c.until > 0 && c.until-now.Sub(c.start) > resetSlotHold-resetSlotHold/time.Duration(most)
}

// earn releases a slot.
func (c *resetSlots) earn(most uint32) {
	if c.until > 0 {
		c.until = max(0, c.until-resetSlotHold/time.Duration(most))
	}
}

func interval(b RateLimit) time.Duration { return time.Second / time.Duration(max(1, b.PerSecond)) }

func flooded(f Flood, reason string) *ConnectionError {
	return &ConnectionError{Code: EnhanceYourCalm, Reason: reason, Flood: f}
}
