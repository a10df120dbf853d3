package dubbo

import (
	"context"
	"sync"
)

// tasks runs goroutines while Discovery runs. Its methods are safe for concurrent use.
type tasks struct {
	mu      mutex[rank3]
	ctx     context.Context //nolint:containedctx // of Run; guarded by mu; nil: not running
	running sync.WaitGroup  // nothing is added after stop
}

// start enables run. The goroutines get ctx, which ends when Run ends.
func (t *tasks) start(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx = ctx
}

// run calls f on a new goroutine, and reports true. Before start and after stop it does nothing and
// reports false.
func (t *tasks) run(f func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		return false
	}
	ctx := t.ctx
	t.running.Go(func() { f(ctx) })
	return true
}

// stop disables run.
func (t *tasks) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx = nil
}

// wait waits until all goroutines have ended. The caller has called stop.
func (t *tasks) wait() { t.running.Wait() }
