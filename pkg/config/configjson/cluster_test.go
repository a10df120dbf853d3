package configjson

import (
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestClusterCircuitBreakers verifies that absent limits are Envoy's defaults, and that an explicit
// 0 means no limit.
func TestClusterCircuitBreakers(t *testing.T) {
	defaults := config.DefaultCircuitBreakers()
	budget := config.RetryBudget{Percent: 20, MinConcurrency: 3}
	for _, test := range []struct {
		text             string
		defaults, higher config.CircuitBreakers
	}{
		{`[]`, defaults, defaults},
		{`[{}]`, defaults, defaults},
		{`[{"max_requests": 5}]`, config.CircuitBreakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 5, MaxRetries: 3}, defaults},
		{`[{"priority": "HIGH", "max_connections": 2000}]`, defaults, config.CircuitBreakers{MaxConnections: 2000, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3}},
		{`[{"max_connections": 0, "max_pending_requests": 0, "max_requests": 0, "max_retries": 0}]`, config.CircuitBreakers{}, defaults},
		{`{"thresholds": [{"max_pending_requests": 0}]}`, config.CircuitBreakers{MaxConnections: 1024, MaxRequests: 1024, MaxRetries: 3}, defaults},
		{`[{"retry_budget": {}}]`, config.CircuitBreakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, RetryBudget: budget}, defaults},
		{`[{"retry_budget": {}, "max_retries": 3}]`, config.CircuitBreakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3, RetryBudget: budget}, defaults},
	} {
		text := fmt.Sprintf(`{"servers": [{}], "cluster_manager": {"clusters": [{"name": "c", "hosts": [{"address": "127.0.0.1:1"}], "circuit_breakers": %s}]}}`, test.text)
		s, diags := Parse("limits.json", []byte(text), exampleCapabilities(), Options{})
		if s == nil {
			t.Fatal(diags)
		}
		if c := s.Clusters[0]; c.CircuitBreakers != test.defaults || c.HighCircuitBreakers != test.higher {
			t.Errorf("%s: limits %+v and %+v, want %+v and %+v", test.text, c.CircuitBreakers, c.HighCircuitBreakers, test.defaults, test.higher)
		}
	}
}
