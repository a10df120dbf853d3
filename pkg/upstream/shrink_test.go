package upstream

import (
	"testing"
	"time"
)

// Connections that were idle for as long as asked end, whatever their idle timeout; those
// that carry something, or did a moment ago, stay.
func TestIdleSharedConnectionsEndWhenAsked(t *testing.T) {
	cfg := sharing(1, "a")
	cfg.IdleTimeout = time.Hour
	share(t, cfg, func(t *testing.T, _ *trunks, s *Set, c *Cluster) {
		busy := beginMany(t, c, 1)
		pass(2 * mostSweep)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections ended that carry something", n)
		}
		finishAll(busy)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections ended that carried something a moment ago", n)
		}
		pass(3 * mostSweep)
		if n := s.CloseIdle(time.Second); n != 1 {
			t.Errorf("%d idle connections ended, want 1", n)
		}
		wantCounts(t, s, 0, 0, 0)
		if n := s.CloseIdle(time.Second); n != 0 {
			t.Errorf("%d connections ended once more", n)
		}
	})
}
