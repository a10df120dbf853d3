package xds

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// callers are exchanges that come, as a test says.
type callers struct {
	bell chan struct{}

	mu    sync.Mutex
	names []string        // guarded by mu
	using map[string]bool // guarded by mu
}

func newCallers() *callers {
	return &callers{bell: make(chan struct{}, 1), using: map[string]bool{}}
}

func (c *callers) Requested() <-chan struct{} { return c.bell }

func (c *callers) TakeRequested() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = nil
	return names
}

func (c *callers) Used(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.using[name]
}

// come has exchanges ask for names.
func (c *callers) come(names ...string) {
	c.mu.Lock()
	c.names = append(c.names, names...)
	c.mu.Unlock()
	c.bell <- struct{}{}
	synctest.Wait()
}

// use says whether exchanges use a name.
func (c *callers) use(name string, using bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.using[name] = using
}

const (
	lazyIdle = time.Minute
	lazyWait = 5 * time.Second
)

// startLazy is start with what is not used left with the control plane.
func startLazy(t *testing.T, routes bool) (r *rig, clusters, tables *callers) {
	t.Helper()
	clusters, tables = newCallers(), newCallers()
	r = startWith(t, func(o *Options) {
		o.Bootstrap.Lazy = config.ControlPlaneLazy{Idle: lazyIdle, Wait: lazyWait, Routes: routes}
		o.Clusters, o.Tables = clusters, tables
	})
	return r, clusters, tables
}

// hosts are the clusters in force with their number of hosts, as "c 2"; those that are
// asleep as "c asleep".
func (r *rig) hosts() (list []string) {
	synctest.Wait()
	for _, c := range r.inForce.Load().Clusters {
		if !c.OnDemand.Applies() {
			continue // of the file
		}
		what := fmt.Sprint(len(c.Hosts))
		if c.OnDemand.Asleep {
			what = "asleep"
		}
		list = append(list, c.Name+" "+what)
	}
	return list
}

// tables is hosts of route tables, with their virtual hosts.
func (r *rig) tables() (list []string) {
	synctest.Wait()
	for _, t := range r.inForce.Load().Routes {
		what := fmt.Sprint(len(t.VirtualHosts))
		if t.OnDemand.Asleep {
			what = "asleep"
		}
		list = append(list, t.Name+" "+what)
	}
	return list
}

func wantAll(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// asksFor returns what the next request of a type asks for.
func (c *conversation) asksFor(url string) []string {
	c.t.Helper()
	return c.want(url).GetResourceNames()
}

func TestHostsAreAskedForWhenTheyAreUsedAndDroppedWhenTheyAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startLazy(t, false)
		c := r.converse()
		c.want(resource.ClusterType)
		c.want(resource.ListenerType)
		c.accepted(aCluster("a", "ea", "", 0), aCluster("b", "eb", "", 0), aCluster("c", "", "", 0))
		wantAll(t, "at the start", r.hosts(), "a asleep", "b asleep", "c asleep")

		clusters.come("a", "a", "unknown")
		wantAll(t, "asked for", c.asksFor(resource.EndpointType), "ea")
		wantAll(t, "while it waits", r.hosts(), "a asleep", "b asleep", "c asleep")
		clusters.use("a", true)
		c.accepted(someHosts("ea", 1, 2))
		wantAll(t, "in use", r.hosts(), "a 2", "b asleep", "c asleep")
		clusters.come("a")
		clusters.come("b")
		wantAll(t, "asked for", c.asksFor(resource.EndpointType), "ea", "eb")
		c.accepted(someHosts("eb", 3))
		wantAll(t, "both in use", r.hosts(), "a 2", "b 1", "c asleep")

		time.Sleep(2 * lazyIdle)
		wantAll(t, "only one in use", r.hosts(), "a 2", "b asleep", "c asleep")
		wantAll(t, "asked for", c.asksFor(resource.EndpointType), "ea")
		clusters.use("a", false)
		time.Sleep(lazyIdle - time.Second)
		wantAll(t, "not idle for long enough", r.hosts(), "a 2", "b asleep", "c asleep")
		time.Sleep(lazyIdle)
		wantAll(t, "nobody in use", r.hosts(), "a asleep", "b asleep", "c asleep")
		wantAll(t, "asked for", c.asksFor(resource.EndpointType))
		if r.source.naps.sweeping {
			t.Error("the sweep runs, but nothing is subscribed")
		}

		clusters.come("a")
		wantAll(t, "asked for", c.asksFor(resource.EndpointType), "ea")
		c.accepted(someHosts("ea", 4))
		wantAll(t, "in use again", r.hosts(), "a 1", "b asleep", "c asleep")
	})
}

// TestHostsThatDoNotComeAreNotWaitedForForEver: after initial_fetch_timeout a cluster that
// was woken goes without, as one that is not lazy does.
func TestHostsThatDoNotComeAreNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startLazy(t, false)
		c := r.converse()
		c.accepted(aCluster("a", "ea", "", 10*time.Second), aCluster("b", "eb", "", 0))
		clusters.come("a", "b")
		clusters.use("a", true)
		clusters.use("b", true)
		time.Sleep(9 * time.Second)
		wantAll(t, "before", r.hosts(), "a asleep", "b asleep")
		time.Sleep(2 * time.Second)
		wantAll(t, "after", r.hosts(), "a 0", "b asleep")
		c.accepted(someHosts("ea", 1))
		wantAll(t, "they come after all", r.hosts(), "a 1", "b asleep")
	})
}

// TestAClusterThatIsAnotherIsAsAwakeAsItWas whatever its state is.
func TestAClusterThatIsAnotherIsAsAwakeAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startLazy(t, false)
		c := r.converse()
		say := func(endpoints string) {
			c.accepted(aCluster("asleep", endpoints, "", 0), aCluster("waking", endpoints+"w", "", 0), aCluster("awake", endpoints, "", 0))
		}
		say("e")
		clusters.come("awake", "waking")
		clusters.use("awake", true)
		clusters.use("waking", true)
		c.accepted(someHosts("e", 1))
		wantAll(t, "before", r.hosts(), "asleep asleep", "awake 1", "waking asleep")
		say("f")
		wantAll(t, "while other hosts are waited for", r.hosts(), "asleep asleep", "awake 1", "waking asleep")
		c.accepted(someHosts("f", 1, 2), someHosts("fw", 1, 2, 3))
		wantAll(t, "after", r.hosts(), "asleep asleep", "awake 2", "waking 3")
		c.accepted(aCluster("asleep", "f", "", 0))
		wantAll(t, "others are removed", r.hosts(), "asleep asleep")
		clusters.use("awake", false)
		say("f")
		wantAll(t, "they come back", r.hosts(), "asleep asleep", "awake asleep", "waking asleep")
		clusters.come("asleep")
		c.accepted(someHosts("f", 1))
		wantAll(t, "the last is used", r.hosts(), "asleep 1", "awake asleep", "waking asleep")
		clusters.come("awake")
		wantAll(t, "hosts that are there already", r.hosts(), "asleep 1", "awake 1", "waking asleep")
	})
}

func TestRoutesAreAskedForWhenTheyAreUsedAndDroppedWhenTheyAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, tables := startLazy(t, true)
		c := r.converse()
		c.want(resource.ClusterType)
		c.want(resource.ListenerType)
		c.say(resource.ClusterType)
		c.accepted(aListener("l", 80, "r", "", 0), aListener("m", 81, "q", "", 10*time.Second))
		if got := r.listeners(); !slices.Equal(got, []string{"l", "m"}) {
			t.Errorf("listeners %v, want l and m, which wait for no routes", got)
		}
		wantAll(t, "at the start", r.tables(), "q asleep", "r asleep")
		tables.come("r", "unknown")
		tables.use("r", true)
		wantAll(t, "asked for", c.asksFor(resource.RouteType), "r")
		c.accepted(someRoutes("r", "one"))
		wantAll(t, "in use", r.tables(), "q asleep", "r 1")
		for _, table := range r.inForce.Load().Routes {
			if table.OnDemand.Wait != lazyWait {
				t.Errorf("table %s: %+v, want it on demand", table.Name, table.OnDemand)
			}
		}
		tables.come("q")
		tables.use("q", true)
		time.Sleep(11 * time.Second)
		wantAll(t, "one that does not come", r.tables(), "q 0", "r 1")
		tables.use("r", false)
		time.Sleep(2 * lazyIdle)
		wantAll(t, "not used any more", r.tables(), "q 0", "r asleep")
		tables.come("r")
		c.accepted(someRoutes("r", "two"))
		wantAll(t, "used again", r.tables(), "q 0", "r 1")
		c.accepted(aListener("l", 80, "r", "", 0))
		wantAll(t, "a listener is gone", r.tables(), "r 1")
		if n := r.source.Status().Lazy.AwakeTables; n != 1 {
			t.Errorf("%d tables are subscribed, want 1", n)
		}
	})
}

func TestRoutesAreNotLeftThereUnlessItIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, tables := startLazy(t, false)
		c := r.converse()
		c.say(resource.ClusterType)
		c.accepted(aListener("l", 80, "r", "", 0))
		if got := r.listeners(); len(got) != 0 {
			t.Errorf("listeners %v, want none: the routes have not come", got)
		}
		tables.come("r")
		c.accepted(someRoutes("r", "one"))
		wantAll(t, "at once", r.tables(), "r 1")
		if d := r.inForce.Load().Routes[0].OnDemand; d.Applies() {
			t.Errorf("the table is on demand: %+v", d)
		}
	})
}

// TestWhatIsAskedForWhileTheControlPlaneIsAwayIsAskedOfTheNextStream.
func TestWhatIsAskedForWhileTheControlPlaneIsAwayIsAskedOfTheNextStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startLazy(t, false)
		s := r.serve(controlAddress)
		r.run()
		r.stream(s).accepted(aCluster("a", "ea", "", 0))
		r.stop[controlAddress]()
		clusters.come("a")
		wantAll(t, "while it is away", r.hosts(), "a asleep")
		s = r.serve(controlAddress)
		c := r.stream(s)
		c.want(resource.ClusterType)
		wantAll(t, "asked for", c.asksFor(resource.EndpointType), "ea")
		c.accepted(someHosts("ea", 1))
		wantAll(t, "when it is back", r.hosts(), "a 1")
	})
}

func TestStatusTellsWhatIsAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clusters, _ := startLazy(t, true)
		c := r.converse()
		c.accepted(aCluster("a", "ea", "", 0), aCluster("b", "eb", "", 0), aCluster("c", "ec", "", 0))
		c.accepted(aListener("l", 80, "r", "", 0))
		clusters.come("b")
		got := r.source.Status().Lazy
		if got.AwakeClusters != 1 || got.AwakeTables != 0 {
			t.Errorf("%d clusters and %d tables are subscribed, want 1 and 0", got.AwakeClusters, got.AwakeTables)
		}
		wantAll(t, "clusters asleep", got.AsleepClusters, "a", "c")
		wantAll(t, "routes asleep", got.AsleepTables, "r")
		if c, r := r.source.naps.asleepClusters.Load(), r.source.naps.asleepTables.Load(); c != 2 || r != 1 {
			t.Errorf("%d clusters and %d tables are counted, want 2 and 1", c, r)
		}
	})
}
