package proxy

import (
	"fmt"
	"slices"
	"testing"
)

// TestRetriesGoToOtherHosts verifies that retries use every host of a cluster once before any host
// again. All hosts respond with 503.
func TestRetriesGoToOtherHosts(t *testing.T) {
	const hosts = 4
	attempts := make(chan string, 100)
	var addresses []string
	for i := range hosts {
		name := fmt.Sprint(i)
		addresses = append(addresses, origin(t, failingHandler(name, attempts)))
	}
	retryRoute := func(n int) string {
		return fmt.Sprintf(`{"match": {"prefix": "/%d"}, "route": {"cluster_name": "app", "retry_policy": {"retry_on": true, "num_retries": %d, "retry_back_off": {"base_interval": "0s"}}}}`, n, n)
	}
	r, address := setup{routes: retryRoute(3) + "," + retryRoute(5), clusters: cluster("app", addresses...)}.run(t)
	for _, n := range []int{3, 5} {
		for range 5 {
			if got := roundTrip(t, address, get(fmt.Sprintf("/%d", n))); got.StatusCode != 503 {
				t.Fatalf("status %d, want 503", got.StatusCode)
			}
			var order []string
			for range n + 1 {
				order = append(order, <-attempts)
			}
			first := slices.Clone(order[:hosts])
			slices.Sort(first)
			if len(slices.Compact(first)) != hosts {
				t.Errorf("%d retries: attempts went to hosts %v; want each host once before any host again", n, order)
			}
		}
	}
	r.await(5*3+5*5, "weft_cluster_retries_total")
}

// TestMaxRetriesLimitsCluster verifies that max_retries of the circuit breaker limits concurrent
// retries only, so consecutive requests may each retry.
func TestMaxRetriesLimitsCluster(t *testing.T) {
	attempts := make(chan string, 100)
	r, address := setup{
		routes: `{"match": {"prefix": "/"}, "route": {"cluster_name": "app", "retry_policy": {"retry_on": true, "num_retries": 2}}}`,
		clusters: `{"name": "app", "hosts": [{"address": "` + origin(t, failingHandler("a", attempts)) + `"}],
			"circuit_breakers": [{"max_retries": 1}]}`,
	}.run(t)
	for range 3 {
		roundTrip(t, address, get("/"))
	}
	if got := len(attempts); got != 9 {
		t.Errorf("the host received %d attempts, want 9", got)
	}
	if got := r.server.Clusters().Describe()[0].Retries; got != 0 {
		t.Errorf("%d retries are in flight, want 0", got)
	}
}
