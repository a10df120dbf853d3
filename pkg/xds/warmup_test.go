package xds

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
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
		{"the response and its endpoints come", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 15 * second},
			{1 * second, []xdstest.Resource{xdstest.Cluster("c", "e", "", 4*second)}, true, 0, 5 * second},
			{2 * second, []xdstest.Resource{xdstest.Endpoints("e", 1)}, false, 1, 0},
			{3 * second, []xdstest.Resource{xdstest.Cluster("later", "none", "", 4*second), other}, true, 2, 7 * second},
		}},
		{"nothing comes", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 15 * second},
			{15*second - 1, nil, false, 0, 15 * second},
			{15 * second, nil, false, 1, 0},
		}},
		{"nothing comes, and there is no limit", 0, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 0},
			{time.Hour, nil, false, 0, 0},
			{time.Hour, nil, true, 1, 0},
		}},
		{"there are no clusters", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, true, 1, 0},
		}},
		{"the endpoints of one do not come", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener, xdstest.Cluster("c", "e", "", 4*second), xdstest.Cluster("slow", "none", "", 6*second), xdstest.Endpoints("e", 1)}, true, 0, 6 * second},
			{6 * second, nil, false, 1, 0},
		}},
		{"endpoints do not come, and there is no limit", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener, xdstest.Cluster("c", "none", "", 0)}, true, 0, 0},
			{time.Hour, nil, false, 0, 0},
			{time.Hour, []xdstest.Resource{{URL: resource.ClusterType, Name: "c", Body: nil}}, true, 1, 0},
		}},
		{"a secret does not come", 15 * second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener}, false, 0, 15 * second},
			{second, []xdstest.Resource{xdstest.Cluster("c", "none", "no secret", 4*second)}, true, 0, 5 * second},
			{5 * second, nil, false, 0, 15 * second}, // the timeout of the CDS response, which the listener still has
			{15 * second, nil, false, 0, 16 * second},
			{16 * second, nil, false, 1, 0},
		}},
		{"a cluster waits longer than the response, which does not come", second, []step{
			{0, []xdstest.Resource{xdstest.Routes("r", "text"), listener, xdstest.Cluster("static", "e", "", 4*second)}, false, 0, second},
			{second, nil, false, 0, 4 * second},
			{2 * second, []xdstest.Resource{xdstest.Endpoints("e", 1)}, false, 1, 0},
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
	for _, r := range []xdstest.Resource{xdstest.Routes("r", "text"), xdstest.Listener("static", 80, "r", "", 0), xdstest.Listener("l", 81, "r", "", 0)} {
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
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		c.sendAccepted(xdstest.Routes("r", "text"))
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("before any cluster %v are active, ready %t", got, r.source.Ready())
		}
		c.sendAccepted(xdstest.Cluster("c", "e", "", 0))
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("before the endpoints %v are active, ready %t", got, r.source.Ready())
		}
		c.sendAccepted(xdstest.Endpoints("e", 1))
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) || !r.source.Ready() {
			t.Errorf("with the endpoints %v are active, ready %t, want l, true", got, r.source.Ready())
		}
	})
}

// TestWarmupEndsWithoutUsableEndpoints verifies that the warm-up does not wait for endpoints that
// the control plane has answered for: it sent them in a form that is rejected, or said that they
// do not exist.
func TestWarmupEndsWithoutUsableEndpoints(t *testing.T) {
	for name, answer := range map[string]ads.Response{
		"rejected": {Resources: []ads.Resource{{Name: "e", Version: "1", Body: []byte{0xff}}}},
		"removed":  {Removed: []string{"e"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, active := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			respondWith(t, s, xdstest.Cluster("c", "e", "", 0), xdstest.Listener("l", 80, "r", "", 0), xdstest.Routes("r", "text"))
			if len(active.Listeners) != 0 || s.Ready() {
				t.Fatal("the listener does not wait for the endpoints")
			}
			answer.Type, answer.Version, answer.Nonce = resource.EndpointType, "1", "n"
			s.handleEvent(t.Context(), event{channel: s.channels[0], response: &answer})
			if len(active.Listeners) != 1 || !s.Ready() {
				t.Errorf("%d listeners are active, ready %t, want 1, true", len(active.Listeners), s.Ready())
			}
		})
	}
}

// staticCluster is a cluster whose hosts are in its configuration.
func staticCluster(name string) xdstest.Resource {
	return xdstest.Resource{URL: resource.ClusterType, Name: name, Body: xdstest.Marshal(&clusterv3.Cluster{
		Name: name, LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name},
	})}
}

// withoutClusters returns an applyErr function that rejects clusters with the prefix.
func withoutClusters(prefix string) func(*config.Snapshot) error {
	return func(next *config.Snapshot) error {
		for _, c := range next.Clusters {
			if strings.HasPrefix(c.Name, prefix) {
				return errors.New("cannot apply cluster " + c.Name)
			}
		}
		return nil
	}
}

// TestPartsOfAnUpdateDoNotEndTheWarmup verifies that listeners wait for all clusters of a response
// whose clusters are applied separately because one of them cannot be applied.
func TestPartsOfAnUpdateDoNotEndTheWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = withoutClusters("bad")
		c := r.runAndAccept()
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		c.sendAccepted(xdstest.Routes("r", "text"))
		var all []*anypb.Any
		for _, one := range []xdstest.Resource{staticCluster("a"), staticCluster("bad"), xdstest.Cluster("c", "e", "", 0), xdstest.Cluster("d", "f", "", 0)} {
			all = append(all, &anypb.Any{TypeUrl: one.URL, Value: one.Body})
		}
		if got := c.send(resource.ClusterType, all...).GetErrorDetail().GetMessage(); !strings.HasPrefix(got, "bad: ") {
			t.Errorf("rejected with %q, want bad", got)
		}
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("before the endpoints %v are active, ready %t", got, r.source.Ready())
		}
		c.sendAccepted(xdstest.Endpoints("e", 1), xdstest.Endpoints("f", 1))
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) || !r.source.Ready() {
			t.Errorf("with the endpoints %v are active, ready %t, want l, true", got, r.source.Ready())
		}
	})
}

// TestClustersThatCannotBeAppliedDoNotKeepTheWarmup verifies that the warm-up waits once for
// clusters that cannot be applied when their waits for endpoints time out.
func TestClustersThatCannotBeAppliedDoNotKeepTheWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = withoutClusters("bad")
		c := r.runAndAccept()
		c.sendAccepted(xdstest.Cluster("bad1", "e", "", 15*time.Second))
		time.Sleep(time.Second)
		c.sendAccepted(xdstest.Cluster("bad1", "e", "", 15*time.Second), xdstest.Cluster("bad2", "f", "", 15*time.Second))
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		c.sendAccepted(xdstest.Routes("r", "text"))
		time.Sleep(time.Minute)
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) || !r.source.Ready() {
			t.Errorf("after a minute %v are active, ready %t, want l, true", got, r.source.Ready())
		}
	})
}

// TestRejectedFileDoesNotEndTheWarmup verifies that the rollback of a file restores the warm-up that
// the file would have ended.
func TestRejectedFileDoesNotEndTheWarmup(t *testing.T) {
	now, w := time.Now(), newState()
	w.startWarmup(false, 0, now)
	for _, r := range []xdstest.Resource{xdstest.Cluster("static", "e", "", 0), xdstest.Listener("l", 80, "r", "", 0), xdstest.Routes("r", "text")} {
		applyResource(t, w, r, now)
	}
	w.reconcile(now)
	w.checkpoint()
	w.removeCluster("static")
	if c, _ := w.reconcile(now); len(c.activatedListeners) != 1 {
		t.Fatal("without the cluster the listener waits")
	}
	w.rollback()
	if c, _ := w.reconcile(now); len(c.activatedListeners) != 0 || w.warmup == nil {
		t.Errorf("after the rollback %v are activated, and the warm-up is %+v", c.activatedListeners, w.warmup)
	}
	applyResource(t, w, xdstest.Endpoints("e", 1), now)
	if c, _ := w.reconcile(now); len(c.activatedListeners) != 1 {
		t.Error("with its endpoints the listener is not activated")
	}
}
