// Package health owns the active checks of hosts: when a host is asked whether it
// can serve, what is asked, and how many answers turn it.
//
//	Group    the checks of a process     when they run (timers), and on what (workers)
//	Check    of one host                 thresholds
//	Probe    one question to a host      TCP, HTTP, gRPC, heartbeats
//
// Between two checks a host costs a timer and nothing else: no goroutine, no
// connection, no buffer. A thousand clusters are checked by a handful of workers.
package health

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// Probe asks a host once.
type Probe interface {
	// Probe returns nil if the host can serve, else why not. It returns soon after
	// the deadline, and when ctx ends, at the latest. It is called by one goroutine at
	// a time.
	Probe(ctx context.Context, deadline time.Time) error
}

// Result is what a check found.
type Result struct {
	Healthy bool  // the host, by its thresholds; not this check
	Turned  bool  // Healthy is not what it was before; also true of a host's first check
	Err     error // why this check failed; nil: it passed
}

// workers is how many checks run at once. A check that fails by its timeout holds
// one for that long: with many such hosts the intervals grow, and memory does not.
const workers = 128

// Group runs checks. Safe for concurrent use.
type Group struct {
	ctx   context.Context //nolint:containedctx // of the checks that run: it ends with the group
	end   context.CancelFunc
	tasks sync.WaitGroup // workers

	mu      sync.Mutex
	running int    // guarded by mu; workers
	first   *Check // guarded by mu; due, and waiting for a worker: linked by Check.next
	last    *Check // guarded by mu
	closed  bool   // guarded by mu
}

// NewGroup returns a group without checks.
func NewGroup() *Group {
	g := &Group{}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g
}

// Close ends every check and waits for those that run. No report begins after it
// has returned.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.end()
	g.tasks.Wait()
}

// Start begins to check a host with p, as cfg says: after cfg.Delay, and from then
// on cfg.Interval after each check, with up to cfg.Jitter on top. The second check
// comes anywhere within the first interval, so that hosts which appeared together
// are not asked together for ever. report is called after each check, by one
// goroutine at a time, and must not wait.
func (g *Group) Start(cfg *config.HealthCheck, p Probe, report func(Result)) *Check {
	c := &Check{group: g, config: cfg, probe: p, report: report}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(cfg.Delay, c.due)
	return c
}

// submit runs c on the calling goroutine, and after it what waits; or has c wait
// for a worker, if there are enough.
func (g *Group) submit(c *Check) {
	g.mu.Lock()
	switch {
	case g.closed:
		g.mu.Unlock()
		return
	case g.running == workers:
		if g.last == nil {
			g.first = c
		} else {
			g.last.next = c
		}
		g.last = c
		g.mu.Unlock()
		return
	}
	g.running++
	g.tasks.Add(1)
	g.mu.Unlock()
	defer g.tasks.Done()
	for c != nil {
		c.run()
		c = g.next()
	}
}

// next takes the check that waits longest; nil if there is none: then the caller is
// no worker any more.
func (g *Group) next() *Check {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.first
	if c == nil || g.closed {
		g.running--
		return nil
	}
	if g.first, c.next = c.next, nil; g.first == nil {
		g.last = nil
	}
	return c
}

// Check is a host's checks. Safe for concurrent use.
type Check struct {
	group  *Group              // immutable
	config *config.HealthCheck // immutable
	probe  Probe               // immutable
	report func(Result)        // immutable
	next   *Check              // guarded by group.mu

	mu      sync.Mutex
	timer   *time.Timer        // guarded by mu
	cut     context.CancelFunc // guarded by mu; ends the check that runs, nil if none does
	stopped bool               // guarded by mu
	verdict verdict            // guarded by mu
	stats   Stats              // guarded by mu
}

// Stats are what a host's checks have come to.
type Stats struct {
	Checks   uint64
	Failures uint64
	Err      error // of the last check; nil: it passed, or there was none
}

// Stats returns what the checks have come to.
func (c *Check) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Stop ends the checks. One that runs is cut short and reported no more, but for a
// report that has begun.
func (c *Check) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.timer.Stop()
	if c.cut != nil {
		c.cut()
	}
}

// due is what the timer calls.
func (c *Check) due() { c.group.submit(c) }

// run checks the host once and sets the timer for the next time.
func (c *Check) run() {
	ctx, begun := c.begin()
	if !begun {
		return
	}
	err := ask(ctx, c.probe, time.Now().Add(c.config.Timeout))
	if r, ok := c.finish(err); ok {
		c.report(r)
		c.again()
	}
}

func (c *Check) begin() (context.Context, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, false
	}
	ctx, cut := context.WithCancel(c.group.ctx)
	c.cut = cut
	return ctx, true
}

// finish takes note of a check that found err. There is nothing to report of one
// that was cut short.
func (c *Check) finish(err error) (Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut()
	c.cut = nil
	if c.stopped || c.group.ctx.Err() != nil {
		return Result{}, false
	}
	c.stats.Checks++
	c.stats.Err = err
	if err != nil {
		c.stats.Failures++
	}
	turned := c.verdict.take(err == nil, c.config)
	return Result{Healthy: c.verdict.healthy, Turned: turned, Err: err}, true
}

// again sets the timer.
func (c *Check) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	wait := c.config.Interval
	if c.stats.Checks == 1 {
		wait = rand.N(wait) + 1
	}
	if j := c.config.Jitter; j > 0 {
		wait += rand.N(j + 1)
	}
	c.timer.Reset(wait)
}

// ask is Probe, of which a panic costs the check and nothing else.
func ask(ctx context.Context, p Probe, deadline time.Time) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return p.Probe(ctx, deadline)
}
