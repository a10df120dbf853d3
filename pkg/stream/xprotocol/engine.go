// Package xprotocol owns the engine of framed RPC protocols: connections on
// both sides, on which many exchanges are under way at once. What a protocol's
// frames look like is its codec's business (pkg/protocol/xprotocol).
//
// The way of a request and its answer; each column is a goroutine:
//
//	reader of the caller's connection      reader of the host's connection
//	session.read     all frames there are
//	session.begin    a request for each
//	  request.serve  the service's Start
//	    Client.Start new id, outbox
//	    … pending …                        Client.read     all frames there are
//	batch.flush      one write               call.answered who waits for this id
//	                                           request.wake   the Finishers
//	                                           request.answer old id, outbox
//	                                         batch.flush   one write
//
// Nothing of a request is on a stack while it is pending, nothing is handed from one
// goroutine to another, and what was read together leaves together. A service that
// has to wait for something else, or is not written in two halves, gets a stack by
// Exchange.Fork: a coroutine (fiber.go), which goes on on a worker once it has called
// Exchange.Detach. See docs/decisions/0008.
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
	// keepFibers is how many fibers that serve nothing are kept for the next
	// services that wait: each has a stack of some KiB. Of those that nobody needed
	// for trimAfter only fewFibers stay.
	keepFibers = 4096
	fewFibers  = 64
	trimAfter  = time.Second
	// maxWorkers is how many exchanges wait at once for something other than their
	// upstream's answer, each on a goroutine.
	maxWorkers = 10_000
	// maxForked is how many exchanges have a stack of their own, on which they may wait:
	// for that, for a goroutine, or for an answer. More are refused as
	// protocol.Overloaded.
	maxForked = 50_000
)

// Engine is what all connections of all framed protocols share. Close it after
// the last of them has ended.
type Engine struct {
	log      *slog.Logger
	workers  *stream.Workers[*request]
	running  sync.WaitGroup // goroutines of connections
	requests sync.Pool      // of *request

	mu     sync.Mutex
	spare  []*fiber       // guarded by mu; the last to come is the first to go: its stack is warm
	least  int            // guarded by mu; how many there were at least since the last trim
	timer  *time.Timer    // guarded by mu; calls trim; nil until first armed
	armed  bool           // guarded by mu; timer is set, or trim runs
	trims  sync.WaitGroup // trim is due, or runs
	closed bool           // guarded by mu
}

// New returns an engine. Its log is told of defects.
func New(log *slog.Logger) *Engine {
	e := &Engine{log: log}
	e.workers = stream.NewWorkers(stream.WorkerLimits{Running: maxWorkers, Reserved: maxForked}, (*request).goOnAlone)
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

// Close ends what the engine keeps, and waits for the goroutines of its
// connections, which must have been closed.
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

// start runs a goroutine of a connection, or of what watches one. A panic ends the
// goroutine and not the process.
func (e *Engine) start(f func()) {
	e.running.Go(func() {
		defer e.contain("serving a connection")
		f()
	})
}

// contain is deferred by what must not end its goroutine.
func (e *Engine) contain(doing string) {
	if p := recover(); p != nil {
		protocol.NewPanic(p).Log(e.log, doing)
	}
}

// report logs err if it is a panic that was contained.
func (e *Engine) report(doing string, err error) { protocol.PanicIn(err).Log(e.log, doing) }

// take returns a request that serves nothing.
func (e *Engine) take() *request {
	if r, ok := e.requests.Get().(*request); ok {
		return r
	}
	return newRequest(e)
}

// give takes back a request that has been served.
func (e *Engine) give(r *request) {
	r.c, r.next = nil, nil
	r.sent = waiting{}
	r.watch.Reset() // its caller may have left just when it was over
	if r.frame != nil {
		r.frame.Release()
		r.frame = nil
	}
	e.requests.Put(r)
}

// takeFiber returns a fiber that serves nothing.
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

// giveFiber takes back a fiber that has served.
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

// arm has trim called after a while. e.mu is held.
func (e *Engine) arm() {
	e.armed, e.least = true, len(e.spare)
	e.trims.Add(1)
	if e.timer == nil {
		e.timer = time.AfterFunc(trimAfter, e.trim)
	} else {
		e.timer.Reset(trimAfter)
	}
}

// trim drops the fibers that nobody has needed since it was armed: those at
// the bottom of the spare ones.
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
