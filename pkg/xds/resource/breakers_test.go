package resource

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestLimitsOfClusters: what is not said is Envoy's default, 0 allows nothing, and the
// largest number is no limit.
func TestLimitsOfClusters(t *testing.T) {
	usual := config.DefaultBreakers()
	if usual != (config.Breakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3}) {
		t.Errorf("the defaults are %+v", usual)
	}
	number := wrapperspb.UInt32
	for name, test := range map[string]struct {
		said *clusterv3.CircuitBreakers_Thresholds
		want config.Breakers
	}{
		"nothing is said": {nil, usual},
		"an empty one":    {&clusterv3.CircuitBreakers_Thresholds{}, usual},
		"0":               {&clusterv3.CircuitBreakers_Thresholds{MaxConnections: number(0), MaxRetries: number(0)}, config.Breakers{MaxConnections: config.Nothing, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: config.Nothing}},
		"the largest":     {&clusterv3.CircuitBreakers_Thresholds{MaxRequests: number(1<<32 - 1)}, config.Breakers{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRetries: 3}},
		"a number":        {&clusterv3.CircuitBreakers_Thresholds{MaxPendingRequests: number(7)}, config.Breakers{MaxConnections: 1024, MaxPendingRequests: 7, MaxRequests: 1024, MaxRetries: 3}},
	} {
		m := &clusterv3.Cluster{Name: "c"}
		if test.said != nil {
			m.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{test.said}}
		}
		c, err := ReadCluster(marshaled(t, m), Kinds{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.Breakers != test.want || c.Config.HighBreakers != usual {
			t.Errorf("%s: %+v and %+v, want %+v and the defaults", name, c.Config.Breakers, c.Config.HighBreakers, test.want)
		}
	}
}
