package peermetadata

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// TestClientCannotForgePeerHeaders verifies that hosts do not receive peer headers from a
// client, whether or not the filter sends them its own.
func TestClientCannotForgePeerHeaders(t *testing.T) {
	const withoutNode = `{"upstream_propagation": true, "workload": {"name": "here-v1"}}`
	for _, test := range []struct {
		name, settings, target string
		forged                 []string
	}{
		{"outside the mesh", outbound, "PassthroughCluster", []string{workload.FieldID + ": forged", workload.FieldMetadata + ": forged"}},
		{"sidecar without a node", withoutNode, "", []string{workload.FieldID + ": forged"}},
		{"other spelling", outbound, "", []string{"X_Envoy_Peer_Metadata_Id: forged", "x_envoy_peer_metadata: forged"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := filter.Env{Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(metrics.Options{}), Cluster: func(string) *config.Cluster { return nil }}
			f, err := Factory().New(filtertest.Decode(t, Factory(), filtertest.Settings(test.settings)), env)
			if err != nil {
				t.Fatal(err)
			}
			x := newRequest(test.forged...)
			if test.target != "" {
				x.Record.TargetCluster = test.target
			}
			if err := x.Serve(t.Context(), f(echoService())); err != nil {
				t.Fatal(err)
			}
			for name, value := range x.Response.Header.All() {
				if strings.Contains(value, "forged") {
					t.Errorf("the host received %s: %s, want no forged value", name, value)
				}
			}
		})
	}
}
