package xprotocol

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestFibersThatNobodyNeedsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(slog.New(slog.DiscardHandler))
		defer e.Close()
		// spare has so many fibers serve at once, then none.
		spare := func(n int) {
			all := make([]*fiber, n)
			for i := range all {
				all[i] = e.getFiber()
			}
			for _, f := range all {
				e.putFiber(f)
			}
		}
		kept := func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.fibers)
		}
		spare(1000)
		if n := kept(); n != 1000 {
			t.Fatalf("%d are kept at first, want 1000", n)
		}
		time.Sleep(trimAfter + trimAfter/2)
		spare(300) // so many are needed
		time.Sleep(trimAfter/2 + 1)
		synctest.Wait()
		if n := kept(); n > 301+minIdleFibers || n < 300 {
			t.Errorf("%d are kept, want the 300 that were needed and at most %d more", n, minIdleFibers+1)
		}
		time.Sleep(2 * trimAfter)
		synctest.Wait()
		if n := kept(); n != minIdleFibers {
			t.Errorf("%d are kept when none is needed, want %d", n, minIdleFibers)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.armed {
			t.Error("the timer is set, and there is nothing to drop")
		}
	})
}
