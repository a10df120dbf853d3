package inspect

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
)

// TestResetCounters verifies that counters start at zero again, and that gauges keep their values.
func TestResetCounters(t *testing.T) {
	requests := 2.0
	s := newProcess().sources()
	s.Samples = func() iter.Seq[metrics.Sample] {
		return slices.Values([]metrics.Sample{
			{Name: "weft_cluster_requests_total", Labels: map[string]string{"cluster": "shop", "status_class": "2xx"}, Value: requests},
			{Name: "weft_listener_connections_active", Labels: map[string]string{"listener": "in"}, Value: 4},
		})
	}
	h := newHandler(s)
	check := func(when, want string) {
		t.Helper()
		const filter = "/stats?usedonly&filter=upstream_rq_total|listener.in.downstream_cx_active"
		if got := request(h, "GET", filter).Body.String(); got != want+"listener.in.downstream_cx_active: 4\n" {
			t.Errorf("%s:\n%s", when, got)
		}
	}
	reset := func() {
		t.Helper()
		if w := request(h, "POST", "/reset_counters"); w.Code != 200 || w.Body.String() != "OK\n" {
			t.Errorf("status %d, body %q, want 200 and OK", w.Code, w.Body)
		}
	}
	check("before", "cluster.shop.upstream_rq_total: 2\n")
	reset()
	check("after the reset; as in Envoy, the counter stays used", "cluster.shop.upstream_rq_total: 0\n")
	requests = 5
	check("after three requests", "cluster.shop.upstream_rq_total: 3\n")
	reset()
	check("after a second reset", "cluster.shop.upstream_rq_total: 0\n")
	requests = 1
	check("after the cluster was added again", "cluster.shop.upstream_rq_total: 1\n")
	requests = 6
	check("the baseline is gone", "cluster.shop.upstream_rq_total: 6\n")
	if w := request(h, "GET", "/reset_counters"); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: status %d, Allow %q, want 405 and POST", w.Code, w.Header().Get("Allow"))
	}
	if got := request(h, "GET", "/stats/prometheus").Body.String(); !strings.Contains(got, "weft_draining 0") {
		t.Errorf("/stats/prometheus: %s", got)
	}
}
