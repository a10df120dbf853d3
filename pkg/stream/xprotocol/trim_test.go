package xprotocol

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnusedFibersAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(slog.New(slog.DiscardHandler))
		defer e.Close()
		// useFibers uses n fibers concurrently and returns them to the engine.
		useFibers := func(n int) {
			fibers := make([]*fiber, n)
			for i := range fibers {
				fibers[i] = e.getFiber()
			}
			for _, f := range fibers {
				e.putFiber(f)
			}
		}
		idleFibers := func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.fibers)
		}
		useFibers(1000)
		if n := idleFibers(); n != 1000 {
			t.Fatalf("%d idle fibers after the burst, want 1000", n)
		}
		time.Sleep(fiberIdleTimeout + fiberIdleTimeout/2)
		useFibers(300)
		time.Sleep(fiberIdleTimeout/2 + 1)
		synctest.Wait()
		if n := idleFibers(); n > 301+minIdleFibers || n < 300 {
			t.Errorf("%d idle fibers, want 300 to 300+%d", n, minIdleFibers+1)
		}
		time.Sleep(2 * fiberIdleTimeout)
		synctest.Wait()
		if n := idleFibers(); n != minIdleFibers {
			t.Errorf("%d idle fibers without load, want %d", n, minIdleFibers)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.stopScheduled {
			t.Error("stopTimer is armed, but no fiber can be stopped")
		}
	})
}
