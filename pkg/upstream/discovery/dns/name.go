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
	// A failed lookup is tried again soon, then less and less often, down to the
	// refresh rate.
	firstRetry = 500 * time.Millisecond
	// leastTTL bounds how often a name is resolved whose records hold for no time,
	// mostTTL how long a record is believed that is said to hold for years.
	leastTTL = time.Second
	mostTTL  = time.Hour
	// lookupTimeout is how long a lookup may take in all, unless the servers that
	// are to be asked may take longer.
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
	first     netip.Addr          // of them, as the answer had it
	found     time.Time           // when that was
	tried     bool                // resolved or failed once
	err       error               // of the last lookup
	lookups   uint64
	failures  uint64 // lookups that brought no address
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

// answer is what a lookup found.
type answer struct {
	addresses []netip.Addr // sorted, each once
	first     netip.Addr   // as the answer had it
	ttl       time.Duration
}

// lookup asks once, when it is its turn.
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

// publish records what a lookup brought and wakes those whom it concerns.
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

// next returns how long to wait after so many failures in a row, and with
// addresses that hold for ttl.
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

// describe tells of the name. Discovery.mu is held.
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

// outcomeOf sorts the errors of a lookup.
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
