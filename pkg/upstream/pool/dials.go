package pool

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// DialLimit bounds how many connections to one host are being opened concurrently, by one pool or
// for forwarded connections. Dials beyond the limit wait in order of arrival. The zero value is
// ready; safe for concurrent use.
type DialLimit struct {
	mu     sync.Mutex
	limit  int // guarded by mu; the limit of the last Acquire
	active int // guarded by mu
	// queue holds a chan struct{} for each waiting dial, closed when it may dial. It is nil until a
	// dial waits. Guarded by mu.
	queue *list.List
}

// Acquire waits until fewer than limit dials are active. The deadline (zero: none) or the end of
// ctx ends the wait with an error. After nil, the caller calls Release once. Errors are Faults:
// ConnectTimeout, which lets the exchange try another host, or ReasonDownstreamDisconnect.
func (d *DialLimit) Acquire(ctx context.Context, limit int, deadline time.Time, address string) error {
	d.mu.Lock()
	d.limit = limit
	d.grant() // the limit may have been raised
	if d.active < limit && d.waiting() == 0 {
		d.active++
		d.mu.Unlock()
		return nil
	}
	if d.queue == nil {
		d.queue = list.New()
	}
	ready := make(chan struct{})
	elem := d.queue.PushBack(ready)
	d.mu.Unlock()
	_, reason := wait.For(ctx, deadline, nil, ready)
	if reason == protocol.ReasonNone {
		return nil
	}
	d.mu.Lock()
	select {
	case <-ready: // granted in the meantime: pass it on
		d.active--
		d.grant()
	default:
		d.queue.Remove(elem)
	}
	d.mu.Unlock()
	if reason == protocol.UpstreamTimeout {
		return protocol.Faultf(protocol.ConnectTimeout, "connecting to %s: timed out waiting for %d concurrent connects", address, limit)
	}
	return protocol.Faultf(reason, "connecting to %s: %w", address, context.Cause(ctx))
}

// Release ends a dial and lets the oldest waiting dial begin.
func (d *DialLimit) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active--
	d.grant()
}

// Active returns how many dials are active.
func (d *DialLimit) Active() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.active
}

// grant lets waiting dials begin while fewer than limit are active. The caller holds d.mu.
func (d *DialLimit) grant() {
	for d.waiting() > 0 && d.active < d.limit {
		close(d.queue.Remove(d.queue.Front()).(chan struct{})) //nolint:forcetypeassert // it holds nothing else
		d.active++
	}
}

func (d *DialLimit) waiting() int {
	if d.queue == nil {
		return 0
	}
	return d.queue.Len()
}
