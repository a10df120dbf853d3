package stream

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkersAreBounded verifies that no more goroutines run than the limit, that further exchanges
// are queued and run in order, and that a reservation beyond the limit fails immediately.
func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const running, reserved = 3, 10
		release := make(chan struct{})
		var active, maxActive atomic.Int64
		var mu sync.Mutex
		var order []int
		w := NewWorkers(WorkerLimits{MaxRunning: running, MaxReserved: reserved}, func(i int) {
			maxActive.Store(max(maxActive.Load(), active.Add(1)))
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			<-release
			active.Add(-1)
		})
		for i := range reserved {
			if !w.Reserve() {
				t.Fatalf("reservation %d failed, want %d to succeed", i, reserved)
			}
			w.Go(i)
			synctest.Wait()
		}
		if w.Reserve() {
			t.Error("a reservation beyond the limit succeeded")
		}
		if got := active.Load(); got != running {
			t.Errorf("%d exchanges run concurrently, want %d", got, running)
		}
		for range reserved {
			release <- struct{}{}
			w.Release()
			synctest.Wait()
		}
		if got := w.Reserved(); got != 0 {
			t.Errorf("%d slots are reserved at the end, want 0", got)
		}
		if maxActive.Load() != running {
			t.Errorf("up to %d exchanges ran concurrently, want %d", maxActive.Load(), running)
		}
		for i, got := range order {
			if got != i {
				t.Fatalf("the exchanges ran in the order %v, want ascending order", order)
			}
		}
		w.Close()
	})
}

// TestIdleWorkersEnd verifies that idle workers end, and that Close waits for running ones.
func TestIdleWorkersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := NewWorkers(WorkerLimits{MaxRunning: 100, MaxReserved: 100}, func(int) { <-release })
		for i := range 100 {
			w.Go(i)
		}
		close(release)
		synctest.Wait()
		if n, _ := w.count(); n != 100 {
			t.Fatalf("%d workers, want 100", n)
		}
		<-time.After(3 * workerIdleTimeout)
		synctest.Wait()
		if n, idle := w.count(); n != 0 || idle != 0 {
			t.Errorf("%d workers remain, %d of them idle, want 0", n, idle)
		}
		w.Go(1)
		w.Close()
		if n, _ := w.count(); n != 0 {
			t.Errorf("%d workers remain after Close, want 0", n)
		}
	})
}

// count returns the number of workers, and how many of them are idle.
func (w *Workers[T]) count() (running, idle int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running, len(w.idle)
}

// BenchmarkWorkers measures passing an exchange to a worker and waiting for it.
func BenchmarkWorkers(b *testing.B) {
	done := make(chan struct{}, 1)
	w := NewWorkers(WorkerLimits{MaxRunning: 100, MaxReserved: 100}, func(int) { done <- struct{}{} })
	defer w.Close()
	b.ReportAllocs()
	for b.Loop() {
		w.Reserve()
		w.Go(1)
		<-done
		w.Release()
	}
}
