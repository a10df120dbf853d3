package inspect

import (
	"bytes"
	"os"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
)

func TestEnvoyStatNamesReferToMetrics(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md") // another test verifies that the page is complete
	if err != nil {
		t.Fatal(err)
	}
	for name := range envoyStatNames() {
		if !bytes.Contains(page, []byte("| `"+name+"` |")) {
			t.Errorf("metric %s does not exist", name)
		}
	}
}

func TestStatsAreSummed(t *testing.T) {
	s, patterns := statSet{}, envoyStatNames()
	for _, m := range []metrics.Sample{
		{Name: "weft_cluster_requests_total", Labels: map[string]string{"cluster": "outbound|80||a:b", "protocol": "none", "status_class": "2xx"}, Value: 2},
		{Name: "weft_cluster_requests_total", Labels: map[string]string{"cluster": "outbound|80||a:b", "protocol": "dubbo", "status_class": "none"}, Value: 1},
		{Name: "weft_listener_connections_active", Labels: map[string]string{"listener": "in"}, Value: 4},
		{Name: "weft_xds_connected", Labels: map[string]string{"control_plane": "xds"}, Value: 1},
	} {
		s.addSample(m, patterns[m.Name])
	}
	for _, result := range []string{metrics.ResultAccepted, metrics.ResultNotAccepted} {
		s.addUpdates(metrics.Sample{Labels: map[string]string{"type": "cluster", "result": result}, Value: 3})
	}
	for i, limit := range []string{"connections", "pending_requests", "requests", "retries", "retry_budget"} {
		s.addOverflow(metrics.Sample{Labels: map[string]string{"cluster": "a", "limit": limit}, Value: float64(1 + i)})
	}
	for name, want := range map[string]uint64{
		"cluster.outbound|80||a_b.upstream_rq_total": 3,
		"cluster.outbound|80||a_b.upstream_rq_2xx":   2,
		"listener.in.downstream_cx_active":           4,
		"http.in.downstream_cx_active":               4,
		"control_plane.connected_state":              1,
		"cluster_manager.cds.update_attempt":         6,
		"cluster_manager.cds.update_success":         3,
		"cluster_manager.cds.update_rejected":        3,
		"cluster.a.upstream_cx_overflow":             1,
		"cluster.a.upstream_rq_pending_overflow":     2 + 3, // Envoy counts both limits
		"cluster.a.upstream_rq_retry_overflow":       4 + 5, // likewise
	} {
		if s[name] == nil || s[name].Value != want {
			t.Errorf("%s is %+v, want %d", name, s[name], want)
		}
	}
}
