// Package xprotocol implements the stream engine of framed RPC protocols, such as Dubbo and Bolt.
// Each connection, downstream or upstream, carries many concurrent exchanges. A codec of
// pkg/protocol/xprotocol defines the frames of a protocol.
//
// The path of a request and its response; each column is a goroutine:
//
//	reader of the client's connection      reader of the host's connection
//	downstreamConn.read   complete frames
//	downstreamConn.addRequest  one request per frame
//	downstreamConn.startAll
//	  request.serve       service's Start
//	    UpstreamConn.Start new id, write queue
//	    … pending …                        UpstreamConn.read complete frames
//	batch.flush           one write          call.setResponse the call with this id
//	                                           request.wake   runs the Finishers
//	                                           request.sendResponse client's id, write queue
//	                                         batch.flush     one write
//
// A pending request holds no goroutine. A reader gathers outgoing frames in a batch and writes them
// before it waits for input. Exchange.RunBlocking runs a blocking service on a coroutine
// (fiber.go). When the service calls Exchange.Detach, the coroutine moves to a worker goroutine.
// See docs/decisions/0008.
//
// The files, in the order in which data passes them: input.go and batch.go (both sides), server.go,
// inflight.go, request.go, fiber.go and close.go (downstream), upstreamconn.go, send.go, table.go,
// wheel.go, deadline.go and call.go (upstream), explain.go (error responses).
package xprotocol

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

const (
	// maxIdleFibers is the maximum number of idle fibers of the engine; each has a stack of a few
	// KiB. Every fiberIdleTimeout, the engine stops the fibers that no request needed in that time,
	// but keeps minIdleFibers.
	maxIdleFibers    = 4096
	minIdleFibers    = 64
	fiberIdleTimeout = time.Second
	// maxWorkers is the maximum number of worker goroutines of the engine. A worker runs an
	// exchange that waits for something other than an upstream's response.
	maxWorkers = 10_000
	// maxBusyFibers is the maximum number of exchanges of the engine whose service runs on a fiber,
	// on a worker or not. Further exchanges that need a fiber fail with protocol.Overloaded.
	maxBusyFibers = 50_000
)

// Engine holds the state that all connections of all framed protocols share.
type Engine struct {
	goroutines stream.Goroutines // started by connections
	workers    *stream.Workers[*request]
	requests   sync.Pool // of *request

	mu             sync.Mutex
	fibers         []*fiber       // guarded by mu; idle fibers; getFiber uses the last one
	minIdle        int            // guarded by mu; the smallest len(fibers) since scheduleStopUnused
	stopTimer      *time.Timer    // guarded by mu; calls stopUnusedFibers; nil until first armed
	stopScheduled  bool           // guarded by mu; stopUnusedFibers will run
	scheduledStops sync.WaitGroup // Close waits for a stopUnusedFibers that is scheduled or runs
	closed         bool           // guarded by mu
}

// New returns an engine that logs recovered panics to log.
func New(log *slog.Logger) *Engine {
	e := &Engine{goroutines: stream.Goroutines{Log: log}}
	e.workers = stream.NewWorkers(stream.WorkerLimits{MaxRunning: maxWorkers, MaxReserved: maxBusyFibers}, (*request).resumeFiberOnWorker)
	return e
}

// Protocol returns the stream.Protocol that serves the codec's protocol with this engine.
func (e *Engine) Protocol(c codec.Codec) stream.Protocol {
	return stream.Protocol{
		Name:      config.Protocol(c.Traits().Name),
		Match:     c.Match,
		NewServer: func(o stream.ServerOptions) stream.Server { return newServer(e, c, o) },
		NewUpstreamConn: func(conn *network.Conn, o stream.UpstreamConnOptions) stream.UpstreamConn {
			return newUpstreamConn(e, c, conn, o)
		},
		Multiplexed: true,
	}
}

// Close waits for the goroutines of all connections, and then stops the idle fibers and the
// workers. The caller closes the connections first.
func (e *Engine) Close() {
	e.goroutines.Wait()
	e.mu.Lock()
	e.closed = true
	fibers := e.fibers
	e.fibers = nil
	if e.stopScheduled && e.stopTimer.Stop() {
		e.scheduledStops.Done()
	}
	e.mu.Unlock()
	e.scheduledStops.Wait()
	for _, f := range fibers {
		f.stop()
	}
	e.workers.Close()
}

// logPanicIn logs err if it is a recovered panic.
func (e *Engine) logPanicIn(operation string, err error) {
	protocol.PanicIn(err).Log(e.goroutines.Log, operation)
}

// getRequest returns a request from the pool, or a new one.
func (e *Engine) getRequest() *request {
	if r, ok := e.requests.Get().(*request); ok {
		return r
	}
	return newRequest(e)
}

// putRequest puts a request that has ended into the pool.
func (e *Engine) putRequest(r *request) {
	r.c, r.next = nil, nil
	r.sentCall = pendingCall{}
	r.watch.Reset() // the client may have disconnected just as the request ended
	if r.frame != nil {
		r.frame.Release()
		r.frame = nil
	}
	e.requests.Put(r)
}

// getFiber returns a fiber from the free list, or a new one.
func (e *Engine) getFiber() *fiber {
	e.mu.Lock()
	if n := len(e.fibers) - 1; n >= 0 {
		f := e.fibers[n]
		e.fibers = e.fibers[:n]
		e.minIdle = min(e.minIdle, n)
		e.mu.Unlock()
		return f
	}
	e.mu.Unlock()
	return newFiber()
}

// putFiber puts an idle fiber into the free list. If the list is full or the engine is closed,
// putFiber stops the fiber.
func (e *Engine) putFiber(f *fiber) {
	e.mu.Lock()
	keep := !e.closed && len(e.fibers) < maxIdleFibers
	if keep {
		e.fibers = append(e.fibers, f)
		if !e.stopScheduled && len(e.fibers) > minIdleFibers {
			e.scheduleStopUnused()
		}
	}
	e.mu.Unlock()
	if !keep {
		f.stop()
	}
}

// scheduleStopUnused schedules stopUnusedFibers. The caller holds e.mu.
func (e *Engine) scheduleStopUnused() {
	e.stopScheduled, e.minIdle = true, len(e.fibers)
	e.scheduledStops.Add(1)
	if e.stopTimer == nil {
		e.stopTimer = time.AfterFunc(fiberIdleTimeout, e.stopUnusedFibers)
	} else {
		e.stopTimer.Reset(fiberIdleTimeout)
	}
}

// stopUnusedFibers stops the fibers that no request has used since scheduleStopUnused, but keeps
// minIdleFibers. The unused fibers are the first minIdle elements of e.fibers.
func (e *Engine) stopUnusedFibers() {
	defer e.scheduledStops.Done()
	e.mu.Lock()
	var idle []*fiber
	if n := min(e.minIdle, len(e.fibers)) - minIdleFibers; n > 0 {
		idle = slices.Clone(e.fibers[:n])
		e.fibers = slices.Delete(e.fibers, 0, n)
	}
	e.stopScheduled = false
	if !e.closed && len(e.fibers) > minIdleFibers {
		e.scheduleStopUnused()
	}
	e.mu.Unlock()
	for _, f := range idle {
		f.stop()
	}
}
