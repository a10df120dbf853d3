package e2e

// healthOfUpstreams verifies that Weft caches the health response of an upstream. The upstream
// responds to its first request of /health/503 with 503, and to later ones with 200.
func (p *protocolPair) healthOfUpstreams() feature {
	return feature{
		name:     "healthcheck-passthrough",
		filters:  list{streamFilter("healthcheck", object{"endpoint": "/health/503", "passthrough": true, "cache_time": "1h"})},
		routes:   []object{routeTo("/", "flaky-health")},
		matchAll: true,
		clusters: list{cluster("flaky-health", nil, p.flaky)},
		cases: []requestCase{
			{name: "first request", path: "/health/503", status: 503},
			{name: "cached response", path: "/health/503?again", status: 503, wantHeaders: map[string]string{"X-App": ""}},
			{name: "HEAD", method: "HEAD", path: "/health/503", status: 503, wantHeaders: map[string]string{"X-App": ""}},
			{name: "other method", method: "POST", path: "/health/503", requestBody: "kept", status: 200, body: "kept", wantHeaders: map[string]string{"X-App": "app"}},
		},
	}
}

// healthOfClusters verifies responses from the health of clusters. A cluster that does not exist is
// unhealthy.
func (p *protocolPair) healthOfClusters() feature {
	config := object{"endpoint": "/healthz", "grpc": true}
	return feature{
		name: "healthcheck-clusters",
		filters: list{
			streamFilter("healthcheck", config.with(object{"cluster_min_healthy_percentages": object{"app": 50}, "endpoint": "/app"})),
			streamFilter("healthcheck", config.with(object{"cluster_min_healthy_percentages": object{"app": 50, "missing": 50}, "grpc": false})),
		},
		cases: []requestCase{
			{name: "healthy cluster", path: "/app", status: 200, body: "ok\n", wantHeaders: map[string]string{"X-App": ""}},
			{name: "missing cluster", path: "/healthz", status: 503, body: "not healthy\n", wantHeaders: map[string]string{"X-App": ""}},
			{name: "other path", path: "/other", status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
		},
	}
}
