package dns

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

const (
	defaultRefresh = 5 * time.Second
	// A failed lookup is tried again soon, then less and less often, down to the
	// refresh rate.
	firstRetry = 500 * time.Millisecond
	// leastTTL bounds how often a name is resolved whose records hold for no time.
	leastTTL = time.Second
	// lookupTimeout is how long a lookup may take in all.
	lookupTimeout = 10 * time.Second
)

// name is a name that is resolved over and over.
type name struct {
	key      key      // immutable
	resolver Resolver // immutable
	cancel   context.CancelFunc

	// Guarded by Discovery.mu.
	watches   map[*watch]struct{} // who wants it
	addresses []netip.Addr        // the last that were found, sorted
	tried     bool                // resolved or failed once
	err       error               // of the last lookup
}

// run resolves the name until ctx ends.
func (n *name) run(ctx context.Context, d *Discovery) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		addresses, ttl, err := n.lookup(ctx, d)
		if ctx.Err() != nil {
			return
		}
		n.publish(d, addresses, err)
		if err != nil {
			failures++
		} else {
			failures = 0
		}
		timer.Reset(jittered(n.next(failures, ttl)))
	}
}

// lookup asks once, when it is its turn.
func (n *name) lookup(ctx context.Context, d *Discovery) ([]netip.Addr, time.Duration, error) {
	select {
	case d.limit <- struct{}{}:
		defer func() { <-d.limit }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, ttl, err := n.resolver.Lookup(ctx, n.key.family, n.key.name)
	if err != nil {
		return nil, 0, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses), ttl, nil
}

// publish records what a lookup brought and wakes those whom it concerns.
func (n *name) publish(d *Discovery, addresses []netip.Addr, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n.tried = true
	n.err = err
	if err == nil {
		n.addresses = addresses
	}
	for w := range n.watches {
		w.wake()
	}
}

// next returns how long to wait after so many failures in a row, and with
// addresses that hold for ttl.
func (n *name) next(failures int, ttl time.Duration) time.Duration {
	switch {
	case failures > 0:
		return min(firstRetry<<min(failures-1, 20), n.key.refresh)
	case n.key.respectTTL && ttl > 0:
		return max(ttl, leastTTL)
	default:
		return n.key.refresh
	}
}
