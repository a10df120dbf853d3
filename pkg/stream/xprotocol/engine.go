// Package xprotocol implements the engine of framed RPC protocols. Its connections, downstream and
// upstream, carry many concurrent exchanges. A codec of pkg/protocol/xprotocol defines the frames
// of a protocol.
//
// The path of a request and its response; each column is a goroutine:
//
//	reader of the client's connection      reader of the host's connection
//	downstreamConn.read   complete frames
//	downstreamConn.begin  a request each
//	downstreamConn.startAll
//	  request.serve       service's Start
//	    UpstreamConn.Start new id, write queue
//	    … pending …                        UpstreamConn.read complete frames
//	batch.flush           one write          call.answered   the call of this id
//	                                           request.wake   the Finishers
//	                                           request.answer old id, write queue
//	                                         batch.flush     one write
//
// A pending request holds no stack and is not passed between goroutines. The responses to requests
// that were read together are sent together. Exchange.RunBlocking runs a service that has to wait
// for something else, or is not asynchronous, on a coroutine (fiber.go). The coroutine moves to a
// worker when the service calls Exchange.Detach. See docs/decisions/0008.
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
	// keepFibers is the maximum number of idle fibers; each has a stack of some KiB. After
	// trimAfter, the engine stops the fibers that were not needed in that time, down to fewFibers.
	keepFibers = 4096
	fewFibers  = 64
	trimAfter  = time.Second
	// maxWorkers is the maximum number of exchanges that wait, each on a goroutine, for something
	// other than an upstream's response.
	maxWorkers = 10_000
	// maxForked is the maximum number of exchanges with a stack of their own, on which they wait
	// for a worker or a response. Further ones fail with protocol.Overloaded.
	maxForked = 50_000
)

// Engine holds what all connections of all framed protocols share. Close it after the last of them
// has ended.
type Engine struct {
	log      *slog.Logger
	workers  *stream.Workers[*request]
	running  sync.WaitGroup // goroutines of connections
	requests sync.Pool      // of *request

	mu     sync.Mutex
	spare  []*fiber       // guarded by mu; idle fibers, used last in, first out: the last has a warm stack
	least  int            // guarded by mu; the smallest len(spare) since arm
	timer  *time.Timer    // guarded by mu; calls trim; nil until first armed
	armed  bool           // guarded by mu; timer is set, or trim runs
	trims  sync.WaitGroup // counts a trim that is due or runs
	closed bool           // guarded by mu
}

// New returns an engine that logs defects to log.
func New(log *slog.Logger) *Engine {
	e := &Engine{log: log}
	e.workers = stream.NewWorkers(stream.WorkerLimits{MaxRunning: maxWorkers, MaxReserved: maxForked}, (*request).goOnAlone)
	return e
}

// Protocol returns the registry's entry for a codec.
func (e *Engine) Protocol(c codec.Codec) stream.Protocol {
	return stream.Protocol{
		Name:      config.Protocol(c.Traits().Name),
		Match:     c.Match,
		NewServer: func(o stream.ServerOptions) stream.Server { return newServer(e, c, o) },
		NewUpstreamConn: func(conn *network.Conn, o stream.UpstreamConnOptions) stream.UpstreamConn {
			return newClient(e, c, conn, o)
		},
		Multiplexed: true,
	}
}

// Close stops the idle fibers and the workers after it has waited for the goroutines of the
// engine's connections. The caller closes the connections first.
func (e *Engine) Close() {
	e.running.Wait()
	e.mu.Lock()
	e.closed = true
	spare := e.spare
	e.spare = nil
	if e.armed && e.timer.Stop() {
		e.trims.Done()
	}
	e.mu.Unlock()
	e.trims.Wait()
	for _, f := range spare {
		f.stop()
	}
	e.workers.Close()
}

// start runs f on a goroutine that serves or watches a connection. A panic ends only the goroutine.
func (e *Engine) start(f func()) {
	e.running.Go(func() {
		defer e.contain("serving a connection")
		f()
	})
}

// contain recovers and logs a panic; functions that must not end their goroutine defer it.
func (e *Engine) contain(doing string) {
	if p := recover(); p != nil {
		protocol.NewPanic(p).Log(e.log, doing)
	}
}

// report logs err if it is a recovered panic.
func (e *Engine) report(doing string, err error) { protocol.PanicIn(err).Log(e.log, doing) }

// take returns an idle request.
func (e *Engine) take() *request {
	if r, ok := e.requests.Get().(*request); ok {
		return r
	}
	return newRequest(e)
}

// give puts a request that has ended into the free list.
func (e *Engine) give(r *request) {
	r.c, r.next = nil, nil
	r.sent = waiting{}
	r.watch.Reset() // its client may have disconnected just as it ended
	if r.frame != nil {
		r.frame.Release()
		r.frame = nil
	}
	e.requests.Put(r)
}

// takeFiber returns an idle fiber.
func (e *Engine) takeFiber() *fiber {
	e.mu.Lock()
	if n := len(e.spare) - 1; n >= 0 {
		f := e.spare[n]
		e.spare = e.spare[:n]
		e.least = min(e.least, n)
		e.mu.Unlock()
		return f
	}
	e.mu.Unlock()
	return newFiber()
}

// giveFiber puts an idle fiber into the free list, or stops it if the list is full.
func (e *Engine) giveFiber(f *fiber) {
	e.mu.Lock()
	keep := !e.closed && len(e.spare) < keepFibers
	if keep {
		e.spare = append(e.spare, f)
		if !e.armed && len(e.spare) > fewFibers {
			e.arm()
		}
	}
	e.mu.Unlock()
	if !keep {
		f.stop()
	}
}

// arm schedules trim. The caller holds e.mu.
func (e *Engine) arm() {
	e.armed, e.least = true, len(e.spare)
	e.trims.Add(1)
	if e.timer == nil {
		e.timer = time.AfterFunc(trimAfter, e.trim)
	} else {
		e.timer.Reset(trimAfter)
	}
}

// trim stops the fibers that were not needed since arm: those at the bottom of spare.
func (e *Engine) trim() {
	defer e.trims.Done()
	e.mu.Lock()
	var idle []*fiber
	if n := min(e.least, len(e.spare)) - fewFibers; n > 0 {
		idle = slices.Clone(e.spare[:n])
		e.spare = slices.Delete(e.spare, 0, n)
	}
	e.armed = false
	if !e.closed && len(e.spare) > fewFibers {
		e.arm()
	}
	e.mu.Unlock()
	for _, f := range idle {
		f.stop()
	}
}
