package state

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// newState returns a State without resources, warm-up or control plane.
func newState() *State { return New(Options{Bootstrap: &bootstrap.Bootstrap{}}) }

// applyResource sets a resource in s; a nil body removes it.
func applyResource(t testing.TB, s *State, r xdstest.Resource, now time.Time) {
	t.Helper()
	var err error
	switch r.URL {
	case resource.ClusterType:
		var c *resource.Cluster
		if r.Body == nil {
			s.clusters.remove(r.Name)
		} else if c, err = resource.ReadCluster(r.Body, xdstest.Capabilities()); err == nil {
			s.setCluster(r.Name, c, now)
		}
	case resource.ListenerType:
		var l *resource.Listener
		if r.Body == nil {
			s.listeners.remove(r.Name)
		} else if l, err = resource.ReadListener(r.Body, xdstest.Capabilities()); err == nil {
			s.setListener(r.Name, l, now)
		}
	case resource.EndpointType:
		var a *resource.LoadAssignment
		if r.Body != nil {
			a, err = resource.ReadLoadAssignment(r.Body, xdstest.Capabilities())
		}
		s.setAssignment(r.Name, a)
	case resource.RouteType:
		var table *resource.RouteTable
		if r.Body != nil {
			table, err = resource.ReadRoutes(r.Body, xdstest.Capabilities())
		}
		s.setTable(r.Name, table)
	case resource.DubboRouteType:
		var table *resource.RouteTable
		if r.Body != nil {
			table, err = resource.ReadDubboRoutes(r.Body, xdstest.Capabilities())
		}
		s.setTable(resource.DubboTableName(r.Name), table)
	case resource.ExtensionType:
		var e *resource.Extension
		if r.Body != nil {
			e, err = resource.ReadExtension(r.Body, xdstest.Capabilities())
		}
		s.setExtension(r.Name, e)
	case resource.SecretType:
		secret, readErr := resource.ReadSecret(r.Body, xdstest.Capabilities())
		err = readErr
		s.setSecret(resource.SecretRef{Name: r.Name}, secret)
	}
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
}

// checkConsistent fails t if an active resource lacks its hosts, secret or routes.
func checkConsistent(t testing.TB, s *State) {
	t.Helper()
	snapshot := xdstest.Snapshot(s)
	for _, c := range snapshot.Clusters {
		if len(c.Hosts) == 0 {
			t.Fatalf("cluster %s is active without hosts", c.Name)
		}
		if active := s.clusters.byName[c.Name].Active; len(active.Secrets()) > 0 && c.TLS.Certificate.Text == "" {
			t.Fatalf("cluster %s is active without its secret", c.Name)
		}
	}
	for _, l := range snapshot.Listeners {
		for _, table := range s.listeners.byName[l.Name].Active.RouteConfigNames {
			if s.tables[table] == nil {
				t.Fatalf("listener %s is active without its routes", l.Name)
			}
		}
		for c := range l.Chains() {
			for _, context := range c.TLS {
				if context.Certificate.Text == "" {
					t.Fatalf("listener %s is active without its secret", l.Name)
				}
			}
		}
	}
}

// TestEveryResourceOrderConverges verifies that all orders of a few resources lead to the same
// configuration. The initial state is empty, or holds older versions of all resources.
func TestEveryResourceOrderConverges(t *testing.T) {
	pki := testpki.New(t)
	older := []xdstest.Resource{
		xdstest.Cluster("c", "e1", "s", 0), xdstest.Endpoints("e1", 1, 2), xdstest.Secret("s", pki.Issue(testpki.Spec{CommonName: "a"})),
		xdstest.Listener("l", 80, "r1", "own", 0), xdstest.Routes("r1", "one"), xdstest.Secret("own", pki.Issue(testpki.Spec{CommonName: "b"})),
	}
	newer := []xdstest.Resource{
		xdstest.Cluster("c", "e2", "s2", 0), xdstest.Endpoints("e2", 3), xdstest.Secret("s2", pki.Issue(testpki.Spec{CommonName: "c"})),
		xdstest.Listener("l", 81, "r2", "own2", 0), xdstest.Routes("r2", "two"), xdstest.Secret("own2", pki.Issue(testpki.Spec{CommonName: "d"})),
	}
	now := time.Now()
	for name, initial := range map[string][]xdstest.Resource{"from an empty state": nil, "from older versions": older} {
		t.Run(name, func(t *testing.T) {
			var want *config.Snapshot
			for order := range permutations(len(newer)) {
				s := newState()
				for _, r := range initial {
					applyResource(t, s, r, now)
				}
				s.Reconcile(now)
				before := xdstest.Snapshot(s)
				for _, i := range order {
					s.Checkpoint()
					applyResource(t, s, newer[i], now)
					s.Reconcile(now)
					checkConsistent(t, s)
					if got := xdstest.Snapshot(s); len(got.Clusters) < len(before.Clusters) || len(got.Listeners) < len(before.Listeners) {
						t.Fatalf("order %v: a resource was removed before its replacement was active", order)
					}
				}
				s.TakeSubscriptionChanges()
				got := xdstest.Snapshot(s)
				if want == nil {
					want = got
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("order %v leads to another configuration:\n%+v\nwant\n%+v", order, got, want)
				}
			}
			if len(want.Clusters) != 1 || len(want.Listeners) != 1 || len(want.Routes) != 1 || len(want.Clusters[0].Hosts) != 1 {
				t.Fatalf("active: %+v, want all received resources", want)
			}
		})
	}
}

// permutations yields all permutations of the integers below n.
func permutations(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		order := make([]int, 0, n)
		var next func() bool
		next = func() bool {
			if len(order) == n {
				return yield(slices.Clone(order))
			}
			for i := range n {
				if slices.Contains(order, i) {
					continue
				}
				order = append(order, i)
				proceed := next()
				order = order[:len(order)-1]
				if !proceed {
					return false
				}
			}
			return true
		}
		next()
	}
}

// TestActiveVersionFollowsItsResources verifies that an active version uses the updates of its
// endpoints and routes while its replacement is warming.
func TestActiveVersionFollowsItsResources(t *testing.T) {
	now, s := time.Now(), newState()
	hosts := func() int { return len(xdstest.Snapshot(s).Clusters[0].Hosts) }
	for _, r := range []xdstest.Resource{xdstest.Cluster("c", "e1", "", 0), xdstest.Endpoints("e1", 1), xdstest.Listener("l", 80, "r1", "", 0), xdstest.Routes("r1", "one")} {
		applyResource(t, s, r, now)
	}
	s.Reconcile(now)
	applyResource(t, s, xdstest.Cluster("c", "e2", "", 0), now)
	applyResource(t, s, xdstest.Listener("l", 81, "r2", "", 0), now)
	if c, _ := s.Reconcile(now); !c.IsEmpty() {
		t.Errorf("change by a warming replacement = %+v, want none", c)
	}
	applyResource(t, s, xdstest.Endpoints("e1", 1, 2), now)
	if c, _ := s.Reconcile(now); len(c.Clusters) != 1 || c.ListenersChanged || hosts() != 2 {
		t.Errorf("change: %+v, %d hosts; want the changed cluster and 2 hosts", c, hosts())
	}
	applyResource(t, s, xdstest.Routes("r1", "other"), now)
	if c, _ := s.Reconcile(now); c.ListenersChanged || len(c.ActivatedListeners)+len(c.Clusters) != 0 || len(c.Tables) != 1 {
		t.Errorf("change: %+v, want only the changed table", c)
	}
	applyResource(t, s, xdstest.Endpoints("e2", 3, 4, 5), now)
	applyResource(t, s, xdstest.Routes("r2", "two"), now)
	if c, _ := s.Reconcile(now); hosts() != 3 || !slices.Equal(c.ActivatedListeners, []string{"l"}) {
		t.Errorf("change by the replacements: %+v, %d hosts; want the listener activated and 3 hosts", c, hosts())
	}
}

// TestInitialFetchTimeout verifies that clusters and listeners become active without endpoints and
// routes after their timeout, but not without secrets.
func TestInitialFetchTimeout(t *testing.T) {
	start, s := time.Now(), newState()
	applyResource(t, s, xdstest.Cluster("soon", "none", "", 2*time.Second), start)
	applyResource(t, s, xdstest.Cluster("never", "none", "", 0), start)
	applyResource(t, s, xdstest.Cluster("unready", "none", "no secret", time.Second), start)
	applyResource(t, s, xdstest.Listener("late", 80, "none", "", 5*time.Second), start)
	for _, step := range []struct {
		elapsed             time.Duration // since start
		clusters, listeners int
		next                time.Duration // after start; 0 means never
	}{
		{0, 0, 0, time.Second},
		{time.Second, 0, 0, 2 * time.Second}, // the wait for a secret has no timeout
		{2*time.Second - 1, 0, 0, 2 * time.Second},
		{2 * time.Second, 1, 0, 5 * time.Second},
		{5 * time.Second, 1, 1, 0},
		{time.Hour, 1, 1, 0},
	} {
		_, next := s.Reconcile(start.Add(step.elapsed))
		snapshot := xdstest.Snapshot(s)
		if len(snapshot.Clusters) != step.clusters || len(snapshot.Listeners) != step.listeners {
			t.Errorf("after %v: %d active clusters and %d listeners, want %d and %d", step.elapsed, len(snapshot.Clusters), len(snapshot.Listeners), step.clusters, step.listeners)
		}
		if want := start.Add(step.next); step.next == 0 && !next.IsZero() || step.next != 0 && !next.Equal(want) {
			t.Errorf("after %v: the next reconcile is after %v, want %v", step.elapsed, next.Sub(start), step.next)
		}
	}
	if routes := xdstest.Snapshot(s).Routes; len(routes) != 1 || len(routes[0].VirtualHosts) != 0 {
		t.Errorf("tables of a listener without a route resource = %+v, want one without virtual hosts", routes)
	}
}

// TestRollbackRestoresState verifies that a state that applies and rolls back additional resources
// stays equal to a reference that never received them.
func TestRollbackRestoresState(t *testing.T) {
	pki := testpki.New(t)
	var secrets []xdstest.Resource
	for i := range 3 {
		secrets = append(secrets, xdstest.Secret(fmt.Sprint("s", i), pki.Issue(testpki.Spec{CommonName: "a"})))
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.Now()
		tested, reference := newState(), newState()
		for range 30 {
			now = now.Add(time.Duration(r.IntN(40)) * time.Minute)
			tested.Checkpoint()
			reference.Checkpoint()
			common := xdstest.Random(r, secrets)
			applyResource(t, tested, common, now)
			applyResource(t, reference, common, now)
			tested.Reconcile(now)
			reference.Reconcile(now)
			if r.IntN(2) == 0 {
				tested.Checkpoint()
				for range 1 + r.IntN(3) {
					applyResource(t, tested, xdstest.Random(r, secrets), now)
					if r.IntN(2) == 0 {
						tested.HoldBack(fmt.Sprint("l", r.IntN(3)))
					}
					tested.Reconcile(now)
				}
				tested.Rollback()
				tested.Reconcile(now)
			}
			_, testedNext := tested.Reconcile(now)
			_, referenceNext := reference.Reconcile(now)
			a, b := xdstest.Snapshot(tested), xdstest.Snapshot(reference)
			if !reflect.DeepEqual(a, b) || !testedNext.Equal(referenceNext) || !reflect.DeepEqual(tested.referenced(), reference.referenced()) {
				t.Fatalf("seed %d: the state differs after the rollback:\n%+v\nwant\n%+v", seed, a, b)
			}
		}
	}
}
