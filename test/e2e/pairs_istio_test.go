package e2e

import "github.com/weft-proxy/weft/pkg/protocol/workload"

// peerMetadata verifies the exchange of metadata with a client that sends metadata.
func (p *protocolPair) peerMetadata() feature {
	client := workload.Workload{Name: "web", Namespace: "default"}
	local := workload.Workload{Name: "shop"}
	id, metadata := "X-Envoy-Peer-Metadata-Id", "X-Envoy-Peer-Metadata"
	return feature{
		name: "peer_metadata",
		filters: list{streamFilter("peer_metadata", object{
			"downstream_discovery": true, "downstream_propagation": true, "node": "here", "workload": object{"name": "shop"},
		})},
		cases: []requestCase{
			{name: "metadata of a sidecar", path: "/", fields: []string{id + ": there", metadata + ": " + client.Metadata()}, status: 200, code: "0",
				wantHeaders: map[string]string{"X-App": "app", "Got-" + id: "", "Got-" + metadata: "", id: "here", metadata: local.Metadata()}},
			{name: "client without metadata", path: "/", status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app", id: "", metadata: ""}},
		},
	}
}

// istioStats verifies that requests pass unchanged.
func (p *protocolPair) istioStats() feature {
	return feature{
		name:    "istio_stats",
		filters: list{streamFilter("istio_stats", object{"reporter": "destination"})},
		cases: []requestCase{
			{name: "request passes", method: "POST", path: "/shop/buy?a", requestBody: "kept", status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
		},
	}
}
