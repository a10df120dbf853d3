package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
)

// TestMemoryOfManyHealthChecks bounds the memory of 1,000 clusters whose 2,000 hosts have
// health checks every two seconds and outlier detection, compared with a process without them.
func TestMemoryOfManyHealthChecks(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector takes several times the memory")
	}
	const clusters, maxGrowth = 1000, 20 << 20
	respondOK := func(http.ResponseWriter, *http.Request) {}
	first, second := startUpstream(t, respondOK), startUpstreamAt(t, freeAddressOn("127.0.0.2"), respondOK)
	s, _ := simpleProxy(first.address)
	baseline := startWeft(t, s.config())
	for i := range clusters {
		s.clusters = append(s.clusters, cluster(fmt.Sprintf("checked-%d", i), object{
			"health_check":      object{"protocol": "Http1", "interval": "2s"},
			"outlier_detection": object{"max_ejection_percent": 50},
		}, first.address, second.address))
	}
	s.listeners[0] = httpListener("front", freeAddress()) // the other process uses its address
	w := startWeft(t, s.config())
	eventually(t, "every host was checked several times", func() bool {
		return first.requests.Load() > 4*clusters && second.requests.Load() > 4*clusters
	})
	growth := func() int { return w.memory().anonymous - baseline.memory().anonymous }
	defer func() {
		base, now := baseline.memory(), w.memory()
		t.Logf("%d kB resident, peak %d kB, %d kB anonymous: %d kB more than without clusters, with %d kB resident",
			now.resident>>10, now.peak>>10, now.anonymous>>10, growth()>>10, base.resident>>10)
		t.Logf("%d kB of heap; %d goroutines", w.heap()>>10, w.goroutines())
	}()
	eventually(t, "memory of the start is released, and at most 20 MB remain", func() bool { return growth() <= maxGrowth })
}
