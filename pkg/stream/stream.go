// Package stream defines the interfaces of the stream engines, which turn the bytes of a connection
// into exchanges (server side) and exchanges into bytes (client side). Each engine is a directory
// below this one; cmd/weft/registry.go lists the protocols of the engines. The package also has the
// handlers that serve a connection before an engine does (PROXY protocol, TLS, protocol detection),
// and the parts that the multiplexed engines share: reading, batched writes, timers, keepalives,
// workers.
package stream

import (
	"log/slog"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Protocol describes a protocol that an engine implements.
type Protocol struct {
	Name config.Protocol

	// Match reports whether a connection that begins with b speaks the protocol, for listeners that
	// serve several.
	Match func(b []byte) xprotocol.MatchResult

	// NewServer returns the engine's downstream side.
	NewServer func(ServerOptions) Server

	// NewUpstreamConn makes an upstream connection of the protocol from a newly dialed connection.
	// It starts no goroutine that outlives the connection.
	NewUpstreamConn func(conn *network.Conn, o UpstreamConnOptions) UpstreamConn

	// Multiplexed: an UpstreamConn carries many exchanges concurrently.
	Multiplexed bool
}

// Server is the downstream side of an engine: it reads exchanges from connections, passes them to a
// service and writes the responses. Once network.Conn.Draining returns true, the server closes the
// connection after the exchanges in flight.
type Server = network.Handler

// ServerOptions are the options of a server. Immutable.
type ServerOptions struct {
	Listener    string // for NewConnMeta
	Service     protocol.Service
	HTTP1       config.HTTP1Options
	HTTP2       config.HTTP2Options
	RPC         config.RPCOptions
	IdleTimeout time.Duration // of a connection without an exchange; 0: none
	// EnvoyReplies is Exchange.EnvoyReplies of every exchange of HTTP.
	EnvoyReplies *protocol.EnvoyReplies

	// CountUnderscores counts headers to which HTTP1.Underscores applied: action is RejectUnderscores
	// or DropUnderscores. It is safe for concurrent use. Nil: not counted.
	CountUnderscores func(action config.UnderscoreAction, count int)

	// H2C takes over the connections of HTTP/1.1 clients that ask for HTTP/2 (Upgrade: h2c); nil:
	// such a request is served as HTTP/1.1.
	H2C Upgrader

	// Observe records an exchange. The engine calls Observe once for each exchange, when the
	// response has been written or queued, or will not be sent. Service may not have received the
	// exchange, for example because the request was malformed. Observe keeps no part of x. May be
	// nil.
	Observe func(x *protocol.Exchange)
	// NewBatchObserver returns an observer that does the work of Observe for one goroutine of an
	// engine that ends many exchanges together. Nil if Observe is nil.
	NewBatchObserver func() BatchObserver

	Log *slog.Logger
}

// BatchObserver records the exchanges that one goroutine ends. It may record exchanges with the
// same route and result together.
type BatchObserver interface {
	// BindConfig binds an exchange that the engine does not start, because its client has
	// disconnected, to the active configuration, which Observe releases. It reports whether Observe
	// needs the fields of the request; otherwise the engine need not read them.
	BindConfig(x *protocol.Exchange) (readsRequest bool)
	// Observe is ServerOptions.Observe for the batch.
	Observe(x *protocol.Exchange)
	// Flush records the observed exchanges that are not yet recorded. The engine calls it before
	// the goroutine flushes the responses of those exchanges.
	Flush()
}

// Upgrader takes over connections whose client requests another protocol with the Upgrade header
// (RFC 9110 7.8).
type Upgrader interface {
	// Upgrade returns the handler that serves conn from now on and responds to u's request. It
	// returns nil, without side effects, if it rejects the upgrade. It keeps no part of u. The
	// caller sends the client the 101 response and then calls the handler. Until then the handler
	// sends nothing.
	Upgrade(conn *network.Conn, u Upgrade) network.Handler
}

// Upgrade is a request to switch to another protocol.
type Upgrade struct {
	// Request is the request; its body is in Body below. Meta belongs to the exchange that the
	// request was read into: use its start, version and size, but not its connection.
	Request *protocol.Request
	Meta    *protocol.Meta
	// Body is the complete body of the request; empty for none.
	Body []byte
	// Settings is the HTTP2-Settings header as sent (RFC 7540 3.2.1).
	Settings string
	// AcceptsTrailers: the client accepts trailer fields (TE: trailers).
	AcceptsTrailers bool
}

// UpstreamConn is one upstream connection. A pool owns it. It carries one exchange at a time, or
// many if its protocol is Multiplexed; then all methods are safe for concurrent use.
//
// Start sends x.Request; the service is done once the head of the final response is in x.Response.
// The connection, or the stream on it, belongs to the exchange until x.Response.Body or
// x.Response.Tunnel is closed. The connection sets one of them even if the response has no body:
// the response headers borrow the connection's buffer. After the close, or when the service fails,
// the connection calls OnRelease, exactly once per Start. After a one-way request, it calls
// OnRelease in Start and sets neither.
type UpstreamConn interface {
	protocol.Service

	// Usable reports whether the connection can take an exchange after it was idle for the given
	// time. It returns false, for example, if the peer closed the connection, sent unexpected
	// bytes, or sent GOAWAY.
	Usable(idle time.Duration) bool

	// Close closes the connection without waiting for its exchanges, which fail. An RPC connection
	// may first send queued one-way requests. Close is safe for concurrent use.
	Close() error
}

// RTTReporter is an UpstreamConn that measures the round-trip time of its keepalives.
type RTTReporter interface {
	UpstreamConn
	// RTT returns the round-trip time of the last acknowledged keepalive, or 0 if there was none.
	RTT() time.Duration
}

// LimitReporter is an UpstreamConn whose host limits the number of concurrent exchanges.
type LimitReporter interface {
	UpstreamConn
	// MaxConcurrentStreams returns the limit. Exchanges beyond it wait on the connection until
	// others have ended.
	MaxConcurrentStreams() int64
}

// UpstreamConnOptions are the options of an upstream connection.
type UpstreamConnOptions struct {
	HTTP1 config.HTTP1Options
	HTTP2 config.HTTP2Options
	RPC   config.RPCOptions

	// ZeroLength adds "Content-Length: 0" to HTTP/1.1 requests without a body; see
	// config.Cluster.ZeroLength.
	ZeroLength bool

	// OnRelease handles the end of an exchange on the connection. The connection calls it on any
	// goroutine. reusable says whether the connection can take another exchange.
	OnRelease func(reusable bool)
}
