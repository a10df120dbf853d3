// Package http2 implements the HTTP/2 engine: downstream and upstream connections that carry many
// exchanges concurrently (RFC 9113). pkg/protocol/http2, which does no I/O, interprets frames; this
// package owns the sockets, goroutines and buffers.
//
// The path of a request and its response; each column is a goroutine:
//
//	reader of the downstream connection    reader of the upstream connection
//	downstreamConn.processRead      all complete frames
//	downstreamConn.startExchanges  an exchange for each request
//	  exchange.start         asynchronous service
//	    UpstreamConn.Start   a stream, write queue
//	    … pending …                          UpstreamConn.processRead   all complete frames
//	batch.flush              one write         call.resumeExchange         the exchange of this stream
//	                                             … the service continues …
//	                                             exchange.sendResponse  write queue
//	                                         batch.flush         one write
//
// A complete message needs no separate goroutine, and neither does a body that streams from one
// HTTP/2 connection to another: a pump (pump.go) moves the body on the goroutine that reads more of
// it, or that reads a WINDOW_UPDATE of its destination. A service that waits for anything else gets
// a goroutine from Exchange.RunBlocking.
//
// Code that holds the lock of a connection records work that must be done without the lock in
// effects (effects.go). The callState of a call determines which goroutine continues the call
// (callstate.go).
//
// The files, in the order in which data passes them: muxconn.go, muxstream.go, frames.go, batch.go
// and timer.go (a connection, either side), server.go, exchange.go, response.go, linger.go,
// floodcharge.go and downstreamclose.go (downstream), upstreamconn.go, openstream.go, call.go and
// responsebody.go (upstream), recvbody.go, pump.go and upload.go (streaming bodies), tunnel.go,
// grpc.go, match.go, fifo.go, upgrade.go (connections that began in HTTP/1.1).
package http2

import (
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// Engine is the state that all HTTP/2 connections share. The caller closes it after all
// connections.
type Engine struct {
	workers    *stream.Workers[*exchange]
	goroutines stream.Goroutines  // started by connections
	exchanges  sync.Pool          // of *exchange
	calls      sync.Pool          // of *call
	lastCallID atomic.Uint64      // ID of the newest call
	onFlood    func(syntax.Flood) // nil: floods are not reported

	mu sync.Mutex
	// floodLimiters holds the limiter of each listener, by name; guarded by mu. The servers of a
	// listener hold the strong references.
	floodLimiters map[string]weak.Pointer[stream.FloodLimiter]

	// FirstStream is the identifier of the first stream of each upstream connection; 0 means 1.
	// Tests of identifier exhaustion set it close to the maximum. Set it before the first
	// connection.
	FirstStream uint32
}

// New returns an engine. The engine logs recovered panics to log. It calls onFlood, which may be
// nil, for each downstream connection that it closes because a flood limit is exceeded.
func New(log *slog.Logger, onFlood func(syntax.Flood)) *Engine {
	e := &Engine{goroutines: stream.Goroutines{Log: log}, onFlood: onFlood}
	e.workers = stream.NewWorkers(stream.WorkerLimits{MaxRunning: maxWorkers, MaxReserved: maxReservedWorkers}, (*exchange).runOnWorker)
	return e
}

const (
	// maxWorkers is the maximum number of exchanges that run on worker goroutines concurrently.
	maxWorkers = 10_000
	// maxReservedWorkers is the maximum number of exchanges that run on a worker or wait for one.
	// Further exchanges that need a worker fail with protocol.Overloaded.
	maxReservedWorkers = 20_000
)

// Protocol returns the stream.Protocol that serves HTTP/2 with this engine.
func (e *Engine) Protocol() stream.Protocol {
	return stream.Protocol{
		Name:      config.HTTP2,
		Match:     Match,
		NewServer: func(opts stream.ServerOptions) stream.Server { return newServer(e, opts) },
		NewUpstreamConn: func(conn *network.Conn, opts stream.UpstreamConnOptions) stream.UpstreamConn {
			return newUpstreamConn(e, conn, opts)
		},
		Multiplexed: true,
	}
}

// Close waits for the goroutines of the engine's connections, which the caller has closed.
func (e *Engine) Close() {
	e.goroutines.Wait()
	e.workers.Close()
}

// floodLimiter returns the FloodLimiter of a listener. All servers of the listener share it, before
// and after a reload.
func (e *Engine) floodLimiter(listener string) *stream.FloodLimiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if limiter := e.floodLimiters[listener].Value(); limiter != nil {
		return limiter
	}
	maps.DeleteFunc(e.floodLimiters, func(_ string, p weak.Pointer[stream.FloodLimiter]) bool { return p.Value() == nil })
	if e.floodLimiters == nil {
		e.floodLimiters = make(map[string]weak.Pointer[stream.FloodLimiter])
	}
	limiter := stream.NewFloodLimiter()
	e.floodLimiters[listener] = weak.Make(limiter)
	return limiter
}

// callRecovered runs fn and returns its error, or the Fault of a recovered panic.
func callRecovered(fn func() error) (err error) {
	defer protocol.RecoverPanic(&err)
	return fn()
}
