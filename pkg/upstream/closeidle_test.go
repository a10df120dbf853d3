package upstream

import (
	"testing"
	"time"
)

// Connections that were idle for as long as asked end, whatever their idle timeout; those
// that carry something, or did a moment ago, stay.
func TestIdleSharedConnectionsEndWhenAsked(t *testing.T) {
	cfg := muxCluster(1, "a")
	cfg.IdleTimeout = time.Hour
	eachMuxMode(t, cfg, func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		busy := beginMany(t, c, 1)
		advanceClock(2 * maxSweepInterval)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections ended that carry something", n)
		}
		finishAll(busy)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections ended that carried something a moment ago", n)
		}
		advanceClock(3 * maxSweepInterval)
		if n := s.CloseIdle(time.Second); n != 1 {
			t.Errorf("%d idle connections ended, want 1", n)
		}
		wantCounts(t, s, 0, 0, 0)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections ended once more", n)
		}
	})
}
