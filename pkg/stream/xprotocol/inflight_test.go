package xprotocol

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// newTestInflight returns an inflight, and a connection for its requests.
func newTestInflight(t *testing.T, limit int) (*inflight, *downstreamConn) {
	t.Helper()
	e := New(slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	c := new(downstreamConn)
	c.inflight.init(e, limit)
	return &c.inflight, c
}

// acquireN acquires n requests for c.
func acquireN(f *inflight, c *downstreamConn, n int) []*request {
	requests := make([]*request, n)
	for i := range requests {
		requests[i] = f.acquire()
		requests[i].c = c
	}
	return requests
}

func releaseAll(f *inflight, requests []*request) {
	for _, r := range requests {
		f.release(r)
	}
}

func TestInflightLimit(t *testing.T) {
	f, c := newTestInflight(t, 2)
	first := acquireN(f, c, 1)
	if f.atLimit() {
		t.Error("atLimit() = true with 1 of 2 requests in flight, want false")
	}
	second := acquireN(f, c, 1)
	if !f.atLimit() || f.count() != 2 {
		t.Errorf("atLimit() = %t, count() = %d with 2 of 2 requests in flight, want true, 2", f.atLimit(), f.count())
	}
	releaseAll(f, first)
	if f.atLimit() || f.count() != 1 {
		t.Errorf("atLimit() = %t, count() = %d after one of 2 requests ended, want false, 1", f.atLimit(), f.count())
	}
	releaseAll(f, second)
	f.close()

	unlimitedInflight, c := newTestInflight(t, 0)
	requests := acquireN(unlimitedInflight, c, 100)
	if unlimitedInflight.atLimit() {
		t.Error("atLimit() = true without a limit, want false")
	}
	releaseAll(unlimitedInflight, requests)
	unlimitedInflight.close()
}

func TestInflightReusesReleasedRequests(t *testing.T) {
	f, c := newTestInflight(t, 0)
	requests := acquireN(f, c, 10)
	releaseAll(f, requests)
	reused := acquireN(f, c, 10)
	if len(f.requests) != 10 {
		t.Errorf("%d requests were created for 10 in flight, want 10", len(f.requests))
	}
	releaseAll(f, reused)
	f.close()
}

func TestInflightKeepsFewIdleRequests(t *testing.T) {
	f, c := newTestInflight(t, 0)
	releaseAll(f, acquireN(f, c, 1000))
	remaining := acquireN(f, c, 1)
	if len(f.requests) > maxIdleRequests {
		t.Errorf("%d requests are kept after a burst, want at most %d", len(f.requests), maxIdleRequests)
	}
	releaseAll(f, remaining)
	f.close()
}

func TestInflightActive(t *testing.T) {
	f, c := newTestInflight(t, 0)
	requests := acquireN(f, c, 3)
	releaseAll(f, requests[:1])
	reused := acquireN(f, c, 1) // reuses the idle request
	releaseAll(f, requests[1:2])
	active := map[*request]bool{}
	for _, r := range f.active() {
		active[r] = true
	}
	if len(active) != 2 || !active[reused[0]] || !active[requests[2]] {
		t.Errorf("active() = %d requests, want the 2 in flight", len(active))
	}
	releaseAll(f, []*request{reused[0], requests[2]})
	f.close()
}

func TestInflightWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newTestInflight(t, 1)
		requests := acquireN(f, c, 2)
		returned := make(chan struct{})
		go func() {
			f.wait(func() bool { return !f.atLimit() })
			close(returned)
		}()
		f.release(requests[0])
		synctest.Wait()
		select {
		case <-returned:
			t.Error("wait returned at the limit")
		default:
		}
		f.release(requests[1])
		<-returned
		if f.isDisconnected() {
			t.Error("isDisconnected() = true, want false")
		}
		f.close()
	})
}

func TestInflightDisconnectEndsWaitButNotDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newTestInflight(t, 0)
		requests := acquireN(f, c, 1)
		returned, drained := make(chan struct{}), make(chan struct{})
		go func() {
			f.wait(func() bool { return f.count() == 0 })
			close(returned)
			f.drain()
			close(drained)
		}()
		synctest.Wait()
		f.disconnect()
		<-returned
		synctest.Wait()
		select {
		case <-drained:
			t.Error("drain returned with a request in flight")
		default:
		}
		f.release(requests[0])
		<-drained
		f.close()
	})
}

func TestRequestQueue(t *testing.T) {
	var q requestQueue
	if r := q.pop(); r != nil {
		t.Errorf("pop() of an empty queue = %p, want nil", r)
	}
	requests := []*request{{}, {}, {}}
	q.push(requests[0])
	q.push(requests[1])
	got := []*request{q.pop()}
	q.push(requests[2])
	for r := q.pop(); r != nil; r = q.pop() {
		got = append(got, r)
	}
	for i := range requests {
		if len(got) != len(requests) || got[i] != requests[i] || got[i].next != nil {
			t.Fatalf("popped %v, want %v", got, requests)
		}
	}
}

// TestInflightStress verifies the limit and the final count while one goroutine acquires, waits at
// the limit and drains, and others release, list the active requests and disconnect.
func TestInflightStress(t *testing.T) {
	const rounds, limit = 60, 16
	for range rounds {
		f, c := newTestInflight(t, limit)
		work := make(chan *request, limit)
		var workers sync.WaitGroup
		var inFlight atomic.Int64
		for range 8 {
			workers.Go(func() {
				for r := range work {
					if n := inFlight.Add(1); n > limit {
						t.Errorf("%d requests in flight, the limit is %d", n, limit)
					}
					if r.c != c {
						t.Error("a request that is in flight was returned to the engine")
					}
					runtime.Gosched()
					inFlight.Add(-1)
					f.release(r)
				}
			})
		}
		sent := 0
		for ; sent < 2000 && !f.isDisconnected(); sent++ {
			f.wait(func() bool { return !f.atLimit() })
			if f.isDisconnected() {
				break
			}
			work <- acquireN(f, c, 1)[0]
			if sent == 1000 {
				workers.Go(f.disconnect)
			}
		}
		workers.Go(func() { // lists the active requests as abandon does, while the reader is in drain
			for _, r := range f.active() {
				_ = r.oneWay()
			}
		})
		f.drain()
		if n := f.count(); n != 0 {
			t.Errorf("count() = %d after drain, want 0", n)
		}
		close(work)
		workers.Wait()
		f.close()
		if t.Failed() {
			return
		}
	}
}
