package upstream

import (
	"testing"
	"time"
)

// TestCloseIdleMultiplexConns verifies that CloseIdle closes connections that were idle for the
// given time, regardless of their idle timeout, and no connections that are in use or were used
// recently.
func TestCloseIdleMultiplexConns(t *testing.T) {
	cfg := muxCluster(1, "a")
	cfg.IdleTimeout = time.Hour
	withMuxCluster(t, cfg, func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		exchanges := beginMany(t, c, 1)
		advanceClock(2 * maxSweepInterval)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections with exchanges were closed, want 0", n)
		}
		finishAll(exchanges)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d recently used connections were closed, want 0", n)
		}
		advanceClock(3 * maxSweepInterval)
		if n := s.CloseIdle(time.Second); n != 1 {
			t.Errorf("%d idle connections were closed, want 1", n)
		}
		wantCounts(t, s, 0, 0, 0)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections were closed by a second call, want 0", n)
		}
	})
}
