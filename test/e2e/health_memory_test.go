package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
)

// TestAThousandCheckedClustersAreSmall: what 1,000 clusters take whose 2,000 hosts are
// asked every other second, and watched for outliers, beyond a process without them.
func TestAThousandCheckedClustersAreSmall(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector takes several times the memory")
	}
	const clusters, most = 1000, 20 << 20
	well := func(http.ResponseWriter, *http.Request) {}
	one, two := serve(t, well), serveAt(t, freeOn("127.0.0.2"), well)
	s, _ := simple(one.address)
	without, _ := run(t, s.config()).resident()
	for i := range clusters {
		s.clusters = append(s.clusters, cluster(fmt.Sprintf("checked-%d", i), object{
			"health_check":      object{"protocol": "Http1", "interval": "2s"},
			"outlier_detection": object{"max_ejection_percent": 50},
		}, one.address, two.address))
	}
	s.listeners[0] = listen("front", free()) // the other process has its address
	w := run(t, s.config())
	eventually(t, "every host was asked several times", func() bool {
		return one.hits.Load() > 4*clusters && two.hits.Load() > 4*clusters
	})
	now, peak := w.resident()
	t.Logf("%d kB more resident than without, %d kB at most; %d kB of heap; %d goroutines",
		(now-without)>>10, (peak-without)>>10, w.heap()>>10, w.goroutines())
	if now-without > most {
		t.Errorf("%d clusters take %d kB, want %d at most", clusters, (now-without)>>10, most>>10)
	}
}
