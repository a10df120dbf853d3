// Package http2 implements the HTTP/2 engine: downstream and upstream connections that carry many
// exchanges concurrently (RFC 9113). pkg/protocol/http2, which does no I/O, interprets frames; this
// package has the sockets, goroutines and buffers.
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
// HTTP/2 connection to another: a pump (pump.go) moves it on the goroutine that delivers more of
// it, or that opens the window. A service that waits for anything else gets a goroutine from
// Exchange.RunBlocking.
//
// Code that holds the lock of a connection records what has to be done without it in effects
// (effects.go). Which goroutine continues a call is its callState (callstate.go).
//
// The files, in the order that data passes them: muxconn.go and frames.go (a connection, either
// side), server.go, exchange.go and response.go (downstream), upstreamconn.go, openstream.go and
// call.go (upstream), recvbody.go, pump.go and upload.go (streaming bodies), tunnel.go, grpc.go,
// upgrade.go (connections that began in HTTP/1.1).
package http2

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// Engine is the state that all HTTP/2 connections share. The caller closes it after the last
// connection.
type Engine struct {
	log        *slog.Logger
	workers    *stream.Workers[*exchange]
	goroutines sync.WaitGroup     // goroutines of connections
	exchanges  sync.Pool          // of *exchange
	calls      sync.Pool          // of *call
	lastCallID atomic.Uint64      // of calls
	onFlood    func(syntax.Flood) // nil: floods are not reported

	mu sync.Mutex
	// Guarded by mu; by listener. The servers of a listener hold the strong references.
	floodLimiters map[string]weak.Pointer[stream.FloodLimiter]

	// FirstStream is the identifier of the first stream of each upstream connection; 0 means 1.
	// Tests of identifier exhaustion set it close to the maximum. Set it before the first
	// connection.
	FirstStream uint32
}

// New returns an engine. The engine logs recovered panics to log. It calls flooded, which may be
// nil, for each downstream connection that it closes because a flood limit is exceeded.
func New(log *slog.Logger, flooded func(syntax.Flood)) *Engine {
	e := &Engine{log: log, onFlood: flooded}
	e.workers = stream.NewWorkers(stream.WorkerLimits{MaxRunning: maxWorkers, MaxReserved: maxReservedWorkers}, (*exchange).runOnWorker)
	return e
}

const (
	// maxWorkers is the maximum number of exchanges that run on worker goroutines concurrently.
	maxWorkers = 10_000
	// maxReservedWorkers is the maximum number of exchanges that run on a worker or wait for one.
	// More are rejected as protocol.Overloaded.
	maxReservedWorkers = 20_000
)

// Protocol returns the engine's entry for the registry.
func (e *Engine) Protocol() stream.Protocol {
	return stream.Protocol{
		Name:      config.HTTP2,
		Match:     Match,
		NewServer: func(o stream.ServerOptions) stream.Server { return newServer(e, o) },
		NewUpstreamConn: func(conn *network.Conn, o stream.UpstreamConnOptions) stream.UpstreamConn {
			return newUpstreamConn(e, conn, o)
		},
		Multiplexed: true,
	}
}

// Close waits for the goroutines of the engine's connections, which the caller has closed.
func (e *Engine) Close() {
	e.goroutines.Wait()
	e.workers.Close()
}

// floodLimiter returns the budget of a listener. All servers of the listener share it, before and
// after a reload.
func (e *Engine) floodLimiter(listener string) *stream.FloodLimiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.floodLimiters[listener].Value(); b != nil {
		return b
	}
	maps.DeleteFunc(e.floodLimiters, func(_ string, p weak.Pointer[stream.FloodLimiter]) bool { return p.Value() == nil })
	if e.floodLimiters == nil {
		e.floodLimiters = make(map[string]weak.Pointer[stream.FloodLimiter])
	}
	b := stream.NewFloodLimiter()
	e.floodLimiters[listener] = weak.Make(b)
	return b
}

// start runs f on a new goroutine, and logs a panic of f. Close waits for f. Other goroutines must
// not depend on work that f skips when it panics.
func (e *Engine) start(f func()) {
	e.goroutines.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				e.logPanic("serving a connection", p)
			}
		}()
		f()
	})
}

// logPanic logs a recovered panic. The deferred function that recovers the panic calls it.
func (e *Engine) logPanic(doing string, value any) { protocol.NewPanic(value).Log(e.log, doing) }

// callRecovered runs f and returns its error, or the Fault of a recovered panic.
func callRecovered(f func() error) (err error) {
	defer protocol.RecoverPanic(&err)
	return f()
}

// batch is the work of a reader until it has to wait: the time of its last read, and the write
// queues to flush after it has processed everything that it read. The goroutine that created it
// owns it.
type batch struct {
	now         time.Time
	dirty       []*network.WriteQueue
	borrowers   []*network.WriteQueue // write queues that may borrow parts of the reader's buffers
	heldBuffers []*buffer.IoBuffer    // borrowed buffers that the reader no longer uses
}

// maxHeldBuffers is the maximum number of buffers that a reader holds because parts of them are
// borrowed.
const maxHeldBuffers = 8

// addBorrower records that o borrows bytes, which flush reclaims.
func (b *batch) addBorrower(o *network.WriteQueue) {
	if !slices.Contains(b.borrowers, o) {
		b.borrowers = append(b.borrowers, o)
	}
}

// holdBuffer keeps a buffer of the reader until its borrowed parts are reclaimed. It flushes b if
// the maximum is reached.
func (b *batch) holdBuffer(in *buffer.IoBuffer) {
	b.heldBuffers = append(b.heldBuffers, in)
	if len(b.heldBuffers) >= maxHeldBuffers {
		b.flush()
	}
}

// reclaimBorrowed reclaims the borrowed bytes: write queues copy those that they have not sent.
func (b *batch) reclaimBorrowed() {
	for _, o := range b.borrowers {
		o.CopyBorrowed()
	}
	for _, in := range b.heldBuffers {
		in.Release()
	}
	clear(b.borrowers)
	clear(b.heldBuffers)
	b.borrowers, b.heldBuffers = b.borrowers[:0], b.heldBuffers[:0]
}

// maxReadPerFlush is how much a reader reads, in bytes, before it flushes its batch even if there
// is more to read.
const maxReadPerFlush = 256 << 10

// maxPendingWrites is the number of pending bytes above which the engine stops reading from a peer.
// Bodies stop at network.HighWatermark, which is lower: otherwise two adjacent proxies that write
// before they read would wait for each other forever
// (TestNoDeadlockWithHostThatWritesBeforeReading).
const maxPendingWrites = 4 * network.HighWatermark

// scheduleFlush schedules a flush of o: with the batch b, or soon if b is nil.
func (b *batch) scheduleFlush(o *network.WriteQueue) {
	if b == nil {
		_ = o.FlushAfterYield() // the connection's reader finds out
		return
	}
	if !slices.Contains(b.dirty, o) {
		b.dirty = append(b.dirty, o)
	}
}

// time returns the time at which the data of b was read, or the current time if b is nil.
func (b *batch) time() time.Time {
	if b == nil {
		return time.Now()
	}
	return b.now
}

// flush flushes the write queues and reclaims borrowed bytes. The reader of a lost connection
// handles write errors.
func (b *batch) flush() {
	for _, o := range b.dirty {
		_ = o.Flush()
	}
	clear(b.dirty)
	b.dirty = b.dirty[:0]
	b.reclaimBorrowed()
}
