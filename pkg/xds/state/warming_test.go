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
	onDemand := config.XDSOnDemand{Idle: time.Hour, Wait: time.Second, Routes: true}
	noDeadline := time.Time{}
	for _, c := range []struct {
		name         string
		onDemand     config.XDSOnDemand
		layerTimeout time.Duration // timeout of the runtime layer; negative: no layer
		resource     xdstest.Resource
		missing      []string
		until        time.Time
	}{
		{"routes with a timeout", config.XDSOnDemand{}, -1,
			xdstest.Listener("l", 80, "r", "", time.Minute), []string{"routes r"}, now.Add(time.Minute)},
		{"several dependencies with timeouts", config.XDSOnDemand{}, time.Second,
			xdstest.FilteredListener("l", "r", time.Minute, "x"), []string{"routes r", "filter x", "runtime one"}, now.Add(time.Minute)},
		{"several dependencies, one without a timeout", config.XDSOnDemand{}, time.Second,
			xdstest.FilteredListener("l", "r", 0, "x"), []string{"routes r", "filter x", "runtime one"}, noDeadline},
		{"no wait for on-demand routes", onDemand, -1,
			xdstest.FilteredListener("l", "r", time.Minute, "x"), []string{"filter x"}, now.Add(time.Minute)},
		{"no wait for on-demand endpoints", onDemand, -1,
			xdstest.Cluster("c", "e", "s", time.Minute), []string{"secret s"}, noDeadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newState()
			s.onDemand = newOnDemandState(c.onDemand)
			if c.layerTimeout >= 0 {
				s.runtime = layeredRuntime{layers: []bootstrap.RuntimeLayer{{Resource: "one", Timeout: c.layerTimeout}}, startedAt: now}
			}
			applyResource(t, s, c.resource, now)
			_, next := s.Reconcile(now)
			warming := s.Warming()
			if len(warming) != 1 || !slices.Equal(warming[0].Missing, c.missing) || !warming[0].Until.Equal(c.until) {
				t.Fatalf("Warming() = %+v, want missing %q until %v", warming, c.missing, c.until)
			}
			if !next.Equal(c.until) {
				t.Errorf("the next reconcile is at %v, want %v", next, c.until)
			}
		})
	}
}
