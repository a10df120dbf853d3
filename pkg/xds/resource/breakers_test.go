package resource

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestCircuitBreakerThresholds verifies that an unset threshold has Envoy's default, that 0 allows
// nothing, and that the largest number means no limit.
func TestCircuitBreakerThresholds(t *testing.T) {
	defaults := config.DefaultCircuitBreakers()
	if defaults != (config.CircuitBreakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3}) {
		t.Errorf("the defaults are %+v, want 1024 connections, pending requests and requests, and 3 retries", defaults)
	}
	number := wrapperspb.UInt32
	for name, test := range map[string]struct {
		thresholds *clusterv3.CircuitBreakers_Thresholds
		want       config.CircuitBreakers
	}{
		"default":       {nil, defaults},
		"empty message": {&clusterv3.CircuitBreakers_Thresholds{}, defaults},
		"0":             {&clusterv3.CircuitBreakers_Thresholds{MaxConnections: number(0), MaxRetries: number(0)}, config.CircuitBreakers{MaxConnections: config.LimitNoneAllowed, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: config.LimitNoneAllowed}},
		"maximum":       {&clusterv3.CircuitBreakers_Thresholds{MaxRequests: number(1<<32 - 1)}, config.CircuitBreakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRetries: 3}},
		"other number":  {&clusterv3.CircuitBreakers_Thresholds{MaxPendingRequests: number(7)}, config.CircuitBreakers{MaxConnections: 1024, MaxPendingRequests: 7, MaxRequests: 1024, MaxRetries: 3}},
	} {
		m := &clusterv3.Cluster{Name: "c"}
		if test.thresholds != nil {
			m.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{test.thresholds}}
		}
		c, err := ReadCluster(marshaled(t, m), Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.CircuitBreakers != test.want || c.Config.HighCircuitBreakers != defaults {
			t.Errorf("thresholds %s: CircuitBreakers = %+v, HighCircuitBreakers = %+v; want %+v and the defaults", name, c.Config.CircuitBreakers, c.Config.HighCircuitBreakers, test.want)
		}
	}
}
