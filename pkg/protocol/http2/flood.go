package http2

import (
	"math"
	"time"
)

// Flood is a pattern of frames that costs the receiver more than the sender.
type Flood uint8

// The floods.
const (
	NoFlood           Flood = iota
	FloodRapidReset         // streams that the peer opens and resets immediately (CVE-2023-44487)
	FloodMadeYouReset       // streams that the peer makes us reset (CVE-2025-8671)
	FloodContinuation       // a header block that is too large or has too many CONTINUATION frames
	FloodSettings           // SETTINGS frames and their acknowledgements
	FloodPing               // PING frames, and acknowledgements of PING frames that were not sent
	FloodEmptyData          // DATA frames with neither data nor END_STREAM
	FloodWindowUpdate       // WINDOW_UPDATE frames with small increments
	FloodPriority           // PRIORITY, PRIORITY_UPDATE, GOAWAY and frames of unknown types
	FloodSource             // charges of all connections of one address (Session.TakeCharges)
	FloodListener           // charges of all connections of one listener

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

// String returns the flood's name in metrics.
func (f Flood) String() string { return floodNames[f] }

// RateLimit bounds how often an event may occur on a connection: in bursts of up to Burst, and
// PerSecond times a second in the long run. The zero value means the default. A negative Burst
// means no limit.
type RateLimit struct {
	Burst     int
	PerSecond int
}

// FloodLimits bound the cost that the peer of one connection may cause. Each event that a RateLimit
// describes takes a token. Regular traffic also contains such events, so requests and DATA frames
// refund tokens.
type FloodLimits struct {
	// Reset: RST_STREAM frames of the peer within 50 ms of the head of the stream, or on a closed
	// stream. Resets of older streams and of open streams that the session opened take no token.
	// Each stream that both sides ended refunds one token. Default: Burst 500, PerSecond 50.
	Reset RateLimit
	// MadeYouReset: StreamErrors passed to Fail, except those of open streams that the session
	// opened. Each stream that both sides ended refunds one token. Default: Burst 200, PerSecond
	// 20.
	MadeYouReset RateLimit
	// Settings: SETTINGS frames, acknowledgements included. Default: Burst 32, PerSecond 2.
	Settings RateLimit
	// Ping: PING frames, except acknowledgements of PING frames that the session sent. Each header
	// block received, and each nonempty DATA frame sent or received, refunds one token. Default:
	// Burst 100, PerSecond 10.
	Ping RateLimit
	// EmptyData: DATA frames with neither data nor END_STREAM. Each nonempty DATA frame received
	// refunds one token. Default: Burst 100, PerSecond 10.
	EmptyData RateLimit
	// WindowUpdate: WINDOW_UPDATE frames with an increment below 256 bytes. Each DATA frame sent
	// refunds two tokens, unless the windows limit it to less than 256 bytes. Each header block
	// received refunds two tokens. Default: Burst 1000, PerSecond 100.
	WindowUpdate RateLimit
	// Priority: PRIORITY, PRIORITY_UPDATE, GOAWAY and unknown frames. Each header block received
	// refunds two tokens. Default: Burst 500, PerSecond 50.
	Priority RateLimit
	// ContinuationFrames bounds the CONTINUATION frames of one header block. Default 64.
	ContinuationFrames int
	// BlockBytes bounds the encoded size of a header block. A block above MaxHeaderListSize but
	// below this can still get a 431 response. Default four times MaxHeaderListSize, at least 64
	// KiB.
	BlockBytes int
}

// rapidResetWindow is the time after the head of a stream in which a reset takes a token. Later
// resets are free: if a host hangs, a client resets many streams when its deadlines pass, and the
// connection also carries requests to other hosts. MaxConcurrentStreams bounds the rate of late
// resets.
const rapidResetWindow = 50 * time.Millisecond

func (l *FloodLimits) setDefaults(maxHeaderList uint32) {
	for _, d := range [...]struct {
		limit *RateLimit
		value RateLimit
	}{
		{&l.Reset, RateLimit{500, 50}},
		{&l.MadeYouReset, RateLimit{200, 20}},
		{&l.Settings, RateLimit{32, 2}},
		{&l.Ping, RateLimit{100, 10}},
		{&l.EmptyData, RateLimit{100, 10}},
		{&l.WindowUpdate, RateLimit{1000, 100}},
		{&l.Priority, RateLimit{500, 50}},
	} {
		if *d.limit == (RateLimit{}) {
			*d.limit = d.value
		}
	}
	if l.ContinuationFrames == 0 {
		l.ContinuationFrames = 64
	}
	if l.BlockBytes == 0 {
		l.BlockBytes = max(64<<10, 4*int(min(maxHeaderList, math.MaxInt32/4)))
	}
}

// rateLimit returns the rate limit of f; Burst is -1 if f has no rate limit.
func (l *FloodLimits) rateLimit(f Flood) RateLimit {
	switch f {
	case FloodRapidReset:
		return l.Reset
	case FloodMadeYouReset:
		return l.MadeYouReset
	case FloodSettings:
		return l.Settings
	case FloodPing:
		return l.Ping
	case FloodEmptyData:
		return l.EmptyData
	case FloodWindowUpdate:
		return l.WindowUpdate
	case FloodPriority:
		return l.Priority
	default:
		return RateLimit{Burst: -1}
	}
}

// floodBuckets holds a token bucket for each flood. A bucket is one word, fullAt: the time,
// measured from start, at which the bucket is full again.
type floodBuckets struct {
	start  time.Time
	fullAt [floodCount]time.Duration
}

// take takes one token of f's bucket. It returns false if the bucket is empty.
func (b *floodBuckets) take(f Flood, limit RateLimit, now time.Time) bool {
	if limit.Burst < 0 {
		return true
	}
	if b.start.IsZero() {
		b.start = now
	}
	elapsed := now.Sub(b.start)
	interval := refillInterval(limit)
	full := max(b.fullAt[f], elapsed) + interval
	if full-elapsed > time.Duration(limit.Burst)*interval {
		return false
	}
	b.fullAt[f] = full
	return true
}

// refund returns n tokens to f's bucket. A full bucket stays full.
func (b *floodBuckets) refund(f Flood, limit RateLimit, n int) {
	b.fullAt[f] = max(0, b.fullAt[f]-time.Duration(n)*refillInterval(limit))
}

// resetSlots counts the streams that the peer reset before they got a complete response. Like a
// token bucket, the counter is one word, allFreeAt: the time, measured from start, at which no slot
// is held.
type resetSlots struct {
	start     time.Time
	allFreeAt time.Duration
}

// resetSlotsRefillTime is the time in which all MaxConcurrentStreams slots become free, one after
// the other. The upstream may still process a reset request, and nothing reports when it stops, so
// the session assumes that it stops within this time. A client whose deadlines are longer than this
// time cannot hold all slots for long: MaxConcurrentStreams also bounds its open streams, so it
// takes slots more slowly than they are released.
const resetSlotsRefillTime = 100 * time.Millisecond

// acquire takes a slot, unless all are held. slots is the total number of slots.
func (r *resetSlots) acquire(slots uint32, now time.Time) {
	if r.start.IsZero() {
		r.start = now
	}
	holdTime := resetSlotsRefillTime / time.Duration(slots)
	r.allFreeAt = min(max(r.allFreeAt, now.Sub(r.start))+holdTime, now.Sub(r.start)+resetSlotsRefillTime)
}

func (r *resetSlots) exhausted(slots uint32, now time.Time) bool {
	return r.allFreeAt > 0 && r.allFreeAt-now.Sub(r.start) > resetSlotsRefillTime-resetSlotsRefillTime/time.Duration(slots)
}

func (r *resetSlots) release(slots uint32) {
	if r.allFreeAt > 0 {
		r.allFreeAt = max(0, r.allFreeAt-resetSlotsRefillTime/time.Duration(slots))
	}
}

func refillInterval(limit RateLimit) time.Duration {
	return time.Second / time.Duration(max(1, limit.PerSecond))
}

func floodError(f Flood, reason string) *ConnectionError {
	return &ConnectionError{Code: EnhanceYourCalm, Reason: reason, Flood: f}
}
