package e2e

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
)

// TestAThousandCheckedClustersAreSmall: what 1,000 clusters take whose 2,000 hosts are
// asked every other second, and watched for outliers, beside a process without them; and
// what there is in all.
func TestAThousandCheckedClustersAreSmall(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector takes several times the memory")
	}
	const clusters, most, whole, idle = 1000, 20 << 20, 32 << 20, 14 << 20
	well := func(http.ResponseWriter, *http.Request) {}
	one, two := serve(t, well), serveAt(t, freeOn("127.0.0.2"), well)
	s, _ := simple(one.address)
	without := run(t, s.config())
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
	// The pages of the binary that only starting has needed go after 5 s.
	var now, peak, base int
	eventually(t, "nothing is resident that only starting has needed", func() bool {
		base, _ = without.resident()
		now, peak = w.resident()
		return base < idle && now < whole
	})
	added := w.private() - without.private()
	t.Logf("%d kB are resident, %d kB at most, %d kB of them its own: %d kB more than without clusters, when %d kB are resident",
		now>>10, peak>>10, w.private()>>10, added>>10, base>>10)
	t.Logf("%d kB of heap; %d goroutines", w.heap()>>10, w.goroutines())
	if added > most {
		t.Errorf("%d clusters take %d kB, want %d at most", clusters, added>>10, most>>10)
	}
}

// private is the process's memory that is no page of a file, in bytes.
func (w *weft) private() int {
	w.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		w.t.Fatal("no RssAnon in /proc/PID/status")
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n << 10
}
