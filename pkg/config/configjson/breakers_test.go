package configjson

import (
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestLimitsOfClusters verifies that absent limits are Envoy's defaults, and that an explicit 0
// means no limit.
func TestLimitsOfClusters(t *testing.T) {
	usual := config.DefaultBreakers()
	budget := config.RetryBudget{Percent: 20, MinConcurrency: 3}
	for _, test := range []struct {
		text          string
		usual, higher config.Breakers
	}{
		{`[]`, usual, usual},
		{`[{}]`, usual, usual},
		{`[{"max_requests": 5}]`, config.Breakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 5, MaxRetries: 3}, usual},
		{`[{"priority": "HIGH", "max_connections": 2000}]`, usual, config.Breakers{MaxConnections: 2000, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3}},
		{`[{"max_connections": 0, "max_pending_requests": 0, "max_requests": 0, "max_retries": 0}]`, config.Breakers{}, usual},
		{`{"thresholds": [{"max_pending_requests": 0}]}`, config.Breakers{MaxConnections: 1024, MaxRequests: 1024, MaxRetries: 3}, usual},
		{`[{"retry_budget": {}}]`, config.Breakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, RetryBudget: budget}, usual},
		{`[{"retry_budget": {}, "max_retries": 3}]`, config.Breakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3, RetryBudget: budget}, usual},
	} {
		text := fmt.Sprintf(`{"servers": [{}], "cluster_manager": {"clusters": [{"name": "c", "hosts": [{"address": "127.0.0.1:1"}], "circuit_breakers": %s}]}}`, test.text)
		s, diags := Parse("limits.json", []byte(text), exampleKinds(), Options{})
		if s == nil {
			t.Fatal(diags)
		}
		if c := s.Clusters[0]; c.Breakers != test.usual || c.HighBreakers != test.higher {
			t.Errorf("%s: limits %+v and %+v, want %+v and %+v", test.text, c.Breakers, c.HighBreakers, test.usual, test.higher)
		}
	}
}
