package e2e

// healthOfApplications: the application answers, and is spared the next questions. It
// answers "/health/503" so at first, and well from then on.
func (p *pair) healthOfApplications() feature {
	return feature{
		name:     "healthcheck-passthrough",
		filters:  list{filterOf("healthcheck", object{"endpoint": "/health/503", "passthrough": true, "cache_time": "1h"})},
		routes:   []object{to("/", "moody-health")},
		all:      true,
		clusters: list{cluster("moody-health", nil, p.moody)},
		trials: []trial{
			{name: "the first", path: "/health/503", status: 503},
			{name: "the next", path: "/health/503?again", status: 503, want: map[string]string{"X-App": ""}},
			{name: "by HEAD", method: "HEAD", path: "/health/503", status: 503, want: map[string]string{"X-App": ""}},
			{name: "what does not ask for health", method: "POST", path: "/health/503", content: "kept", status: 200, body: "kept", want: map[string]string{"X-App": "app"}},
		},
	}
}

// healthOfClusters: as they are, and one that is not there is not well.
func (p *pair) healthOfClusters() feature {
	asks := object{"endpoint": "/healthz", "grpc": true}
	return feature{
		name: "healthcheck-clusters",
		filters: list{
			filterOf("healthcheck", asks.with(object{"cluster_min_healthy_percentages": object{"app": 50}, "endpoint": "/app"})),
			filterOf("healthcheck", asks.with(object{"cluster_min_healthy_percentages": object{"app": 50, "nobody": 50}, "grpc": false})),
		},
		trials: []trial{
			{name: "a cluster that is well", path: "/app", status: 200, body: "ok\n", want: map[string]string{"X-App": ""}},
			{name: "one that is not there", path: "/healthz", status: 503, body: "not healthy\n", want: map[string]string{"X-App": ""}},
			{name: "what does not ask for health", path: "/other", status: 200, code: "0", want: map[string]string{"X-App": "app"}},
		},
	}
}
