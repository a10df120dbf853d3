//go:build !noxds

package main

import (
	"net/url"
	"testing"

	"github.com/weft-proxy/weft/pkg/inspect"
)

// TestStaticClustersAreNotAddedViaAPI verifies that /clusters, as in Envoy, does not show the
// clusters of static_resources as added via the API.
func TestStaticClustersAreNotAddedViaAPI(t *testing.T) {
	a := adminClient{address: startWeft(t, `{
		"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}},
		"static_resources": {"clusters": [{"name": "app", "type": "STATIC", "load_assignment": {"cluster_name": "app", "endpoints": [
			{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}}]}}`)}
	var got inspect.EnvoyClusters
	if err := a.get(t.Context(), "/clusters", url.Values{"format": {"json"}}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Clusters) != 1 || got.Clusters[0].Name != "app" || got.Clusters[0].Added {
		t.Errorf("/clusters shows %+v, want app, which no control plane added", got.Clusters)
	}
}
