// Package xprotocol implements the engine of framed RPC protocols. Its connections, downstream and
// upstream, carry many concurrent exchanges. A codec of pkg/protocol/xprotocol defines the frames
// of a protocol.
//
// The path of a request and its response; each column is a goroutine:
//
//	reader of the client's connection      reader of the host's connection
//	downstreamConn.read   complete frames
//	downstreamConn.addRequest  a request each
//	downstreamConn.startAll
//	  request.serve       service's Start
//	    UpstreamConn.Start new id, write queue
//	    … pending …                        UpstreamConn.read complete frames
//	batch.flush           one write          call.setResponse the call of this id
//	                                           request.wake   the Finishers
//	                                           request.sendResponse old id, write queue
//	                                         batch.flush     one write
//
// A pending request holds no goroutine. The responses to requests that were read together are sent
// together. Exchange.RunBlocking runs a service that has to wait for something else, or is not
// asynchronous, on a coroutine (fiber.go). The coroutine moves to a worker when the service calls
// Exchange.Detach. See docs/decisions/0008.
//
// The files, in the order that data passes them: input.go and batch.go (both sides), server.go,
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
	// maxIdleFibers is the maximum number of idle fibers; each has a stack of some KiB. Every
	// fiberIdleTimeout, the engine stops the fibers that were not needed in that time, down to
	// minIdleFibers.
	maxIdleFibers    = 4096
	minIdleFibers    = 64
	fiberIdleTimeout = time.Second
	// maxWorkers is the maximum number of exchanges that wait, each on a goroutine, for something
	// other than an upstream's response.
	maxWorkers = 10_000
	// maxForked is the maximum number of exchanges that run on a fiber, where they wait for a
	// worker or a response. Further ones fail with protocol.Overloaded.
	maxForked = 50_000
)

// Engine holds what all connections of all framed protocols share. Close it after the last of them
// has ended.
type Engine struct {
	goroutines stream.Goroutines // of connections
	workers    *stream.Workers[*request]
	requests   sync.Pool // of *request

	mu             sync.Mutex
	fibers         []*fiber       // guarded by mu; idle fibers; the one that became idle last is used first
	minIdle        int            // guarded by mu; the smallest len(fibers) since scheduleStopUnused
	stopTimer      *time.Timer    // guarded by mu; calls stopUnusedFibers; nil until first armed
	stopScheduled  bool           // guarded by mu; stopTimer is set, or stopUnusedFibers runs
	scheduledStops sync.WaitGroup // counts the call of stopUnusedFibers that is scheduled or runs
	closed         bool           // guarded by mu
}

// New returns an engine that logs defects to log.
func New(log *slog.Logger) *Engine {
	e := &Engine{goroutines: stream.Goroutines{Log: log}}
	e.workers = stream.NewWorkers(stream.WorkerLimits{MaxRunning: maxWorkers, MaxReserved: maxForked}, (*request).resumeForkOnWorker)
	return e
}

// Protocol returns the registry's entry for a codec.
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

// Close stops the idle fibers and the workers after it has waited for the goroutines of the
// engine's connections. The caller closes the connections first.
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

// getRequest returns an idle request.
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
	r.watch.Reset() // its client may have disconnected just as it ended
	if r.frame != nil {
		r.frame.Release()
		r.frame = nil
	}
	e.requests.Put(r)
}

// getFiber returns an idle fiber.
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

// putFiber puts an idle fiber into the free list, or stops it if the list is full.
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

// stopUnusedFibers stops the fibers that were not needed since scheduleStopUnused: the first ones
// in fibers.
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
