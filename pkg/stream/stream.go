// Package stream owns the contract of the stream engines: what turns the bytes
// of a connection into exchanges (server side) and exchanges into bytes (client
// side). Each engine is a folder below it and one line in cmd/weft/registry.go.
package stream

import (
	"log/slog"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Protocol describes an engine to the registry.
type Protocol struct {
	Name config.Protocol

	// Match says whether a connection that begins with b speaks the protocol, for
	// listeners that carry several.
	Match func(b []byte) xprotocol.MatchResult

	// NewServer returns the engine's downstream side.
	NewServer func(ServerOptions) Server

	// NewUpstreamConn makes a freshly dialled connection an upstream connection of
	// the protocol. It starts no goroutine that outlives the connection.
	NewUpstreamConn func(conn *network.Conn, o UpstreamConnOptions) UpstreamConn

	// Multiplexed: a Client carries many exchanges at once.
	Multiplexed bool
}

// Server is the downstream side of an engine: it reads exchanges from
// connections, lets a service answer them and writes the answers. It ends a
// connection after the exchange it is in once network.Conn.Draining says so.
type Server = network.Handler

// ServerOptions is what a server needs. Immutable.
type ServerOptions struct {
	Listener    string // for NewConnMeta
	Service     protocol.Service
	HTTP1       config.HTTP1Options
	HTTP2       config.HTTP2Options
	RPC         config.RPCOptions
	IdleTimeout time.Duration // of a connection without an exchange; 0: none

	// H2C takes over the connections of callers of HTTP/1.1 that ask for HTTP/2
	// (Upgrade: h2c); nil: nobody does, and such a request is served as it is.
	H2C Upgrader

	// Observe is told once of each exchange that Service was given, and of what was
	// no request, after the last byte of its answer was written, or could not be. It
	// keeps nothing of x. May be nil.
	Observe func(x *protocol.Exchange)
	// NewBatchObserver returns what does as Observe, for one goroutine of an engine that ends
	// many exchanges at once. Nil if Observe is.
	NewBatchObserver func() BatchObserver

	Log *slog.Logger
}

// BatchObserver accounts for exchanges that one goroutine ends. Those that went one way and
// ended alike it may account for together.
type BatchObserver interface {
	// Enter ties an exchange that the engine does not start, because its client has left,
	// to the current configuration, which Observe releases. It reports whether Observe
	// needs the request's fields: otherwise the engine need not read them.
	Enter(x *protocol.Exchange) (readsRequest bool)
	// Observe is ServerOptions.Observe.
	Observe(x *protocol.Exchange)
	// Flush accounts for what Observe was told and has not been accounted for: to be
	// called before the answers of those exchanges leave.
	Flush()
}

// Upgrader is a Server that goes on with a connection on which a caller has asked for
// its protocol, in the middle of another one (RFC 9110 7.8).
type Upgrader interface {
	// Upgrade returns what is to serve conn from now on, and to answer u's request;
	// nil: it will not, and nothing has happened. It keeps nothing of u. Whoever
	// called tells the caller of the switch (101), and then has the handler serve
	// the connection: until then nothing is sent.
	Upgrade(conn *network.Conn, u Upgrade) network.Handler
}

// Upgrade is a request that asks to go on in another protocol.
type Upgrade struct {
	// Request is the request but for its content; Meta is of the exchange that it
	// was read into: its start, version and size, and not its connection.
	Request *protocol.Request
	Meta    *protocol.Meta
	// Content is all of the request's content; empty for none.
	Content []byte
	// Settings is the HTTP2-Settings field as it was sent (RFC 7540 3.2.1).
	Settings string
	// Trailers: the caller wants trailer fields (TE: trailers).
	Trailers bool
}

// UpstreamConn is one upstream connection. A pool owns it. It carries one exchange at
// a time, or many if its protocol is Multiplexed; then all of this is safe for
// concurrent use.
//
// Serve sends x.Request and returns once the head of the final answer is in
// x.Response. The connection, or the stream on it, belongs to the exchange
// until x.Response.Body (or Tunnel) is closed: one of them is set even if the
// answer has no content, because its fields are views of the connection's
// buffer. Then, or when Serve returns an error, Released is called, exactly once
// per Serve.
type UpstreamConn interface {
	protocol.Service

	// Usable reports whether the connection can take an exchange now, after it
	// was idle for so long: false when the peer closed it, sent bytes that nobody
	// asked for, or announced that it takes no more.
	Usable(idle time.Duration) bool

	// Close ends the connection at once; exchanges on it fail. Safe from any
	// goroutine.
	Close() error
}

// RTTReporter is a Client that asks its host for a sign of life now and then.
type RTTReporter interface {
	UpstreamConn
	// RTT is how long the last took to come; 0: there was none.
	RTT() time.Duration
}

// StreamLimitReporter is a Client whose host says how many exchanges it takes at once.
type StreamLimitReporter interface {
	UpstreamConn
	// MaxConcurrentStreams is how many; what is more than that waits on the connection until others
	// have ended.
	MaxConcurrentStreams() int64
}

// UpstreamConnOptions is what an upstream connection needs.
type UpstreamConnOptions struct {
	HTTP1 config.HTTP1Options
	HTTP2 config.HTTP2Options
	RPC   config.RPCOptions

	// OnRelease is called when an exchange has left the connection; reusable
	// says whether it can take another. Called from the exchange's goroutine.
	OnRelease func(reusable bool)
}
