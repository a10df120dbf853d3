package inspect

import (
	"net/http"
	"sync"

	"github.com/weft-proxy/weft/internal/admin"
)

// counterResets makes the counters of /stats start at zero again, as /reset_counters of Envoy does.
// The metrics themselves keep their values. It is safe for concurrent use.
type counterResets struct {
	mu       sync.Mutex
	baseline map[string]uint64 // the value of each counter at the last reset; guarded by mu
}

// reset sets the baseline to the values of stats.
func (c *counterResets) reset(stats []Stat) {
	baseline := map[string]uint64{}
	for _, stat := range stats {
		if !stat.IsGauge && stat.Value > 0 {
			baseline[stat.Name] = stat.Value
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.baseline = baseline
}

// apply subtracts the baseline from the counters in stats. A counter below its baseline belongs to
// a listener or a cluster that was added again: apply removes its baseline. Used stays unchanged, as
// in Envoy.
func (c *counterResets) apply(stats []Stat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range stats {
		stat := &stats[i]
		switch value := c.baseline[stat.Name]; {
		case stat.IsGauge || value == 0:
		case stat.Value < value:
			delete(c.baseline, stat.Name)
		default:
			stat.Value -= value
		}
	}
}

// resetCounters serves /reset_counters.
func (s *Sources) resetCounters(w http.ResponseWriter, _ *http.Request) {
	s.counterResets.reset(s.readStats())
	admin.WriteText(w, http.StatusOK, okText)
}

// okText is the response of Envoy's pages that change a state.
const okText = "OK\n"
