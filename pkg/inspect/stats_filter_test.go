package inspect

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestStatsFormat(t *testing.T) {
	newStats := func() []Stat {
		return []Stat{
			{Name: "server.state", IsGauge: true, Used: true},
			{Name: "cluster.a.upstream_rq_total", Value: 3, Used: true},
			{Name: "cluster.a.upstream_rq_5xx"},
		}
	}
	tests := []struct {
		name, query string
		status      int
		want        string
	}{
		{"all", "", 200, "cluster.a.upstream_rq_5xx: 0\ncluster.a.upstream_rq_total: 3\nserver.state: 0\n"},
		{"usedonly", "?usedonly", 200, "cluster.a.upstream_rq_total: 3\nserver.state: 0\n"},
		{"filter", `?filter=^server\.`, 200, "server.state: 0\n"},
		{"counters", "?type=Counters&usedonly", 200, "cluster.a.upstream_rq_total: 3\n"},
		{"gauges", "?type=Gauges", 200, "server.state: 0\n"},
		{"type without statistics", "?type=Histograms", 200, ""},
		{"invalid regular expression", "?filter=(", 400, "filter: "},
		{"unknown output format", "?format=xml", 400, "unknown format"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			serveStats(w, httptest.NewRequestWithContext(t.Context(), "GET", "/stats"+tt.query, nil).URL.Query(), newStats())
			if got := w.Body.String(); w.Code != tt.status || tt.status == 200 && got != tt.want || !strings.Contains(got, tt.want) {
				t.Errorf("%d %q, want %d %q", w.Code, got, tt.status, tt.want)
			}
		})
	}
	w := httptest.NewRecorder()
	serveStats(w, url.Values{"format": {"json"}, "filter": {"total"}}, newStats())
	want := `{"stats":[{"name":"cluster.a.upstream_rq_total","value":3}]}`
	if got := strings.Join(strings.Fields(w.Body.String()), ""); got != want {
		t.Errorf("as JSON: %s, want %s", got, want)
	}
}
