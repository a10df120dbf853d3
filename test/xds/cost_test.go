package xds

import (
	"fmt"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/test/bench/process"
)

// TestCost has one cluster's endpoints change, in delta, beside few clusters that nobody
// touches and beside many: what an update costs Weft depends on what it changes.
func TestCost(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a checked program costs something else")
	}
	t.Parallel() // what runs beside it disturbs both measurements
	const (
		few, many = 100, 5000
		updates   = 200
		most      = 2.0
	)
	cost := map[int]time.Duration{}
	for _, n := range []int{few, many} {
		cost[n] = costBeside(t, n, updates)
		t.Logf("beside %d clusters: %v of CPU an update", n, cost[n].Round(time.Microsecond))
	}
	if ratio := float64(cost[many]) / float64(cost[few]); ratio > most {
		t.Errorf("beside %d clusters an update costs %.1f times what it costs beside %d, want at most %.1f", many, ratio, few, most)
	}
}

// costBeside returns the CPU of one update.
func costBeside(t *testing.T, clusters, updates int) time.Duration {
	t.Helper()
	p, host := newStopped(t), newHost()
	p.apart = cache.NewLinearCache(resource.EndpointType) // so that an update is the same for the control plane, too
	p.start()
	at := origin(t, "app")
	w := startWeft(t, bootstrap("DELTA_GRPC", p.address, host+":9901"), nil)
	defer w.end() // before the next
	p.put(front("front", host+":10000", "routes"), tableOf("routes", to("/", "app")), edsCluster("app"), endpointsOf("app", at))
	for i := range clusters {
		name := fmt.Sprintf("untouched-%d", i)
		p.put(edsCluster(name), endpointsOf(name, "127.0.0.1:9"))
	}
	p.publish()
	p.apart.SetResources(p.endpoints)
	answers(t, client(t), "http://"+host+":10000/", "app")
	// At the same pace, for caches that grow cold meanwhile.
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	change := func(n int) {
		<-pace.C
		heard := p.heard()
		if err := p.apart.UpdateResource("app", endpointsOf("app", at, fmt.Sprintf("127.0.0.1:%d", 1+n))); err != nil {
			t.Fatal(err)
		}
		p.await(heard, func(a answer) bool { return a == answer{kind: "ClusterLoadAssignment"} })
	}
	for n := range 20 { // until it has settled
		change(n)
	}
	begin := w.cpu()
	for n := range updates {
		change(n)
	}
	return (w.cpu() - begin) / time.Duration(updates)
}

// cpu is the processor time that the process has used.
func (w *weft) cpu() time.Duration {
	w.t.Helper()
	used, err := process.CPUTime([]int{w.cmd.Process.Pid})
	if err != nil {
		w.t.Fatal(err)
	}
	return used
}
