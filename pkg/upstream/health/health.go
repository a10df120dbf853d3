// Package health implements the active health checks of hosts: when they run, what they send, and
// how many results change a host's health.
//
//	Scheduler  all checks of a process   when they run, and on which workers
//	Check      the checks of one host    thresholds
//	Probe      one check of a host       TCP, HTTP, gRPC, heartbeats
//
// Between two checks, a host costs only a heap entry: no goroutine, timer, connection or buffer. A
// few workers check the hosts of a thousand clusters.
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
	// Probe returns nil if the host can serve, else an error with the reason. It must return soon
	// after the deadline or the end of ctx, whichever is first. It is not called concurrently.
	Probe(ctx context.Context, deadline time.Time) error
}

// Result is the result of a check.
type Result struct {
	Healthy bool  // health of the host by the thresholds; may differ from the result of this check
	Changed bool  // Healthy has changed; also true for a host's first check
	Err     error // why this check failed; nil: it passed
}

// Bounds of the number of workers of a Scheduler, and thereby of concurrent checks. A check that
// times out occupies its worker until the timeout: with many such hosts the intervals grow, but
// memory does not. Most checks are short. So the Scheduler exceeds baseWorkers only if checks are
// still queued growDelay after it started the last worker, and at most doubles the number of
// workers each time.
const (
	baseWorkers = 16
	maxWorkers  = 128
	growDelay   = 100 * time.Millisecond
)

const never = math.MaxInt64

// Scheduler runs checks. It is safe for concurrent use.
type Scheduler struct {
	ctx     context.Context //nolint:containedctx // for the running checks: it ends with the Scheduler
	stop    context.CancelFunc
	onPanic func(*protocol.PanicError) // immutable; nil: panics are not reported
	epoch   time.Time                  // origin of the times below
	tasks   sync.WaitGroup             // workers

	mu         sync.Mutex
	scheduled  checkHeap     // guarded by mu; checks that are not due yet
	timer      *time.Timer   // guarded by mu; calls enqueueDue; nil until the first check
	timerAt    time.Duration // guarded by mu; when timer fires; the constant never if it is not armed
	lastGrowth time.Duration // guarded by mu; when the last worker started
	running    int           // guarded by mu; number of workers
	queueHead  *Check        // guarded by mu; due checks that wait for a worker, linked by Check.next
	queueTail  *Check        // guarded by mu
	closed     bool          // guarded by mu
}

// NewScheduler returns a Scheduler without checks. It calls onPanic, which may be nil, with each
// panic of a probe or a report.
func NewScheduler(onPanic func(*protocol.PanicError)) *Scheduler {
	s := &Scheduler{epoch: time.Now(), timerAt: never, onPanic: onPanic}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends all checks and waits for the running ones. No report begins after Close has returned.
func (s *Scheduler) Close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.stop()
	s.tasks.Wait()
}

// Start schedules checks of a host with p as cfg says: the first after cfg.Delay, the others
// cfg.Interval after the previous check, plus up to cfg.Jitter. The second check runs at a random
// time within the first interval, so that hosts that appeared together are not always checked
// together. report is called after each check, never concurrently, and must not block.
func (s *Scheduler) Start(cfg *config.HealthCheck, p Probe, report func(Result)) *Check {
	c := &Check{scheduler: s, config: cfg, probe: p, report: report}
	s.schedule(c, cfg.Delay)
	return c
}

// schedule adds c to the scheduled checks, due after the given time.
func (s *Scheduler) schedule(c *Check, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	c.due = time.Since(s.epoch) + delay
	heap.Push(&s.scheduled, c)
	s.arm(c.due)
}

// cancel removes c from the scheduled checks if it is one of them.
func (s *Scheduler) cancel(c *Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.heapIndex > 0 {
		heap.Remove(&s.scheduled, c.heapIndex-1)
	}
}

// arm sets the timer to call enqueueDue at the given time, unless it fires earlier. The caller
// holds s.mu.
func (s *Scheduler) arm(at time.Duration) {
	if s.timerAt <= at {
		return
	}
	s.timerAt = at
	wait := max(at-time.Since(s.epoch), 0)
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.enqueueDue)
	} else {
		s.timer.Reset(wait)
	}
}

// enqueueDue queues the checks that are due and starts workers if needed.
func (s *Scheduler) enqueueDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timerAt = never
	if s.closed {
		return
	}
	now := time.Since(s.epoch)
	for len(s.scheduled) > 0 && s.scheduled[0].due <= now {
		c := heap.Pop(&s.scheduled).(*Check) //nolint:forcetypeassert // the heap holds only checks
		if s.queueTail == nil {
			s.queueHead = c
		} else {
			s.queueTail.next = c
		}
		s.queueTail = c
	}
	s.startWorkers(now)
	if len(s.scheduled) > 0 {
		s.arm(s.scheduled[0].due)
	}
}

// startWorkers starts workers for the queued checks. The caller holds s.mu.
func (s *Scheduler) startWorkers(now time.Duration) {
	limit := baseWorkers
	if s.running >= baseWorkers {
		limit = s.running
		if now-s.lastGrowth >= growDelay {
			limit = min(2*limit, maxWorkers)
		}
	}
	check := s.queueHead
	for ; s.running < limit && check != nil; check = check.next {
		s.running++
		s.lastGrowth = now
		s.tasks.Go(s.runWorker)
	}
	if check != nil && s.running < maxWorkers {
		s.arm(now + growDelay)
	}
}

// runWorker is the body of a worker: it runs checks until none is queued.
func (s *Scheduler) runWorker() {
	for c := s.dequeue(); c != nil; c = s.dequeue() {
		c.run()
	}
}

// dequeue removes and returns the check at the head of the queue. If there is none, or s is closed,
// it returns nil and the worker must exit.
func (s *Scheduler) dequeue() *Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.queueHead
	if c == nil || s.closed {
		s.running--
		return nil
	}
	if s.queueHead, c.next = c.next, nil; s.queueHead == nil {
		s.queueTail = nil
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

// Stop ends the checks. It cancels a running check, which then makes no report. The report of a
// check that has ended may begin after Stop.
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
	ctx, cancel := context.WithCancel(c.scheduler.ctx)
	c.cancel = cancel
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
	changed := c.state.record(err == nil, c.config)
	return Result{Healthy: c.state.healthy, Changed: changed, Err: err}, true
}

// scheduleNext schedules the next check.
func (c *Check) scheduleNext() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	delay := c.config.Interval
	if c.stats.Checks == 1 {
		delay = rand.N(delay) + 1
	}
	if j := c.config.Jitter; j > 0 {
		delay += rand.N(j + 1)
	}
	c.scheduler.schedule(c, delay)
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

// callReport calls report with the result of a check and recovers a panic.
func (c *Check) callReport(r Result) {
	defer func() {
		if v := recover(); v != nil {
			_ = c.scheduler.reportPanic(v) // the checks continue
		}
	}()
	c.report(r)
}

// reportPanic passes a recovered panic to onPanic and returns it as an error.
func (s *Scheduler) reportPanic(recovered any) *protocol.PanicError {
	p := protocol.NewPanic(recovered)
	if s.onPanic != nil {
		s.onPanic(p)
	}
	return p
}
