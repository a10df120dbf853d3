// Package http2 owns the HTTP/2 engine: connections on both sides, on which many
// exchanges are under way at once (RFC 9113). What frames mean is decided by
// pkg/protocol/http2, which is pure; here are sockets, goroutines and buffers.
//
// The way of a request and its answer; each column is a goroutine:
//
//	reader of the caller's connection      reader of the host's connection
//	session.read     all frames there are
//	session.begin    an exchange for each whole request
//	  exchange.begin   Service, in halves
//	    Client.Start   a stream, outbox
//	    … pending …                        Client.read     all frames there are
//	batch.flush      one write               call.deliver  who waits on this stream
//	                                           … the service goes on …
//	                                           exchange.answer  outbox
//	                                         batch.flush   one write
//
// What is whole needs no goroutine of its own, and neither does content that
// streams from one HTTP/2 connection to another: a pump (pump.go) moves it on the
// goroutine of whoever brought more content, or more room for it. A service that
// waits for anything else gets a goroutine by Exchange.Fork.
//
// The files, in the order that data passes them: wire.go (a connection, either
// side), server.go and exchange.go (the caller's side), client.go and call.go (the
// host's), content.go and pump.go (what streams), watch.go, tunnel.go, grpc.go,
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

// Engine is what all HTTP/2 connections share. Close it after the last of them has
// been closed.
type Engine struct {
	log       *slog.Logger
	workers   *stream.Workers[*exchange]
	running   sync.WaitGroup     // goroutines of connections
	exchanges sync.Pool          // of *exchange
	calls     sync.Pool          // of *call
	numbers   atomic.Uint64      // of calls
	flooded   func(syntax.Flood) // nil: floods are not reported

	mu      sync.Mutex
	budgets map[string]weak.Pointer[stream.CostBudget] // guarded by mu; by listener: its servers hold them

	// FirstStream is the identifier of the first stream of each connection to a host; 0
	// means 1, and tests of what happens when they run out begin near the end. Not to be
	// changed once there is a connection.
	FirstStream uint32
}

// New returns an engine. Its log is told of defects, and flooded, which may be nil, of
// each connection of a caller's that is ended because a budget is used up.
func New(log *slog.Logger, flooded func(syntax.Flood)) *Engine {
	e := &Engine{log: log, flooded: flooded}
	e.workers = stream.NewWorkers(stream.WorkerLimits{Running: maxWorkers, Reserved: maxForked}, (*exchange).work)
	return e
}

const (
	// maxWorkers is how many exchanges wait on goroutines at once, at most.
	maxWorkers = 10_000
	// maxForked is how many exchanges are served on goroutines, or wait for one, at most.
	// More are refused as protocol.Overloaded.
	maxForked = 20_000
)

// Protocol returns the engine's entry for the registry.
func (e *Engine) Protocol() stream.Protocol {
	return stream.Protocol{
		Name:      config.HTTP2,
		Match:     Match,
		NewServer: func(o stream.ServerOptions) stream.Server { return newServer(e, o) },
		NewUpstreamConn: func(conn *network.Conn, o stream.UpstreamConnOptions) stream.UpstreamConn {
			return newClient(e, conn, o)
		},
		Multiplexed: true,
	}
}

// Close waits for the goroutines of the engine's connections, which must have been
// closed.
func (e *Engine) Close() {
	e.running.Wait()
	e.workers.Close()
}

// budget returns the budget of a listener, which a new configuration's server shares with
// that of the one before.
func (e *Engine) budget(listener string) *stream.CostBudget {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.budgets[listener].Value(); b != nil {
		return b
	}
	maps.DeleteFunc(e.budgets, func(_ string, p weak.Pointer[stream.CostBudget]) bool { return p.Value() == nil })
	if e.budgets == nil {
		e.budgets = make(map[string]weak.Pointer[stream.CostBudget])
	}
	b := stream.NewCostBudget()
	e.budgets[listener] = weak.Make(b)
	return b
}

// start runs a connection's goroutine. A panic of f's is logged: f leaves nothing behind
// that others wait for.
func (e *Engine) start(f func()) {
	e.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				e.panicked("serving a connection", p)
			}
		}()
		f()
	})
}

// panicked logs a panic that was contained. The deferred function that recovers calls it.
func (e *Engine) panicked(doing string, value any) { protocol.NewPanic(value).Log(e.log, doing) }

// contained runs f and returns its error, or the Fault that its panic became.
func contained(f func() error) (err error) {
	defer protocol.RecoverPanic(&err)
	return f()
}

// batch is what a reader does until it has to wait: the time at which it read
// last, and the outboxes to be flushed when everything that there was to read has
// been dealt with. Owned by the reader's goroutine.
type batch struct {
	now   time.Time
	dirty []*network.WriteQueue
	lent  []*network.WriteQueue // those that were lent parts of the reader's buffers
	held  []*buffer.IoBuffer    // such buffers, which the reader is done with
}

// mostBuffers is how many buffers a reader holds because parts of them are lent.
const mostBuffers = 8

// lends sees to it that o gives back what it was lent.
func (b *batch) lends(o *network.WriteQueue) {
	if !slices.Contains(b.lent, o) {
		b.lent = append(b.lent, o)
	}
}

// hold takes a buffer of the reader's, of which parts are lent.
func (b *batch) hold(in *buffer.IoBuffer) {
	b.held = append(b.held, in)
	if len(b.held) >= mostBuffers {
		b.flush()
	}
}

// reclaimBorrowed takes back what was lent: outboxes keep what they have not sent.
func (b *batch) reclaimBorrowed() {
	for _, o := range b.lent {
		o.CopyBorrowed()
	}
	for _, in := range b.held {
		in.Release()
	}
	clear(b.lent)
	clear(b.held)
	b.lent, b.held = b.lent[:0], b.held[:0]
}

// maxReadPerFlush is how much a reader reads, in bytes, before it sends what came of it,
// even if there is more to read.
const maxReadPerFlush = 256 << 10

// maxPendingWrites is how much may wait for a peer, in bytes, before it is not read from
// any more. Content stops at network.HighWatermark, which is less: two neighbours of which
// neither reads before the other has would wait for ever
// (TestAHostThatReadsNothingBeforeItHasWrittenIsReadFrom).
const maxPendingWrites = 4 * network.HighWatermark

// sends sees to it that o is flushed: with the batch b, or soon if there is none.
func (b *batch) sends(o *network.WriteQueue) {
	if b == nil {
		_ = o.FlushAfterYield() // its reader finds out
		return
	}
	if !slices.Contains(b.dirty, o) {
		b.dirty = append(b.dirty, o)
	}
}

// time is when what is being dealt with was read.
func (b *batch) time() time.Time {
	if b == nil {
		return time.Now()
	}
	return b.now
}

// flush sends. A connection that is lost is its reader's business.
func (b *batch) flush() {
	for _, o := range b.dirty {
		_ = o.Flush()
	}
	clear(b.dirty)
	b.dirty = b.dirty[:0]
	b.reclaimBorrowed()
}
