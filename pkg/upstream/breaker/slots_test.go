package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// fakePool is a Pool with the given number of connections.
type fakePool struct{ connections int64 }

func (p *fakePool) Connections() int64 { return p.connections }

// fakeConn is an idle connection. served reports whether an exchange of its pool waits for it.
type fakeConn struct {
	pool     *fakePool
	served   bool
	canceled []*Waiter
	closed   int
}

func (c *fakeConn) CloseConn()                       { c.closed++ }
func (c *fakeConn) Pool() Pool                       { return c.pool }
func (c *fakeConn) GrantToOldest() (bool, []*Waiter) { return c.served, c.canceled }

// awaitSlot starts to wait for a slot and returns a channel that receives the result.
func awaitSlot(t *testing.T, b *Breaker, w *Waiter) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b.AwaitSlot(t.Context(), time.Now().Add(time.Minute), w) }()
	synctest.Wait()
	return done
}

// newWaiter returns a waiter on the heap.
func newWaiter(p Pool) *Waiter {
	w := NewWaiter(p)
	return &w
}

// wantIdle checks that no connect waits and that the given number of connections is open.
func wantIdle(t *testing.T, b *Breaker, connections int64) {
	t.Helper()
	if counts := b.Counts(); counts.Waiting != 0 || b.slots.queue.Len() != 0 || counts.Connections != connections {
		t.Errorf("%d connects wait, %d are queued, %d connections are open, want 0, 0 and %d", counts.Waiting, b.slots.queue.Len(), counts.Connections, connections)
	}
}

func TestReleasedSlotGoesToOldestWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(config.CircuitBreakers{MaxConnections: 1})
		if !b.TryAcquireSlot() || b.TryAcquireSlot() {
			t.Fatal("TryAcquireSlot: want one free slot and no second")
		}
		first := awaitSlot(t, b, newWaiter(new(fakePool)))
		second := awaitSlot(t, b, newWaiter(new(fakePool)))
		b.ReleaseSlot()
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; protocol.ReasonOf(err) != protocol.UpstreamTimeout {
			t.Errorf("the second waiter got %v, want a timeout", err)
		}
		b.ReleaseSlot()
		wantIdle(t, b, 0)
	})
}

func TestWaiterEvictsIdleConnection(t *testing.T) {
	b := newBreaker(config.CircuitBreakers{MaxConnections: 1})
	b.TryAcquireSlot()
	idle := &fakeConn{pool: new(fakePool)}
	b.options.EvictIdle = func() Evicted { return idle }
	if err := b.AwaitSlot(t.Context(), time.Time{}, newWaiter(new(fakePool))); err != nil || idle.closed != 1 {
		t.Errorf("AwaitSlot = %v, idle connection closed %d times, want nil and once", err, idle.closed)
	}
	wantIdle(t, b, 1)
}

func TestHandOver(t *testing.T) {
	pool := &fakePool{connections: 1}
	tests := []struct {
		name   string
		waiter *fakePool // nil: no connect waits
		served bool      // an exchange of the connection's pool waits

		handled, closed, granted bool
	}{
		{"no waiter", nil, false, false, false, false},
		{"exchange of its pool waits", nil, true, true, false, false},
		{"waiter of a host with connections, exchange of its pool waits", &fakePool{connections: 1}, true, true, false, false},
		{"waiter of a host without connections", &fakePool{}, true, true, true, true},
		{"waiter of another pool", &fakePool{connections: 1}, false, true, true, true},
		{"waiter of its own pool", pool, false, false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(config.CircuitBreakers{MaxConnections: 1})
				b.TryAcquireSlot()
				var done <-chan error
				if tt.waiter != nil {
					done = awaitSlot(t, b, newWaiter(tt.waiter))
				}
				c := &fakeConn{pool: pool, served: tt.served}
				if handled := b.HandOver(c); handled != tt.handled || (c.closed == 1) != tt.closed {
					t.Errorf("HandOver = %v, closed %d times, want %v, %v", handled, c.closed, tt.handled, tt.closed)
				}
				if tt.waiter != nil {
					if err := <-done; (err == nil) != tt.granted {
						t.Errorf("the waiter got %v, want a slot: %v", err, tt.granted)
					}
				}
				wantIdle(t, b, 1)
			})
		})
	}
}

func TestCancelWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(config.CircuitBreakers{MaxConnections: 1})
		b.TryAcquireSlot()
		w := newWaiter(new(fakePool))
		done := awaitSlot(t, b, w)
		if !b.BeginEviction() || b.BeginEviction() {
			t.Error("want exactly one eviction for one waiter")
		}
		b.EndEviction()
		b.CancelWaits([]*Waiter{w, newWaiter(new(fakePool))})
		if err := <-done; err != ErrNotNeeded {
			t.Errorf("AwaitSlot = %v, want %v", err, ErrNotNeeded)
		}
		wantIdle(t, b, 1)
	})
}
