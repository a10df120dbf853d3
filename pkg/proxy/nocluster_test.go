package proxy

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestClusterNotFoundStatus verifies the response if the cluster is unknown or the cluster variable
// has no value.
func TestClusterNotFoundStatus(t *testing.T) {
	for _, test := range []struct{ status, want int }{{0, 404}, {503, 503}, {404, 404}, {500, 500}} {
		s := setup{routes: `{"match": {"prefix": "/"}, "route": {"cluster_variable": "request_header_x-c", "retry_policy": {"retry_on": true, "num_retries": 3}}}`}
		c := s.snapshot(t)
		c.Routes[0].VirtualHosts[0].Routes[0].Forward.ClusterNotFoundStatus = test.status
		r := newRig(t)
		r.apply(c)
		for _, headers := range [][]string{nil, {"x-c: nope"}} {
			if got := roundTrip(t, r.address("front"), get("/", append(headers, "")...)); got.StatusCode != test.want || got.body != protocol.NoCluster.Text()+"\n" {
				t.Errorf("ClusterNotFoundStatus %d, headers %q: %d %q, want %d", test.status, headers, got.StatusCode, got.body, test.want)
			}
		}
	}
}
