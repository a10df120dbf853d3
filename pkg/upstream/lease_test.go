package upstream

import (
	"errors"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// newLease returns a cluster with two hosts and these limits, its set, and a lease.
func newLease(t *testing.T, limits config.CircuitBreakers) (*Set, *Cluster, *HostLease) {
	t.Helper()
	cfg := cluster("web", "a", "b")
	cfg.CircuitBreakers = limits
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	lease, err := c.Lease(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, c, lease
}

// TestLeaseMovesAtLimit verifies that a session can move to another host although the limits are
// reached: they are not checked for the second lease.
func TestLeaseMovesAtLimit(t *testing.T) {
	for name, limits := range map[string]config.CircuitBreakers{
		"max_connections": {MaxConnections: 1},
		"max_requests":    {MaxRequests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, first := newLease(t, limits)
			if _, err := c.Lease(0, nil); protocol.ReasonOf(err) != protocol.Overflow {
				t.Errorf("Lease for another session: %v, want an overflow", err)
			}
			first.Report(errors.New("refused"))
			second, err := c.Lease(0, first)
			if err != nil || second.Host() == first.Host() {
				t.Fatalf("Lease for the move = %v, want another host", err)
			}
			first.Release()
			if _, err := c.Lease(0, nil); protocol.ReasonOf(err) != protocol.Overflow {
				t.Errorf("Lease for another session after the move: %v, want an overflow", err)
			}
			second.Release()
			second.Release()
			wantCounts(t, s, 0, 0, 0)
			if b := c.Breaker(config.DefaultPriority); b.Counts().Active != 0 || b.Counts().Connections != 0 {
				t.Errorf("%d active requests and %d open connections, want 0", b.Counts().Active, b.Counts().Connections)
			}
		})
	}
}

// TestLeaseOfAnotherClusterIsLimited verifies that the limits apply to a session that moves from
// another cluster.
func TestLeaseOfAnotherClusterIsLimited(t *testing.T) {
	_, c, lease := newLease(t, config.CircuitBreakers{MaxConnections: 1})
	defer lease.Release()
	_, _, other := newLease(t, config.CircuitBreakers{})
	defer other.Release()
	if _, err := c.Lease(0, other); protocol.ReasonOf(err) != protocol.Overflow {
		t.Errorf("Lease = %v, want an overflow", err)
	}
}
