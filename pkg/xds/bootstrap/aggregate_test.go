package bootstrap

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestUnknownMemberOfAggregateCluster verifies that an unknown member of an aggregate cluster is a
// warning: Envoy accepts it.
func TestUnknownMemberOfAggregateCluster(t *testing.T) {
	s, err := ReadStatic([]byte(`{"clusters": [
		{"name": "web", "type": "STATIC"},
		{"name": "all", "lb_policy": "CLUSTER_PROVIDED", "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["web", "wep"]}}}]}`), resource.Capabilities{})
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := s.CheckClusters(&config.Snapshot{})
	if err != nil || len(warnings) != 1 || warnings[0].Reason != `unknown cluster "wep"; did you mean "web"?` {
		t.Errorf("CheckClusters = %v, %v, want one warning about wep", warnings, err)
	}
}
