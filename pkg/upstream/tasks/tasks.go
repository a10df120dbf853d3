// Package tasks runs the timers and goroutines of a set of clusters that no exchange owns, and
// waits for them.
package tasks

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Group tracks the timers and goroutines of a set, and is their clock. Safe for concurrent use.
type Group struct {
	epoch  time.Time          // immutable
	log    *slog.Logger       // immutable
	ctx    context.Context    //nolint:containedctx // for connects that no exchange owns; it ends with the set
	cancel context.CancelFunc // immutable

	tasks sync.WaitGroup // timers that are armed or running, and goroutines

	mu     sync.Mutex
	closed bool // guarded by mu; Go adds no further goroutines to tasks
}

// New returns a Group. The caller calls Close and Wait.
func New(log *slog.Logger) *Group {
	g := &Group{epoch: time.Now(), log: log}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Now returns the time since New. Hosts and pools measure ages, idle times and backoffs with it. It
// is cheaper than time.Now.
func (g *Group) Now() time.Duration { return time.Since(g.epoch) }

// Context returns the context of tasks, which ends with Close.
func (g *Group) Context() context.Context { return g.ctx }

// Closed reports whether Close was called.
func (g *Group) Closed() bool { return g.ctx.Err() != nil }

// Go runs f on a new goroutine, for which Wait waits. After Close, an exchange that outlives the
// set may still call Go: Wait does not wait for that goroutine, which ends soon because Context has
// ended.
func (g *Group) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		go f()
		return
	}
	g.tasks.Go(f)
}

// AddTimer records that a timer was armed; Wait waits for its end. The owner of the timer calls
// TimerDone when the timer has stopped, or when its function has ended without arming it again.
func (g *Group) AddTimer() { g.tasks.Add(1) }

// TimerDone records that a timer is no longer armed.
func (g *Group) TimerDone() { g.tasks.Done() }

// RunRecovered runs f. It recovers and logs a panic of f, so that a panic on the goroutine of a
// timer does not end the process. activity says in the log what f does.
func (g *Group) RunRecovered(activity string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			protocol.NewPanic(p).Log(g.log, activity)
		}
	}()
	f()
}

// Close ends Context. The caller calls it once, before Wait.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
}

// Wait waits for the goroutines and timers. The caller has stopped every timer, or arms it no more.
func (g *Group) Wait() { g.tasks.Wait() }
