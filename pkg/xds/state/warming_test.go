package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

// TestWarmingStatus verifies the missing dependencies and the deadline that Warming returns.
// Reconcile returns the same deadline.
func TestWarmingStatus(t *testing.T) {
	now := time.Now()
	lazily := config.XDSOnDemand{Idle: time.Hour, Wait: time.Second, Routes: true}
	never := time.Time{}
	for _, c := range []struct {
		name  string
		lazy  config.XDSOnDemand
		layer time.Duration // timeout of the runtime layer; negative: no layer
		said  xdstest.Resource
		wants []string
		until time.Time
	}{
		{"routes with a timeout", config.XDSOnDemand{}, -1,
			xdstest.Listener("l", 80, "r", "", time.Minute), []string{"routes r"}, now.Add(time.Minute)},
		{"several dependencies with timeouts", config.XDSOnDemand{}, time.Second,
			xdstest.FilteredListener("l", "r", time.Minute, "x"), []string{"routes r", "filter x", "runtime one"}, now.Add(time.Minute)},
		{"several dependencies, one without a timeout", config.XDSOnDemand{}, time.Second,
			xdstest.FilteredListener("l", "r", 0, "x"), []string{"routes r", "filter x", "runtime one"}, never},
		{"no wait for on-demand routes", lazily, -1,
			xdstest.FilteredListener("l", "r", time.Minute, "x"), []string{"filter x"}, now.Add(time.Minute)},
		{"no wait for on-demand endpoints", lazily, -1,
			xdstest.Cluster("c", "e", "s", time.Minute), []string{"secret s"}, never},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newState()
			w.onDemand = newOnDemandState(c.lazy)
			if c.layer >= 0 {
				w.runtime = layeredRuntime{layers: []bootstrap.RuntimeLayer{{Resource: "one", Timeout: c.layer}}, startedAt: now}
			}
			applyResource(t, w, c.said, now)
			_, next := w.Reconcile(now)
			all := w.Warming()
			if len(all) != 1 || !slices.Equal(all[0].Missing, c.wants) || !all[0].Until.Equal(c.until) {
				t.Fatalf("Warming() = %+v, want missing %q until %v", all, c.wants, c.until)
			}
			if !next.Equal(c.until) {
				t.Errorf("the next reconcile is at %v, want %v", next, c.until)
			}
		})
	}
}
