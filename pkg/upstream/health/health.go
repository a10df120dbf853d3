// Package health owns the active health checks of hosts: when they run, what they send, and how
// many results change a host's health.
//
//	Scheduler  all checks of a process   when they run, and on which workers
//	Check      the checks of one host    thresholds
//	Probe      one check of a host       TCP, HTTP, gRPC, heartbeats
//
// Between two checks a host costs one heap entry and nothing else: no goroutine, no timer, no
// connection, no buffer. A few workers check the hosts of a thousand clusters.
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

// Probe checks a host once.
type Probe interface {
	// Probe returns nil if the host can serve, else the reason why not. It must return soon after
	// the deadline or the end of ctx, whichever is first. One goroutine at a time calls it.
	Probe(ctx context.Context, deadline time.Time) error
}

// Result is the result of a check.
type Result struct {
	Healthy bool  // state of the host by its thresholds, not of this check
	Changed bool  // Healthy has changed; also true for a host's first check
	Err     error // why this check failed; nil: it passed
}

// Bounds on concurrent checks. A check that times out occupies a worker for that long: with many
// such hosts the intervals grow, but memory does not. Most checks are short, so the number of
// workers exceeds few only after no worker was free for growDelay, and then at most doubles each
// time.
const (
	baseWorkers = 16
	maxWorkers  = 128
	growDelay   = 100 * time.Millisecond
)

const never = math.MaxInt64

// Scheduler runs checks. It is safe for concurrent use.
type Scheduler struct {
	ctx      context.Context //nolint:containedctx // of the checks that run: it ends with the Scheduler
	stop     context.CancelFunc
	panicked func(*protocol.PanicError) // immutable; nil: panics are not reported
	epoch    time.Time                  // origin of the times below
	tasks    sync.WaitGroup             // workers

	mu         sync.Mutex
	scheduled  checkHeap     // guarded by mu; checks that are not due yet
	timer      *time.Timer   // guarded by mu; calls enqueueDue; nil until the first check
	timerAt    time.Duration // guarded by mu; when timer fires; "never" if it is not armed
	lastGrowth time.Duration // guarded by mu; when the last worker started
	running    int           // guarded by mu; number of workers
	queueHead  *Check        // guarded by mu; due checks that wait for a worker, linked by Check.next
	queueTail  *Check        // guarded by mu
	closed     bool          // guarded by mu
}

// NewScheduler returns a Scheduler without checks. It calls panicked, which may be nil, with each
// panic of a probe or a report.
func NewScheduler(panicked func(*protocol.PanicError)) *Scheduler {
	g := &Scheduler{epoch: time.Now(), timerAt: never, panicked: panicked}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// Close ends all checks and waits for the running ones. No report begins after Close has returned.
func (g *Scheduler) Close() {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.stop()
	g.tasks.Wait()
}

// Start schedules checks of a host with p as cfg says: the first after cfg.Delay, the others
// cfg.Interval after the previous check, plus up to cfg.Jitter. The second check runs at a random
// time within the first interval, so that hosts that appeared together are not always checked
// together. report is called after each check, by one goroutine at a time, and must not block.
func (g *Scheduler) Start(cfg *config.HealthCheck, p Probe, report func(Result)) *Check {
	c := &Check{scheduler: g, config: cfg, probe: p, report: report}
	g.schedule(c, cfg.Delay)
	return c
}

// schedule adds c to the scheduled checks, due after the given time.
func (g *Scheduler) schedule(c *Check, after time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	c.due = time.Since(g.epoch) + after
	heap.Push(&g.scheduled, c)
	g.arm(c.due)
}

// cancel removes c from the scheduled checks if it is one of them.
func (g *Scheduler) cancel(c *Check) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.heapIndex > 0 {
		heap.Remove(&g.scheduled, c.heapIndex-1)
	}
}

// arm sets the timer to call enqueueDue at the given time, unless it fires earlier. The caller
// holds g.mu.
func (g *Scheduler) arm(at time.Duration) {
	if g.timerAt <= at {
		return
	}
	g.timerAt = at
	wait := max(at-time.Since(g.epoch), 0)
	if g.timer == nil {
		g.timer = time.AfterFunc(wait, g.enqueueDue)
	} else {
		g.timer.Reset(wait)
	}
}

// enqueueDue queues the checks that are due and starts workers if needed.
func (g *Scheduler) enqueueDue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timerAt = never
	if g.closed {
		return
	}
	now := time.Since(g.epoch)
	for len(g.scheduled) > 0 && g.scheduled[0].due <= now {
		c := heap.Pop(&g.scheduled).(*Check) //nolint:forcetypeassert // nothing else is in it
		if g.queueTail == nil {
			g.queueHead = c
		} else {
			g.queueTail.next = c
		}
		g.queueTail = c
	}
	g.startWorkers(now)
	if len(g.scheduled) > 0 {
		g.arm(g.scheduled[0].due)
	}
}

// startWorkers starts workers for the queued checks. The caller holds g.mu.
func (g *Scheduler) startWorkers(now time.Duration) {
	most := baseWorkers
	if g.running >= baseWorkers {
		most = g.running
		if now-g.lastGrowth >= growDelay {
			most = min(2*most, maxWorkers)
		}
	}
	waiting := g.queueHead
	for ; g.running < most && waiting != nil; waiting = waiting.next {
		g.running++
		g.lastGrowth = now
		g.tasks.Go(g.runWorker)
	}
	if waiting != nil && g.running < maxWorkers {
		g.arm(now + growDelay)
	}
}

// runWorker is the body of a worker: it runs checks until none is queued.
func (g *Scheduler) runWorker() {
	for c := g.dequeue(); c != nil; c = g.dequeue() {
		c.run()
	}
}

// dequeue removes and returns the check at the head of the queue. If there is none, or g is closed,
// it returns nil and the worker must exit.
func (g *Scheduler) dequeue() *Check {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.queueHead
	if c == nil || g.closed {
		g.running--
		return nil
	}
	if g.queueHead, c.next = c.next, nil; g.queueHead == nil {
		g.queueTail = nil
	}
	return c
}

// Check runs the checks of one host. It is safe for concurrent use.
type Check struct {
	scheduler *Scheduler          // immutable
	config    *config.HealthCheck // immutable
	probe     Probe               // immutable
	report    func(Result)        // immutable
	next      *Check              // guarded by scheduler.mu
	due       time.Duration       // guarded by scheduler.mu; time of the next run
	heapIndex int                 // guarded by scheduler.mu; index in Scheduler.scheduled plus 1; 0: not scheduled

	mu      sync.Mutex         // taken before scheduler.mu
	cancel  context.CancelFunc // guarded by mu; cancels the running check, nil if none runs
	stopped bool               // guarded by mu
	state   thresholdState     // guarded by mu
	stats   Stats              // guarded by mu
}

// Stats counts a host's checks.
type Stats struct {
	Checks   uint64
	Failures uint64
	Err      error // error of the last check; nil: it passed, or there was none
}

// Stats returns the counts so far.
func (c *Check) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Stop ends the checks. It cancels a running check, which then makes no report unless the report
// has already begun.
func (c *Check) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.scheduler.cancel(c)
	if c.cancel != nil {
		c.cancel()
	}
}

// run checks the host once and schedules the next check.
func (c *Check) run() {
	ctx, begun := c.begin()
	if !begun {
		return
	}
	err := c.runProbe(ctx, time.Now().Add(c.config.Timeout))
	if r, ok := c.finish(err); ok {
		c.callReport(r)
		c.scheduleNext()
	}
}

func (c *Check) begin() (context.Context, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, false
	}
	ctx, cut := context.WithCancel(c.scheduler.ctx)
	c.cancel = cut
	return ctx, true
}

// finish records the result of a check. It returns false for a check that was canceled, which must
// not be reported.
func (c *Check) finish(err error) (Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	c.cancel = nil
	if c.stopped || c.scheduler.ctx.Err() != nil {
		return Result{}, false
	}
	c.stats.Checks++
	c.stats.Err = err
	if err != nil {
		c.stats.Failures++
	}
	turned := c.state.record(err == nil, c.config)
	return Result{Healthy: c.state.healthy, Changed: turned, Err: err}, true
}

// scheduleNext schedules the next check.
func (c *Check) scheduleNext() {
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
	c.scheduler.schedule(c, wait)
}

// runProbe calls Probe and turns its panic into a failed check.
func (c *Check) runProbe(ctx context.Context, deadline time.Time) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.scheduler.reportPanic(v)
		}
	}()
	return c.probe.Probe(ctx, deadline)
}

// callReport reports the result of a check and contains a panic of the report.
func (c *Check) callReport(r Result) {
	defer func() {
		if v := recover(); v != nil {
			_ = c.scheduler.reportPanic(v) // the checks go on
		}
	}()
	c.report(r)
}

// reportPanic reports a recovered panic to the owner and returns it as an error.
func (g *Scheduler) reportPanic(recovered any) *protocol.PanicError {
	p := protocol.NewPanic(recovered)
	if g.panicked != nil {
		g.panicked(p)
	}
	return p
}
