package xds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/test/bench/process"
)

// TestCost verifies with delta xDS that the CPU cost of an update depends on what it changes:
// updates of one cluster's endpoints cost about the same with few and with many other clusters.
func TestCost(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks distort the CPU cost")
	}
	t.Parallel() // other tests affect both measurements
	const (
		few, many       = 100, 5000
		rounds, updates = 15, 10
		maxRatio        = 2.0
	)
	// The measurements alternate, so that other load on the machine affects both.
	fixtures := map[int]*costFixture{few: newCostFixture(t, few), many: newCostFixture(t, many)}
	for _, c := range fixtures {
		c.change(updates) // warm-up
	}
	for range rounds {
		for _, c := range fixtures {
			start := c.w.cpu()
			c.change(updates)
			c.cpuTimes = append(c.cpuTimes, (c.w.cpu()-start)/updates)
		}
	}
	cost := map[int]time.Duration{}
	for n, c := range fixtures {
		slices.Sort(c.cpuTimes)
		cost[n] = c.cpuTimes[len(c.cpuTimes)/2] // the median excludes garbage collections
		t.Logf("with %d other clusters: %v of CPU per update, from %v to %v", n, cost[n], c.cpuTimes[0], c.cpuTimes[len(c.cpuTimes)-1])
	}
	if ratio := float64(cost[many]) / float64(cost[few]); ratio > maxRatio {
		t.Errorf("an update with %d other clusters costs %.1f times as much as with %d, want at most %.1f", many, ratio, few, maxRatio)
	}
}

// costFixture is a Weft with one cluster that changes and many clusters that do not change.
type costFixture struct {
	t            *testing.T
	controlPlane *controlPlane
	w            *weft
	hostAddress  string // address of the cluster's host
	changes      int
	cpuTimes     []time.Duration // CPU time per update, in each round
}

func newCostFixture(t *testing.T, clusters int) *costFixture {
	t.Helper()
	p, host := newStoppedControlPlane(t), newHost()
	p.endpointCache = cache.NewLinearCache(resource.EndpointType) // so that the cost for the control plane does not depend on the number of clusters
	p.start()
	address := startOrigin(t, "app")
	w := startWeft(t, bootstrap("DELTA_GRPC", p.address, host+":9901"), nil)
	p.put(httpListener("front", host+":10000", "routes"), routeTable("routes", routeTo("/", "app")), edsCluster("app"), endpointsOf("app", address))
	for i := range clusters {
		name := fmt.Sprintf("untouched-%d", i)
		p.put(edsCluster(name), endpointsOf(name, "127.0.0.1:9"))
	}
	p.publish()
	p.endpointCache.SetResources(p.endpoints)
	awaitResponse(t, client(t), "http://"+host+":10000/", "app")
	return &costFixture{t: t, controlPlane: p, w: w, hostAddress: address}
}

// change changes the cluster's endpoints a number of times, slowly enough for CPU caches to grow
// cold.
func (c *costFixture) change(times int) {
	c.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range times {
		<-ticker.C
		c.changes++
		ackCount := c.controlPlane.ackCount()
		if err := c.controlPlane.endpointCache.UpdateResource("app", endpointsOf("app", c.hostAddress, fmt.Sprintf("127.0.0.1:%d", 100+c.changes))); err != nil {
			c.t.Fatal(err)
		}
		c.controlPlane.await(ackCount, func(a ack) bool { return a == ack{typeName: "ClusterLoadAssignment"} })
	}
}

// cpu returns the CPU time of the process.
func (w *weft) cpu() time.Duration {
	w.t.Helper()
	used, err := process.CPUTime([]int{w.cmd.Process.Pid})
	if err != nil {
		w.t.Fatal(err)
	}
	return used
}
