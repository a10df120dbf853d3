package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestListenersWaitForFirstClusters verifies that listeners wait until the first clusters are
// active or their timeouts have passed.
func TestListenersWaitForFirstClusters(t *testing.T) {
	type step struct {
		elapsed     time.Duration // since the start
		resources   []xdstest.Resource
		cdsResponse bool          // a CDS response arrives after elapsed
		active      int           // number of active listeners afterwards
		next        time.Duration // when to reconcile again, after the start; 0 means never
	}
	second := time.Second
	listener, other := xdstest.Listener("l", 80, "r", "", 0), xdstest.Listener("other", 81, "r", "", 0)
	for _, c := range []struct {
		name       string
		cdsTimeout time.Duration // timeout of the first CDS response
		steps      []step
	}{
		{"response and endpoints arrive", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 15 * second},
			{1 * second, []xdstest.Resource{xdstest.Cluster("c", "e", "", 4*second)}, true, 0, 5 * second},
			{2 * second, []xdstest.Resource{xdstest.Endpoints("e", 1)}, false, 1, 0},
			{3 * second, []xdstest.Resource{xdstest.Cluster("later", "none", "", 4*second), other}, true, 2, 7 * second},
		}},
		{"no response", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 15 * second},
			{15*second - 1, nil, false, 0, 15 * second},
			{15 * second, nil, false, 1, 0},
		}},
		{"no response and no timeout", 0, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 0},
			{time.Hour, nil, false, 0, 0},
			{time.Hour, nil, true, 1, 0},
		}},
		{"response without clusters", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, true, 1, 0},
		}},
		{"endpoints of one cluster missing", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener, xdstest.Cluster("c", "e", "", 4*second), xdstest.Cluster("slow", "none", "", 6*second), xdstest.Endpoints("e", 1)}, true, 0, 6 * second},
			{6 * second, nil, false, 1, 0},
		}},
		{"endpoints missing and no timeout", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener, xdstest.Cluster("c", "none", "", 0)}, true, 0, 0},
			{time.Hour, nil, false, 0, 0},
			{time.Hour, []xdstest.Resource{{URL: resource.ClusterType, Name: "c", Body: nil}}, true, 1, 0},
		}},
		{"secret missing", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 15 * second},
			{second, []xdstest.Resource{xdstest.Cluster("c", "none", "no secret", 4*second)}, true, 0, 5 * second},
			{5 * second, nil, false, 0, 15 * second}, // the listener keeps the timeout of the CDS response
			{15 * second, nil, false, 0, 16 * second},
			{16 * second, nil, false, 1, 0},
		}},
		{"cluster timeout longer than the response timeout", second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener, xdstest.Cluster("static", "e", "", 4*second)}, false, 0, second},
			{second, nil, false, 0, 4 * second},
			{2 * second, []xdstest.Resource{xdstest.Endpoints("e", 1)}, false, 1, 0},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			started, s := time.Now(), newState()
			s.boot.Subscriptions = bootstrap.InitialSubscriptions{CDS: true, CDSTimeout: c.cdsTimeout}
			s.StartWarmup(started)
			for _, st := range c.steps {
				now := started.Add(st.elapsed)
				for _, r := range st.resources {
					applyResource(t, s, r, now)
				}
				if st.cdsResponse {
					s.recordCDSResponse()
				}
				_, next := s.Reconcile(now)
				if got := len(xdstest.Snapshot(s).Listeners); got != st.active {
					t.Errorf("after %v: %d active listeners, want %d", st.elapsed, got, st.active)
				}
				if st.next == 0 && !next.IsZero() || st.next != 0 && !next.Equal(started.Add(st.next)) {
					t.Errorf("after %v: the next reconcile is after %v, want %v", st.elapsed, next.Sub(started), st.next)
				}
			}
		})
	}
}

// TestStaticListenersDoNotWaitForClusters verifies that static listeners are active before the
// clusters of the control plane.
func TestStaticListenersDoNotWaitForClusters(t *testing.T) {
	now, s := time.Now(), newState()
	s.boot.Subscriptions = bootstrap.InitialSubscriptions{CDS: true, CDSTimeout: time.Minute}
	s.StartWarmup(now)
	s.staticNames.listeners = map[string]bool{"static": true}
	for _, r := range []xdstest.Resource{xdstest.Routes("r", "text"), xdstest.Listener("static", 80, "r", "", 0), xdstest.Listener("l", 81, "r", "", 0)} {
		applyResource(t, s, r, now)
	}
	s.Reconcile(now)
	var names []string
	for _, l := range xdstest.Snapshot(s).Listeners {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"static"}) {
		t.Errorf("active listeners: %v, want only the static one", names)
	}
	warming := s.Warming()
	if len(warming) != 1 || !slices.Equal(warming[0].Missing, []string{"clusters of the first response"}) || !warming[0].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("Warming() = %+v, want l for a minute", warming)
	}
}

// TestRejectedFileDoesNotEndWarmup verifies that the rollback of a file restores the warm-up
// that the file would have ended.
func TestRejectedFileDoesNotEndWarmup(t *testing.T) {
	now, s := time.Now(), newState()
	s.StartWarmup(now)
	for _, r := range []xdstest.Resource{xdstest.Cluster("static", "e", "", 0), xdstest.Listener("l", 80, "r", "", 0), xdstest.Routes("r", "text")} {
		applyResource(t, s, r, now)
	}
	s.Reconcile(now)
	s.Checkpoint()
	s.clusters.remove("static")
	if c, _ := s.Reconcile(now); len(c.ActivatedListeners) != 1 {
		t.Fatalf("activated %v after the removal of the cluster, want the listener", c.ActivatedListeners)
	}
	s.Rollback()
	if c, _ := s.Reconcile(now); len(c.ActivatedListeners) != 0 || s.warmup == nil {
		t.Errorf("after the rollback: activated %v, warm-up %+v; want none, and a warm-up", c.ActivatedListeners, s.warmup)
	}
	applyResource(t, s, xdstest.Endpoints("e", 1), now)
	if c, _ := s.Reconcile(now); len(c.ActivatedListeners) != 1 {
		t.Errorf("activated %v after the endpoints, want the listener", c.ActivatedListeners)
	}
}
