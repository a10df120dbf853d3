// Package health owns the active checks of hosts: when a host is asked whether it
// can serve, what is asked, and how many answers turn it.
//
//	Group    the checks of a process     when they run (agenda), and on what (workers)
//	Check    of one host                 thresholds
//	Probe    one question to a host      TCP, HTTP, gRPC, heartbeats
//
// Between two checks a host costs a place in a list and nothing else: no goroutine, no
// timer, no connection, no buffer. A thousand clusters are checked by a handful of
// workers.
package health

import (
	"container/heap"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
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

// How many checks run at once. A check that fails by its timeout holds a worker for that
// long: with many such hosts the intervals grow, and memory does not. Most checks take
// a moment, so that more than few workers come only while there is nobody free for
// hesitation, and then twice as many each time.
const (
	few        = 16
	workers    = 128
	hesitation = 100 * time.Millisecond
)

const never = math.MaxInt64

// Scheduler runs checks. Safe for concurrent use.
type Scheduler struct {
	ctx      context.Context //nolint:containedctx // of the checks that run: it ends with the group
	end      context.CancelFunc
	panicked func(*protocol.PanicError) // immutable; nil: panics are not reported
	epoch    time.Time                  // of the times that follow
	tasks    sync.WaitGroup             // workers

	mu      sync.Mutex
	agenda  agenda        // guarded by mu; checks that are not due
	timer   *time.Timer   // guarded by mu; calls wake; nil until there is a check
	at      time.Duration // guarded by mu; when timer fires; never: it does not
	grown   time.Duration // guarded by mu; when the last worker came
	running int           // guarded by mu; workers
	first   *Check        // guarded by mu; due, and waiting for a worker: linked by Check.next
	last    *Check        // guarded by mu
	closed  bool          // guarded by mu
}

// NewGroup returns a group without checks. It calls panicked, which may be nil, with each
// panic of a probe or a report.
func NewGroup(panicked func(*protocol.PanicError)) *Scheduler {
	g := &Scheduler{epoch: time.Now(), at: never, panicked: panicked}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g
}

// Close ends every check and waits for those that run. No report begins after it
// has returned.
func (g *Scheduler) Close() {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.end()
	g.tasks.Wait()
}

// Start begins to check a host with p, as cfg says: after cfg.Delay, and from then
// on cfg.Interval after each check, with up to cfg.Jitter on top. The second check
// comes anywhere within the first interval, so that hosts which appeared together
// are not asked together for ever. report is called after each check, by one
// goroutine at a time, and must not wait.
func (g *Scheduler) Start(cfg *config.HealthCheck, p Probe, report func(Result)) *Check {
	c := &Check{group: g, config: cfg, probe: p, report: report}
	g.schedule(c, cfg.Delay)
	return c
}

// schedule has c run after a time.
func (g *Scheduler) schedule(c *Check, after time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	c.due = time.Since(g.epoch) + after
	heap.Push(&g.agenda, c)
	g.arm(c.due)
}

// cancel takes c from the agenda, if it is there.
func (g *Scheduler) cancel(c *Check) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.place > 0 {
		heap.Remove(&g.agenda, c.place-1)
	}
}

// arm has wake called at a time, if that is not to happen before. g.mu is held.
func (g *Scheduler) arm(at time.Duration) {
	if g.at <= at {
		return
	}
	g.at = at
	wait := max(at-time.Since(g.epoch), 0)
	if g.timer == nil {
		g.timer = time.AfterFunc(wait, g.wake)
	} else {
		g.timer.Reset(wait)
	}
}

// wake finds who is due, and sees to it that there are workers.
func (g *Scheduler) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = never
	if g.closed {
		return
	}
	now := time.Since(g.epoch)
	for len(g.agenda) > 0 && g.agenda[0].due <= now {
		c := heap.Pop(&g.agenda).(*Check) //nolint:forcetypeassert // nothing else is in it
		if g.last == nil {
			g.first = c
		} else {
			g.last.next = c
		}
		g.last = c
	}
	g.staff(now)
	if len(g.agenda) > 0 {
		g.arm(g.agenda[0].due)
	}
}

// staff starts workers for those who wait. g.mu is held.
func (g *Scheduler) staff(now time.Duration) {
	most := few
	if g.running >= few {
		most = g.running
		if now-g.grown >= hesitation {
			most = min(2*most, workers)
		}
	}
	waiting := g.first
	for ; g.running < most && waiting != nil; waiting = waiting.next {
		g.running++
		g.grown = now
		g.tasks.Go(g.work)
	}
	if waiting != nil && g.running < workers {
		g.arm(now + hesitation)
	}
}

// work is what a worker does: it runs checks until none waits.
func (g *Scheduler) work() {
	for c := g.next(); c != nil; c = g.next() {
		c.run()
	}
}

// next takes the check that waits longest; nil if there is none: then the caller is
// no worker any more.
func (g *Scheduler) next() *Check {
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
	group  *Scheduler          // immutable
	config *config.HealthCheck // immutable
	probe  Probe               // immutable
	report func(Result)        // immutable
	next   *Check              // guarded by group.mu
	due    time.Duration       // guarded by group.mu; when it runs next
	place  int                 // guarded by group.mu; in the agenda, from 1; 0: it is not there

	mu      sync.Mutex         // taken before group.mu
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
	c.group.cancel(c)
	if c.cut != nil {
		c.cut()
	}
}

// run checks the host once, and has it checked again.
func (c *Check) run() {
	ctx, begun := c.begin()
	if !begun {
		return
	}
	err := c.ask(ctx, time.Now().Add(c.config.Timeout))
	if r, ok := c.finish(err); ok {
		c.tell(r)
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

// again has the host checked once more.
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
	c.group.schedule(c, wait)
}

// ask is Probe, of which a panic fails the check.
func (c *Check) ask(ctx context.Context, deadline time.Time) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.group.contained(v)
		}
	}()
	return c.probe.Probe(ctx, deadline)
}

// tell reports what a check found. A panic of the report costs no more than that.
func (c *Check) tell(r Result) {
	defer func() {
		if v := recover(); v != nil {
			_ = c.group.contained(v) // the checks go on
		}
	}()
	c.report(r)
}

// contained reports a panic, which the deferred function that calls it has recovered.
func (g *Scheduler) contained(recovered any) *protocol.PanicError {
	p := protocol.NewPanic(recovered)
	if g.panicked != nil {
		g.panicked(p)
	}
	return p
}
