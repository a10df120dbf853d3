package main

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/inspect"
)

// TestPilotAgentReadiness verifies the values that the readiness probe of Istio's agent
// reads.
func TestPilotAgentReadiness(t *testing.T) {
	a := adminClient{address: startWeft(t, exampleConfig)}
	var got inspect.Stats
	if err := a.get(t.Context(), "/stats", url.Values{
		"usedonly": {""}, "format": {"json"},
		"filter": {`^(cluster_manager\.cds\.(update_success|update_rejected)|listener_manager\.workers_started|server\.state|cluster\.app\.membership_.*)$`},
	}, &got); err != nil {
		t.Fatal(err)
	}
	want := []inspect.Stat{
		{Name: "cluster.app.membership_healthy", Value: 1}, {Name: "cluster.app.membership_total", Value: 1},
		{Name: "listener_manager.workers_started", Value: 1}, {Name: "server.state"},
	}
	if diff := cmp.Diff(want, got.Stats); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
