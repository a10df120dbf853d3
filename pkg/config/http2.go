package config

import "time"

// HTTP2Options are the limits and habits of the HTTP/2 engine, beside those of
// HTTP1Options that are not the protocol's own: sizes of heads and contents, and
// timeouts. DefaultHTTP2Options fills them; 0 means no limit only where it says so.
type HTTP2Options struct {
	MaxConcurrentStreams int // that a caller may have open at once on one connection; default 1,024
	// StreamWindow and ConnectionWindow are how many bytes of content a peer may
	// send that nobody has taken yet, of one stream and of all of a connection;
	// default 256 KiB and 16 MiB. ConnectionWindow is of callers only: answers of hosts
	// wait for callers that are strangers to each other.
	StreamWindow     int
	ConnectionWindow int
	// StreamIdleTimeout is how long a stream may be open without a byte either
	// way; default 5 min; 0: for ever.
	StreamIdleTimeout time.Duration
	// PingInterval is how long a connection with open streams may be silent before
	// its peer is asked whether it lives; default 0: never. PingTimeout is how long
	// the answer may take before the connection is given up; default 10 s.
	PingInterval time.Duration
	PingTimeout  time.Duration
	// ConnectionResets, SourceResets and ListenerResets bound the streams that callers reset
	// within 50 ms of their requests: of one connection, of all connections of a source
	// address, and of all of the listener. A connection that exceeds one is closed. Default
	// 500, 2,000 and 20,000 at once; 50, 200 and 2,000 a second.
	ConnectionResets Budget
	SourceResets     Budget
	ListenerResets   Budget
	// DrainGrace is how long a caller may still open streams after it was told that
	// the connection ends; default 1 s.
	DrainGrace time.Duration
}

// Budget is a token bucket: Burst at once, and PerSecond a second in the long run. Both are
// positive.
type Budget struct{ Burst, PerSecond int }

// DefaultHTTP2Options returns the defaults.
func DefaultHTTP2Options() HTTP2Options {
	return HTTP2Options{
		MaxConcurrentStreams: 1024,
		StreamWindow:         256 << 10,
		ConnectionWindow:     16 << 20,
		StreamIdleTimeout:    5 * time.Minute,
		PingTimeout:          10 * time.Second,
		ConnectionResets:     Budget{Burst: 500, PerSecond: 50},
		SourceResets:         Budget{Burst: 2_000, PerSecond: 200},
		ListenerResets:       Budget{Burst: 20_000, PerSecond: 2_000},
		DrainGrace:           time.Second,
	}
}
