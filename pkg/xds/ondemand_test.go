package xds

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// fakeOnDemand reports the requested and used names that a test sets.
type fakeOnDemand struct {
	signal chan struct{}

	mu    sync.Mutex
	names []string        // guarded by mu
	inUse map[string]bool // guarded by mu
}

func newFakeOnDemand() *fakeOnDemand {
	return &fakeOnDemand{signal: make(chan struct{}, 1), inUse: map[string]bool{}}
}

func (c *fakeOnDemand) Requested() <-chan struct{} { return c.signal }

func (c *fakeOnDemand) TakeRequested() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = nil
	return names
}

func (c *fakeOnDemand) InUse(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inUse[name]
}

// request reports names as requested and waits until the Source has handled them.
func (c *fakeOnDemand) request(names ...string) {
	c.mu.Lock()
	c.names = append(c.names, names...)
	c.mu.Unlock()
	c.signal <- struct{}{}
	synctest.Wait()
}

// setInUse sets whether name is in use.
func (c *fakeOnDemand) setInUse(name string, inUse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inUse[name] = inUse
}

const (
	onDemandIdle = time.Minute
	onDemandWait = 5 * time.Second
)

// startOnDemand is start with on-demand clusters, and with on-demand routes if routes is true.
func startOnDemand(t *testing.T, routes bool) (r *rig, clusters, tables *fakeOnDemand) {
	t.Helper()
	clusters, tables = newFakeOnDemand(), newFakeOnDemand()
	r = startWith(t, func(o *Options) {
		o.Bootstrap.OnDemand = config.XDSOnDemand{Idle: onDemandIdle, Wait: onDemandWait, Routes: routes}
		o.Clusters, o.Routes = clusters, tables
	})
	return r, clusters, tables
}

// clusterStates returns the active on-demand clusters with their number of hosts, as "c 2", or as
// "c unsubscribed".
func (r *rig) clusterStates() (list []string) {
	synctest.Wait()
	for _, c := range r.active.Load().Clusters {
		if !c.OnDemand.Enabled() {
			continue // a static cluster
		}
		state := fmt.Sprint(len(c.Hosts))
		if c.OnDemand.Unsubscribed {
			state = "unsubscribed"
		}
		list = append(list, c.Name+" "+state)
	}
	return list
}

// tableStates returns the active route tables with their number of virtual hosts, in the format of
// clusterStates.
func (r *rig) tableStates() (list []string) {
	synctest.Wait()
	for _, t := range r.active.Load().Routes {
		state := fmt.Sprint(len(t.VirtualHosts))
		if t.OnDemand.Unsubscribed {
			state = "unsubscribed"
		}
		list = append(list, t.Name+" "+state)
	}
	return list
}

func checkList(t *testing.T, label string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", label, got, want)
	}
}

// nextNames returns the resource names of the next request. It fails the test unless that request
// is for the type url.
func (c *adsStream) nextNames(url string) []string {
	c.t.Helper()
	return c.expectRequest(url).GetResourceNames()
}

func TestOnDemandEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startOnDemand(t, false)
		c := r.runAndAccept()
		c.expectRequest(resource.ClusterType)
		c.expectRequest(resource.ListenerType)
		c.sendAccepted(xdstest.Cluster("a", "ea", "", 0), xdstest.Cluster("b", "eb", "", 0), xdstest.Cluster("c", "", "", 0))
		checkList(t, "at the start", r.clusterStates(), "a unsubscribed", "b unsubscribed", "c unsubscribed")

		clusters.request("a", "a", "unknown")
		checkList(t, "subscribed endpoints", c.nextNames(resource.EndpointType), "ea")
		checkList(t, "before the endpoints", r.clusterStates(), "a unsubscribed", "b unsubscribed", "c unsubscribed")
		clusters.setInUse("a", true)
		c.sendAccepted(xdstest.Endpoints("ea", 1, 2))
		checkList(t, "in use", r.clusterStates(), "a 2", "b unsubscribed", "c unsubscribed")
		clusters.request("a")
		clusters.request("b")
		checkList(t, "subscribed endpoints", c.nextNames(resource.EndpointType), "ea", "eb")
		c.sendAccepted(xdstest.Endpoints("eb", 3))
		checkList(t, "both in use", r.clusterStates(), "a 2", "b 1", "c unsubscribed")

		time.Sleep(2 * onDemandIdle)
		checkList(t, "only one in use", r.clusterStates(), "a 2", "b unsubscribed", "c unsubscribed")
		checkList(t, "subscribed endpoints", c.nextNames(resource.EndpointType), "ea")
		clusters.setInUse("a", false)
		time.Sleep(onDemandIdle - time.Second)
		checkList(t, "before the idle timeout", r.clusterStates(), "a 2", "b unsubscribed", "c unsubscribed")
		time.Sleep(onDemandIdle)
		checkList(t, "none in use", r.clusterStates(), "a unsubscribed", "b unsubscribed", "c unsubscribed")
		checkList(t, "subscribed endpoints", c.nextNames(resource.EndpointType))
		if r.source.onDemand.idleTimerSet {
			t.Error("the idle timer is set although nothing is subscribed, want it stopped")
		}

		clusters.request("a")
		checkList(t, "subscribed endpoints", c.nextNames(resource.EndpointType), "ea")
		c.sendAccepted(xdstest.Endpoints("ea", 4))
		checkList(t, "in use again", r.clusterStates(), "a 1", "b unsubscribed", "c unsubscribed")
	})
}

// TestOnDemandInitialFetchTimeout verifies that a requested cluster becomes active without hosts
// after initial_fetch_timeout, as a cluster that is not on demand does.
func TestOnDemandInitialFetchTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startOnDemand(t, false)
		c := r.runAndAccept()
		c.sendAccepted(xdstest.Cluster("a", "ea", "", 10*time.Second), xdstest.Cluster("b", "eb", "", 0))
		clusters.request("a", "b")
		clusters.setInUse("a", true)
		clusters.setInUse("b", true)
		time.Sleep(9 * time.Second)
		checkList(t, "before", r.clusterStates(), "a unsubscribed", "b unsubscribed")
		time.Sleep(2 * time.Second)
		checkList(t, "after", r.clusterStates(), "a 0", "b unsubscribed")
		c.sendAccepted(xdstest.Endpoints("ea", 1))
		checkList(t, "endpoints after the timeout", r.clusterStates(), "a 1", "b unsubscribed")
	})
}

// TestChangedClusterKeepsSubscription verifies that an update does not change whether a cluster is
// subscribed, and that a cluster that is removed and added again is unsubscribed.
func TestChangedClusterKeepsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startOnDemand(t, false)
		c := r.runAndAccept()
		sendClusters := func(endpoints string) {
			c.sendAccepted(xdstest.Cluster("idle", endpoints, "", 0), xdstest.Cluster("warming", endpoints+"w", "", 0), xdstest.Cluster("used", endpoints, "", 0))
		}
		sendClusters("e")
		clusters.request("used", "warming")
		clusters.setInUse("used", true)
		clusters.setInUse("warming", true)
		c.sendAccepted(xdstest.Endpoints("e", 1))
		checkList(t, "before", r.clusterStates(), "idle unsubscribed", "used 1", "warming unsubscribed")
		sendClusters("f")
		checkList(t, "before the new endpoints", r.clusterStates(), "idle unsubscribed", "used 1", "warming unsubscribed")
		c.sendAccepted(xdstest.Endpoints("f", 1, 2), xdstest.Endpoints("fw", 1, 2, 3))
		checkList(t, "after", r.clusterStates(), "idle unsubscribed", "used 2", "warming 3")
		c.sendAccepted(xdstest.Cluster("idle", "f", "", 0))
		checkList(t, "after the others are removed", r.clusterStates(), "idle unsubscribed")
		clusters.setInUse("used", false)
		sendClusters("f")
		checkList(t, "after the others return", r.clusterStates(), "idle unsubscribed", "used unsubscribed", "warming unsubscribed")
		clusters.request("idle")
		c.sendAccepted(xdstest.Endpoints("f", 1))
		checkList(t, "after a request for the idle cluster", r.clusterStates(), "idle 1", "used unsubscribed", "warming unsubscribed")
		clusters.request("used")
		checkList(t, "after a request with received endpoints", r.clusterStates(), "idle 1", "used 1", "warming unsubscribed")
	})
}

func TestOnDemandRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, tables := startOnDemand(t, true)
		c := r.runAndAccept()
		c.expectRequest(resource.ClusterType)
		c.expectRequest(resource.ListenerType)
		c.send(resource.ClusterType)
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0), xdstest.Listener("m", 81, "q", "", 10*time.Second))
		if got := r.listeners(); !slices.Equal(got, []string{"l", "m"}) {
			t.Errorf("listeners %v, want l and m, which do not wait for routes", got)
		}
		checkList(t, "at the start", r.tableStates(), "q unsubscribed", "r unsubscribed")
		tables.request("r", "unknown")
		tables.setInUse("r", true)
		checkList(t, "subscribed routes", c.nextNames(resource.RouteType), "r")
		c.sendAccepted(xdstest.Routes("r", "one"))
		checkList(t, "in use", r.tableStates(), "q unsubscribed", "r 1")
		for _, table := range r.active.Load().Routes {
			if table.OnDemand.Wait != onDemandWait {
				t.Errorf("table %s: OnDemand = %+v, want Wait %v", table.Name, table.OnDemand, onDemandWait)
			}
		}
		tables.request("q")
		tables.setInUse("q", true)
		time.Sleep(11 * time.Second)
		checkList(t, "after the timeout of q", r.tableStates(), "q 0", "r 1")
		tables.setInUse("r", false)
		time.Sleep(2 * onDemandIdle)
		checkList(t, "r idle", r.tableStates(), "q 0", "r unsubscribed")
		tables.request("r")
		c.sendAccepted(xdstest.Routes("r", "two"))
		checkList(t, "r in use again", r.tableStates(), "q 0", "r 1")
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		checkList(t, "after a listener is removed", r.tableStates(), "r 1")
		if n := r.source.Status().OnDemand.RequestedRoutes; n != 1 {
			t.Errorf("%d subscribed tables, want 1", n)
		}
	})
}

func TestRoutesAreNotOnDemandByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, tables := startOnDemand(t, false)
		c := r.runAndAccept()
		c.send(resource.ClusterType)
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		if got := r.listeners(); len(got) != 0 {
			t.Errorf("listeners %v, want none before the routes", got)
		}
		tables.request("r")
		c.sendAccepted(xdstest.Routes("r", "one"))
		checkList(t, "after the routes", r.tableStates(), "r 1")
		if d := r.active.Load().Routes[0].OnDemand; d.Enabled() {
			t.Errorf("OnDemand of the table = %+v, want the zero value", d)
		}
	})
}

// TestOnDemandRequestWhileDisconnected verifies that a reconnected Source subscribes to the
// endpoints of a cluster that was requested while the Source was disconnected.
func TestOnDemandRequestWhileDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startOnDemand(t, false)
		s := r.serve(controlAddress)
		r.run()
		r.nextStream(s).sendAccepted(xdstest.Cluster("a", "ea", "", 0))
		r.stop[controlAddress]()
		clusters.request("a")
		checkList(t, "while disconnected", r.clusterStates(), "a unsubscribed")
		s = r.serve(controlAddress)
		c := r.nextStream(s)
		c.expectRequest(resource.ClusterType)
		checkList(t, "subscribed endpoints", c.nextNames(resource.EndpointType), "ea")
		c.sendAccepted(xdstest.Endpoints("ea", 1))
		checkList(t, "after the reconnect", r.clusterStates(), "a 1")
	})
}

func TestStatusOfUnsubscribedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startOnDemand(t, true)
		c := r.runAndAccept()
		c.sendAccepted(xdstest.Cluster("a", "ea", "", 0), xdstest.Cluster("b", "eb", "", 0), xdstest.Cluster("c", "ec", "", 0))
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		clusters.request("b")
		got := r.source.Status().OnDemand
		if got.RequestedClusters != 1 || got.RequestedRoutes != 0 {
			t.Errorf("%d subscribed clusters and %d tables, want 1 and 0", got.RequestedClusters, got.RequestedRoutes)
		}
		checkList(t, "unsubscribed clusters", got.UnsubscribedClusters, "a", "c")
		checkList(t, "unsubscribed routes", got.UnsubscribedRoutes, "r")
		if c, r := r.source.onDemand.unsubscribedClusters.Load(), r.source.onDemand.unsubscribedRoutes.Load(); c != 2 || r != 1 {
			t.Errorf("%d unsubscribed clusters and %d tables counted, want 2 and 1", c, r)
		}
	})
}
