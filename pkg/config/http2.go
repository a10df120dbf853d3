package config

import "time"

// HTTP2Options are the limits and options of the HTTP/2 engine. The HTTP1Options that are not
// specific to HTTP/1.1 apply too: sizes of heads and bodies, and timeouts. DefaultHTTP2Options
// returns the defaults; 0 means no limit only where a field says so.
type HTTP2Options struct {
	// MaxConcurrentStreams is the maximum number of open streams of a client on one connection; default
	// 1,024. On an upstream connection, it limits the streams that Weft opens; 0: no limit.
	MaxConcurrentStreams int
	// StreamWindow and ConnectionWindow are the maximum unread body bytes of one stream and of all
	// streams of a connection; default 256 KiB and 16 MiB. ConnectionWindow applies to downstream
	// connections only: independent clients read the responses on an upstream connection.
	StreamWindow     int
	ConnectionWindow int
	// MaxHeaderSize and MaxHeaderCount limit the head of a response on an upstream connection; 0: 64
	// KiB and 128 fields.
	MaxHeaderSize, MaxHeaderCount int
	// StreamIdleTimeout is how long a stream may be open without a byte in either direction;
	// default 5 min; 0: no limit.
	StreamIdleTimeout time.Duration
	// PingInterval is the idle time of a connection with open streams before Weft sends a PING;
	// default 0: never. PingTimeout is the time to wait for the response before closing the
	// connection; default 10 s.
	PingInterval time.Duration
	PingTimeout  time.Duration
	// ConnectionResets limits the streams that a client resets within 50 ms of their requests.
	// SourceResets and ListenerResets limit the charges (docs/overload.md) of all connections of a
	// source address and of the listener. Weft closes a connection that exceeds a limit. Defaults:
	// bursts of 500, 2,000 and 20,000; 50, 200 and 2,000 per second.
	ConnectionResets TokenBucket
	SourceResets     TokenBucket
	ListenerResets   TokenBucket
	// DrainGrace is how long a client may still open streams after the first GOAWAY; default 1 s.
	DrainGrace time.Duration
}

// TokenBucket is a token bucket with Burst tokens that refills PerSecond tokens per second. Both
// are positive.
type TokenBucket struct{ Burst, PerSecond int }

// DefaultHTTP2Options returns the defaults.
func DefaultHTTP2Options() HTTP2Options {
	return HTTP2Options{
		MaxConcurrentStreams: 1024,
		StreamWindow:         256 << 10,
		ConnectionWindow:     16 << 20,
		StreamIdleTimeout:    5 * time.Minute,
		PingTimeout:          10 * time.Second,
		ConnectionResets:     TokenBucket{Burst: 500, PerSecond: 50},
		SourceResets:         TokenBucket{Burst: 2_000, PerSecond: 200},
		ListenerResets:       TokenBucket{Burst: 20_000, PerSecond: 2_000},
		DrainGrace:           time.Second,
	}
}
