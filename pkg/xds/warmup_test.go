package xds

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestListenersWaitForTheFirstClusters verifies that listeners wait until the first clusters are
// active or their timeouts have passed.
func TestListenersWaitForTheFirstClusters(t *testing.T) {
	type step struct {
		at     time.Duration // after the start
		hear   []testResource
		cds    bool          // a CDS response arrives at that time
		active int           // number of active listeners afterwards
		next   time.Duration // when to reconcile again, after the start; 0 means never
	}
	second := time.Second
	listener, other := listenerResource("l", 80, "r", "", 0), listenerResource("other", 81, "r", "", 0)
	for _, c := range []struct {
		name  string
		limit time.Duration // timeout of the first CDS response
		steps []step
	}{
		{"the response and its endpoints come", 15 * second, []step{
			{0, []testResource{routesResource("r", "text"), listener}, false, 0, 15 * second},
			{1 * second, []testResource{clusterResource("c", "e", "", 4*second)}, true, 0, 5 * second},
			{2 * second, []testResource{endpointsResource("e", 1)}, false, 1, 0},
			{3 * second, []testResource{clusterResource("later", "none", "", 4*second), other}, true, 2, 7 * second},
		}},
		{"nothing comes", 15 * second, []step{
			{0, []testResource{routesResource("r", "text"), listener}, false, 0, 15 * second},
			{15*second - 1, nil, false, 0, 15 * second},
			{15 * second, nil, false, 1, 0},
		}},
		{"nothing comes, and there is no limit", 0, []step{
			{0, []testResource{routesResource("r", "text"), listener}, false, 0, 0},
			{time.Hour, nil, false, 0, 0},
			{time.Hour, nil, true, 1, 0},
		}},
		{"there are no clusters", 15 * second, []step{
			{0, []testResource{routesResource("r", "text"), listener}, true, 1, 0},
		}},
		{"the endpoints of one do not come", 15 * second, []step{
			{0, []testResource{routesResource("r", "text"), listener, clusterResource("c", "e", "", 4*second), clusterResource("slow", "none", "", 6*second), endpointsResource("e", 1)}, true, 0, 6 * second},
			{6 * second, nil, false, 1, 0},
		}},
		{"endpoints do not come, and there is no limit", 15 * second, []step{
			{0, []testResource{routesResource("r", "text"), listener, clusterResource("c", "none", "", 0)}, true, 0, 0},
			{time.Hour, nil, false, 0, 0},
			{time.Hour, []testResource{{resource.ClusterType, "c", nil}}, true, 1, 0},
		}},
		{"a secret does not come", 15 * second, []step{
			{0, []testResource{routesResource("r", "text"), listener}, false, 0, 15 * second},
			{second, []testResource{clusterResource("c", "none", "no secret", 4*second)}, true, 0, 5 * second},
			{5 * second, nil, false, 0, 15 * second}, // the timeout of the CDS response, which the listener still has
			{15 * second, nil, false, 0, 16 * second},
			{16 * second, nil, false, 1, 0},
		}},
		{"a cluster waits longer than the response, which does not come", second, []step{
			{0, []testResource{routesResource("r", "text"), listener, clusterResource("static", "e", "", 4*second)}, false, 0, second},
			{second, nil, false, 0, 4 * second},
			{2 * second, []testResource{endpointsResource("e", 1)}, false, 1, 0},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin, w := time.Now(), newState()
			w.startWarmup(true, c.limit, begin)
			for _, s := range c.steps {
				now := begin.Add(s.at)
				for _, r := range s.hear {
					applyResource(t, w, r, now)
				}
				if s.cds {
					w.noteCDSResponse()
				}
				_, next := w.reconcile(now)
				if got := len(w.snapshot(&config.Snapshot{}).Listeners); got != s.active {
					t.Errorf("after %v %d listeners are active, want %d", s.at, got, s.active)
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
	w.startWarmup(true, time.Minute, now)
	w.staticNames.listeners = map[string]bool{"static": true}
	for _, r := range []testResource{routesResource("r", "text"), listenerResource("static", 80, "r", "", 0), listenerResource("l", 81, "r", "", 0)} {
		applyResource(t, w, r, now)
	}
	w.reconcile(now)
	var names []string
	for _, l := range w.snapshot(&config.Snapshot{}).Listeners {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"static"}) {
		t.Errorf("%v are active, want the static one", names)
	}
	all := w.warming()
	if len(all) != 1 || !slices.Equal(all[0].Missing, []string{"clusters of the first response"}) || !all[0].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("waiting() = %+v, want l for a minute", all)
	}
}

// TestListenerActivatesWithItsCluster verifies that a listener that the control plane sends before
// any cluster becomes active when the cluster has its endpoints.
func TestListenerActivatesWithItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		c := r.runAndAccept()
		c.sendAccepted(listenerResource("l", 80, "r", "", 0))
		c.sendAccepted(routesResource("r", "text"))
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("before any cluster %v are active, ready %t", got, r.source.Ready())
		}
		c.sendAccepted(clusterResource("c", "e", "", 0))
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("before the endpoints %v are active, ready %t", got, r.source.Ready())
		}
		c.sendAccepted(endpointsResource("e", 1))
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) || !r.source.Ready() {
			t.Errorf("with the endpoints %v are active, ready %t, want l, true", got, r.source.Ready())
		}
	})
}
