package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream"
)

const (
	defaultRefresh = 5 * time.Second
	// initialBackoff is the default backoff after the first failure. It doubles with each further
	// failure, up to the refresh rate.
	initialBackoff = 500 * time.Millisecond
	// defaultMinTTL and maxTTL bound the TTL that a cluster with respect_dns_ttl uses.
	defaultMinTTL = time.Second
	maxTTL        = time.Hour
	// lookupTimeout is the timeout of a lookup, unless the configured timeouts of the queries to
	// all servers together are longer.
	lookupTimeout = 10 * time.Second
)

// name resolves a name periodically.
type name struct {
	key      key      // immutable
	resolver Resolver // immutable
	cancel   context.CancelFunc

	// Guarded by Discovery.mu.
	watches      map[*watch]struct{} // watches that need the name
	addresses    []netip.Addr        // of the last successful lookup, sorted
	firstAddress netip.Addr          // first of them in the order of the response
	resolvedAt   time.Time           // time of the last successful lookup
	attempted    bool                // the first lookup has ended
	err          error               // of the last lookup
	lookups      uint64
	failures     uint64 // lookups that failed
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
		result, err := n.lookup(ctx, d)
		if ctx.Err() != nil {
			return
		}
		d.count(outcomeOf(err))
		n.recordResult(d, result, err)
		if err != nil {
			failures++
		} else {
			failures = 0
		}
		timer.Reset(addJitter(n.nextDelay(failures, result.ttl), n.key.jitter))
	}
}

// lookupResult is the result of a lookup.
type lookupResult struct {
	addresses    []netip.Addr // sorted, without duplicates
	firstAddress netip.Addr   // first in the order of the response
	ttl          time.Duration
}

// lookup resolves the name once. It waits while maxLookups others are in flight.
func (n *name) lookup(ctx context.Context, d *Discovery) (lookupResult, error) {
	select {
	case d.lookupSlots <- struct{}{}:
		defer func() { <-d.lookupSlots }()
	case <-ctx.Done():
		return lookupResult{}, ctx.Err()
	}
	queries := max(n.key.attempts, 1) * (1 + strings.Count(n.key.servers, " "))
	ctx, cancel := context.WithTimeout(ctx, max(lookupTimeout, n.key.timeout*time.Duration(queries)))
	defer cancel()
	addresses, ttl, err := n.resolver.Lookup(ctx, n.key.family, n.key.name)
	if err != nil {
		return lookupResult{}, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	firstAddress := addresses[0]
	slices.SortFunc(addresses, netip.Addr.Compare)
	return lookupResult{slices.Compact(addresses), firstAddress, ttl}, nil
}

// recordResult records the result of a lookup and wakes the watches of the name.
func (n *name) recordResult(d *Discovery, result lookupResult, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n.attempted = true
	n.err = err
	n.lookups++
	if err == nil {
		n.addresses, n.firstAddress, n.resolvedAt = result.addresses, result.firstAddress, time.Now()
	} else {
		n.failures++
	}
	for w := range n.watches {
		w.wake()
	}
}

// nextDelay returns the time until the next lookup, without jitter. failures is the number of
// consecutive failures, ttl the TTL of the addresses, 0 if unknown.
func (n *name) nextDelay(failures int, ttl time.Duration) time.Duration {
	k := &n.key
	switch {
	case failures > 0:
		backoff := k.failureBackoff[0]
		for i := 1; i < failures && backoff < k.failureBackoff[1]; i++ {
			backoff *= 2
		}
		return min(backoff, k.failureBackoff[1])
	case k.respectTTL && ttl > 0:
		return max(min(ttl, maxTTL), k.minTTL)
	default:
		return k.refresh
	}
}

// describe returns the status of the name. The caller holds Discovery.mu.
func (n *name) describe() upstream.NameStatus {
	s := upstream.NameStatus{
		Name: n.key.name, Addresses: make([]string, len(n.addresses)), Lookups: n.lookups, Failures: n.failures,
	}
	for i, a := range n.addresses {
		s.Addresses[i] = a.String()
	}
	if !n.resolvedAt.IsZero() {
		s.Age = time.Since(n.resolvedAt).Seconds()
	}
	if n.err != nil {
		s.Error = n.err.Error()
	}
	return s
}

// outcomeOf returns the outcome of a lookup that returned err.
func outcomeOf(err error) Outcome {
	var dnsErr *net.DNSError
	switch {
	case err == nil:
		return Resolved
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case !errors.As(err, &dnsErr):
		return Failed
	case dnsErr.IsNotFound:
		return NotFound
	case dnsErr.IsTimeout:
		return TimedOut
	default:
		return Failed
	}
}
