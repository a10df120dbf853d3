package state

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestListenersWaitForTheFirstClusters verifies that listeners wait until the first clusters are
// active or their timeouts have passed.
func TestListenersWaitForTheFirstClusters(t *testing.T) {
	type step struct {
		at     time.Duration // after the start
		hear   []xdstest.Resource
		cds    bool          // a CDS response arrives at that time
		active int           // number of active listeners afterwards
		next   time.Duration // when to reconcile again, after the start; 0 means never
	}
	second := time.Second
	listener, other := xdstest.Listener("l", 80, "r", "", 0), xdstest.Listener("other", 81, "r", "", 0)
	for _, c := range []struct {
		name  string
		limit time.Duration // timeout of the first CDS response
		steps []step
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
			begin, w := time.Now(), newState()
			w.boot.Subscriptions = bootstrap.InitialSubscriptions{CDS: true, CDSTimeout: c.limit}
			w.StartWarmup(begin)
			for _, s := range c.steps {
				now := begin.Add(s.at)
				for _, r := range s.hear {
					applyResource(t, w, r, now)
				}
				if s.cds {
					w.noteCDSResponse()
				}
				_, next := w.Reconcile(now)
				if got := len(xdstest.Snapshot(w).Listeners); got != s.active {
					t.Errorf("after %v: %d active listeners, want %d", s.at, got, s.active)
				}
				if s.next == 0 && !next.IsZero() || s.next != 0 && !next.Equal(begin.Add(s.next)) {
					t.Errorf("after %v: the next reconcile is after %v, want %v", s.at, next.Sub(begin), s.next)
				}
			}
		})
	}
}

// TestStaticListenersDoNotWaitForClusters verifies that static listeners are active before the
// clusters of the control plane.
func TestStaticListenersDoNotWaitForClusters(t *testing.T) {
	now, w := time.Now(), newState()
	w.boot.Subscriptions = bootstrap.InitialSubscriptions{CDS: true, CDSTimeout: time.Minute}
	w.StartWarmup(now)
	w.staticNames.listeners = map[string]bool{"static": true}
	for _, r := range []xdstest.Resource{xdstest.Routes("r", "text"), xdstest.Listener("static", 80, "r", "", 0), xdstest.Listener("l", 81, "r", "", 0)} {
		applyResource(t, w, r, now)
	}
	w.Reconcile(now)
	var names []string
	for _, l := range xdstest.Snapshot(w).Listeners {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"static"}) {
		t.Errorf("active listeners: %v, want only the static one", names)
	}
	all := w.Warming()
	if len(all) != 1 || !slices.Equal(all[0].Missing, []string{"clusters of the first response"}) || !all[0].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("Warming() = %+v, want l for a minute", all)
	}
}

// TestRejectedFileDoesNotEndTheWarmup verifies that the rollback of a file restores the warm-up
// that the file would have ended.
func TestRejectedFileDoesNotEndTheWarmup(t *testing.T) {
	now, w := time.Now(), newState()
	w.StartWarmup(now)
	for _, r := range []xdstest.Resource{xdstest.Cluster("static", "e", "", 0), xdstest.Listener("l", 80, "r", "", 0), xdstest.Routes("r", "text")} {
		applyResource(t, w, r, now)
	}
	w.Reconcile(now)
	w.Checkpoint()
	w.clusters.remove("static")
	if c, _ := w.Reconcile(now); len(c.ActivatedListeners) != 1 {
		t.Fatal("the listener waits for a removed cluster")
	}
	w.Rollback()
	if c, _ := w.Reconcile(now); len(c.ActivatedListeners) != 0 || w.warmup == nil {
		t.Errorf("after the rollback: activated %v, warm-up %+v", c.ActivatedListeners, w.warmup)
	}
	applyResource(t, w, xdstest.Endpoints("e", 1), now)
	if c, _ := w.Reconcile(now); len(c.ActivatedListeners) != 1 {
		t.Error("the listener is not activated after the endpoints")
	}
}
