package state

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

// TestTableWaitIsTheLongest verifies that the wait for an on-demand route table times out after the
// longest limit of its listeners. If one of them has no limit, the wait does not time out.
func TestTableWaitIsTheLongest(t *testing.T) {
	for name, test := range map[string]struct {
		limits []time.Duration // limits of the waits of the listeners; 0: no limit
		want   time.Duration   // time until the next reconcile; 0: never
	}{
		"one listener":          {[]time.Duration{2 * time.Second}, 2 * time.Second},
		"no limit":              {[]time.Duration{0}, 0},
		"different limits":      {[]time.Duration{2 * time.Second, 5 * time.Second, 3 * time.Second}, 5 * time.Second},
		"a limit and no limit":  {[]time.Duration{5 * time.Second, 0}, 0},
		"no limit, then limits": {[]time.Duration{0, 2 * time.Second, 5 * time.Second}, 0},
	} {
		now := time.Now()
		s := New(Options{Bootstrap: &bootstrap.Bootstrap{}, OnDemand: config.XDSOnDemand{Idle: time.Hour, Routes: true}})
		for i, limit := range test.limits {
			applyResource(t, s, xdstest.Listener(string(rune('a'+i)), 80+i, "table", "", limit), now)
		}
		s.Reconcile(now)
		if !s.SubscribeTable("table", now) {
			t.Errorf("%s: SubscribeTable = false, want true", name)
		}
		var got time.Duration
		if _, next := s.Reconcile(now); !next.IsZero() {
			got = next.Sub(now)
		}
		if got != test.want {
			t.Errorf("%s: the wait times out after %v, want %v", name, got, test.want)
		}
	}
}
