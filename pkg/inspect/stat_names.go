package inspect

import (
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
)

// statName is a name pattern of Envoy's statistics, such as "listener.NAME.downstream_cx_total".
type statName struct {
	prefix     string // "listener."
	label      string // label whose value is NAME
	name       string // ".downstream_cx_total"; a "*" stands for the value of classLabel
	classLabel string // "": name has no "*"
	isGauge    bool
}

// envoyStatNames returns the name patterns for each metric of Weft. A metric may have several
// patterns. Metrics with the same pattern are added up.
func envoyStatNames() map[string][]statName {
	listener := func(name string, isGauge bool) statName {
		return statName{prefix: "listener.", label: metrics.LabelListener, name: "." + name, isGauge: isGauge}
	}
	http := func(name string, isGauge bool) statName {
		return statName{prefix: "http.", label: metrics.LabelListener, name: "." + name, isGauge: isGauge}
	}
	cluster := func(name string, isGauge bool) statName {
		return statName{prefix: "cluster.", label: metrics.LabelCluster, name: "." + name, isGauge: isGauge}
	}
	withClass := func(p statName, label string) statName {
		p.classLabel = label
		return p
	}
	return map[string][]statName{
		"weft_listener_connections_accepted_total": {listener("downstream_cx_total", false), http("downstream_cx_total", false)},
		"weft_listener_connections_active":         {listener("downstream_cx_active", true), http("downstream_cx_active", true)},
		"weft_listener_connections_closed_total":   {listener("downstream_cx_destroy", false), http("downstream_cx_destroy", false)},
		"weft_listener_connections_refused_total":  {listener("downstream_cx_overflow", false)},
		"weft_listener_requests_active":            {http("downstream_rq_active", true)},
		"weft_listener_requests_total": {
			http("downstream_rq_total", false), http("downstream_rq_completed", false),
			withClass(http("downstream_rq_*", false), metrics.LabelStatusClass),
		},
		"weft_cluster_requests_total": {
			cluster("upstream_rq_total", false), cluster("upstream_rq_completed", false),
			withClass(cluster("upstream_rq_*", false), metrics.LabelStatusClass),
		},
		"weft_cluster_requests_active":                {cluster("upstream_rq_active", true)},
		"weft_cluster_connections_opened_total":       {cluster("upstream_cx_total", false)},
		"weft_cluster_connections_closed_total":       {cluster("upstream_cx_destroy", false)},
		"weft_cluster_connections_max_requests_total": {cluster("upstream_cx_max_requests", false)},
		"weft_cluster_connections_active":             {cluster("upstream_cx_active", true)},
		"weft_cluster_connect_failures_total":         {cluster("upstream_cx_connect_fail", false)},
		"weft_cluster_retries_total":                  {cluster("upstream_rq_retry", false)},
		"weft_cluster_health_check_failures_total":    {cluster("health_check.failure", false)},
		"weft_cluster_ejections_total":                {cluster("outlier_detection.ejections_enforced_total", false)},
		"weft_cluster_ejections_overflow_total":       {cluster("outlier_detection.ejections_overflow", false)},
		"weft_xds_connected":                          {{prefix: "control_plane.connected_state", isGauge: true}},
	}
}

// escapeStatName returns the name of a listener or cluster as Envoy's statistics spell it.
func escapeStatName(name string) string { return strings.ReplaceAll(name, ":", "_") }
