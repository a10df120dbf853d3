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
	// firstRetry is the default backoff after the first failure. It doubles with each further
	// failure, up to the refresh rate.
	firstRetry = 500 * time.Millisecond
	// leastTTL and mostTTL bound the TTL of answers.
	leastTTL = time.Second
	mostTTL  = time.Hour
	// lookupTimeout is the timeout of a lookup, unless the timeouts of all queries together are
	// longer.
	lookupTimeout = 10 * time.Second
)

// name resolves a name periodically.
type name struct {
	key      key      // immutable
	resolver Resolver // immutable
	cancel   context.CancelFunc

	// Guarded by Discovery.mu.
	watches   map[*watch]struct{} // watches that need the name
	addresses []netip.Addr        // of the last successful lookup, sorted
	first     netip.Addr          // first of them in the order of the answer
	found     time.Time           // time of the last successful lookup
	tried     bool                // the first lookup has ended
	err       error               // of the last lookup
	lookups   uint64
	failures  uint64 // lookups that failed
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
		a, err := n.lookup(ctx, d)
		if ctx.Err() != nil {
			return
		}
		d.count(outcomeOf(err))
		n.publish(d, a, err)
		if err != nil {
			failures++
		} else {
			failures = 0
		}
		timer.Reset(jittered(n.next(failures, a.ttl), n.key.jitter))
	}
}

// answer is the result of a lookup.
type answer struct {
	addresses []netip.Addr // sorted, without duplicates
	first     netip.Addr   // first in the order of the answer
	ttl       time.Duration
}

// lookup resolves the name once. It waits while maxLookups others are in flight.
func (n *name) lookup(ctx context.Context, d *Discovery) (answer, error) {
	select {
	case d.limit <- struct{}{}:
		defer func() { <-d.limit }()
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	turns := max(n.key.attempts, 1) * (1 + strings.Count(n.key.servers, " "))
	ctx, cancel := context.WithTimeout(ctx, max(lookupTimeout, n.key.timeout*time.Duration(turns)))
	defer cancel()
	addresses, ttl, err := n.resolver.Lookup(ctx, n.key.family, n.key.name)
	if err != nil {
		return answer{}, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	first := addresses[0]
	slices.SortFunc(addresses, netip.Addr.Compare)
	return answer{slices.Compact(addresses), first, ttl}, nil
}

// publish records the result of a lookup and wakes the watches of the name.
func (n *name) publish(d *Discovery, a answer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n.tried = true
	n.err = err
	n.lookups++
	if err == nil {
		n.addresses, n.first, n.found = a.addresses, a.first, time.Now()
	} else {
		n.failures++
	}
	for w := range n.watches {
		w.wake()
	}
}

// next returns the time until the next lookup, without jitter. failures is the number of
// consecutive failures, ttl the TTL of the addresses, 0 if unknown.
func (n *name) next(failures int, ttl time.Duration) time.Duration {
	k := &n.key
	switch {
	case failures > 0:
		pause := k.failure[0]
		for i := 1; i < failures && pause < k.failure[1]; i++ {
			pause *= 2
		}
		return min(pause, k.failure[1])
	case k.respectTTL && ttl > 0:
		return min(max(ttl, leastTTL), mostTTL)
	default:
		return k.refresh
	}
}

// describe returns the status of the name. Discovery.mu is held.
func (n *name) describe() upstream.NameStatus {
	s := upstream.NameStatus{
		Name: n.key.name, Addresses: make([]string, len(n.addresses)), Lookups: n.lookups, Failures: n.failures,
	}
	for i, a := range n.addresses {
		s.Addresses[i] = a.String()
	}
	if !n.found.IsZero() {
		s.Age = time.Since(n.found).Seconds()
	}
	if n.err != nil {
		s.Error = n.err.Error()
	}
	return s
}

// outcomeOf returns the outcome of a lookup that returned err.
func outcomeOf(err error) Outcome {
	var e *net.DNSError
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case !errors.As(err, &e):
		return Failed
	case e.IsNotFound:
		return NoName
	case e.IsTimeout:
		return TimedOut
	default:
		return Failed
	}
}
