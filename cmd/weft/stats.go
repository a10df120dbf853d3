package main

import (
	"runtime"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Weft's metrics under Envoy's names (see "Statistics" in the Envoy documentation), for tools that
// need these names, such as the readiness probe of Istio's agent.

// statName is a name pattern of Envoy's statistics, such as "listener.NAME.downstream_cx_total".
type statName struct {
	prefix     string // "listener."
	label      string // label whose value is NAME
	name       string // ".downstream_cx_total"; a "*" stands for the value of the label by
	classLabel string // "": name has no "*"
	gauge      bool
}

// envoyStatNames returns the patterns for each metric of Weft. A metric may have several patterns. Metrics
// with the same pattern are added up.
func envoyStatNames() map[string][]statName {
	listener := func(name string, gauge bool) statName {
		return statName{prefix: "listener.", label: metrics.LabelListener, name: "." + name, gauge: gauge}
	}
	http := func(name string, gauge bool) statName {
		return statName{prefix: "http.", label: metrics.LabelListener, name: "." + name, gauge: gauge}
	}
	cluster := func(name string, gauge bool) statName {
		return statName{prefix: "cluster.", label: metrics.LabelCluster, name: "." + name, gauge: gauge}
	}
	by := func(p statName, label string) statName {
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
			by(http("downstream_rq_*", false), metrics.LabelStatusClass),
		},
		"weft_cluster_requests_total": {
			cluster("upstream_rq_total", false), cluster("upstream_rq_completed", false),
			by(cluster("upstream_rq_*", false), metrics.LabelStatusClass),
		},
		"weft_cluster_requests_active":             {cluster("upstream_rq_active", true)},
		"weft_cluster_connections_opened_total":    {cluster("upstream_cx_total", false)},
		"weft_cluster_connections_closed_total":    {cluster("upstream_cx_destroy", false)},
		"weft_cluster_connections_spent_total":     {cluster("upstream_cx_max_requests", false)},
		"weft_cluster_connections_active":          {cluster("upstream_cx_active", true)},
		"weft_cluster_connect_failures_total":      {cluster("upstream_cx_connect_fail", false)},
		"weft_cluster_retries_total":               {cluster("upstream_rq_retry", false)},
		"weft_cluster_health_check_failures_total": {cluster("health_check.failure", false)},
		"weft_cluster_ejections_total":             {cluster("outlier_detection.ejections_enforced_total", false)},
		"weft_cluster_ejections_overflow_total":    {cluster("outlier_detection.ejections_overflow", false)},
		"weft_xds_connected":                       {{prefix: "control_plane.connected_state", gauge: true}},
	}
}

// stats maps the names of metrics to their values.
type stats map[string]*admin.Stat

func (s stats) add(name string, value float64, gauge bool) {
	one := s[name]
	if one == nil {
		one = &admin.Stat{Name: name, Gauge: gauge, Used: gauge}
		s[name] = one
	}
	one.Value += uint64(max(value, 0))
	one.Used = one.Used || value > 0
}

// addSample adds the value of a sample under each pattern.
func (s stats) addSample(m metrics.Sample, all []statName) {
	for _, p := range all {
		name := p.prefix
		if p.label != "" {
			name += escapeStatName(m.Labels[p.label]) + p.name
		}
		if p.classLabel != "" {
			class := m.Labels[p.classLabel]
			if len(class) != len("2xx") {
				continue // no response, or a status outside 1xx to 5xx
			}
			name = strings.Replace(name, "*", class, 1)
		}
		s.add(name, m.Value, p.gauge)
	}
}

// addUpdates adds the number of cluster and listener updates from the control plane.
func (s stats) addUpdates(m metrics.Sample) {
	prefix, ok := map[string]string{"cluster": "cluster_manager.cds.", "listener": "listener_manager.lds."}[m.Labels[metrics.LabelType]]
	if !ok {
		return
	}
	accepted, refused := m.Value, 0.0
	if m.Labels[metrics.LabelResult] == metrics.ResultRefused {
		accepted, refused = 0, m.Value
	}
	s.add(prefix+"update_attempt", m.Value, false)
	s.add(prefix+"update_success", accepted, false)
	s.add(prefix+"update_rejected", refused, false)
}

// addOverflow adds how often a circuit breaker limit was reached.
func (s stats) addOverflow(m metrics.Sample) {
	name, ok := map[string]string{
		metrics.LimitConnections.String(): ".upstream_cx_overflow",
		metrics.LimitPending.String():     ".upstream_rq_pending_overflow",
		metrics.LimitRetries.String():     ".upstream_rq_retry_overflow",
	}[m.Labels[metrics.LabelLimit]]
	if ok {
		s.add("cluster."+escapeStatName(m.Labels[metrics.LabelCluster])+name, m.Value, false)
	}
}

// escapeStatName returns the name of a listener or cluster as Envoy's statistics spell it.
func escapeStatName(name string) string { return strings.ReplaceAll(name, ":", "_") }

// addHosts adds the number of hosts of a cluster and of its pending requests.
func (s stats) addHosts(c *upstream.ClusterStatus) {
	healthy := 0
	for i := range c.Hosts {
		if c.Hosts[i].Health == upstream.HealthUp {
			healthy++
		}
	}
	prefix := "cluster." + escapeStatName(c.Name) + "."
	s.add(prefix+"membership_total", float64(len(c.Hosts)), true)
	s.add(prefix+"membership_healthy", float64(healthy), true)
	s.add(prefix+"upstream_rq_pending_active", float64(c.Pending), true)
}

// adminStats returns the content of /stats.
func (p *process) adminStats() []admin.Stat {
	all := stats{}
	known := envoyStatNames()
	samples, err := p.metrics.Samples()
	if err != nil {
		p.log.Warn("some metrics cannot be read", "error", err)
	}
	for m := range samples {
		switch m.Name {
		case metrics.XDSResponses.Name:
			all.addUpdates(m)
		case "weft_cluster_overflow_total":
			all.addOverflow(m)
		default:
			all.addSample(m, known[m.Name])
		}
	}
	clusters := p.server.Clusters().Describe()
	for i := range clusters {
		all.addHosts(&clusters[i])
	}
	all.add("cluster_manager.active_clusters", float64(len(clusters)), true)
	all.add("listener_manager.total_listeners_active", float64(len(p.server.Describe())), true)
	p.addServer(all)
	out := make([]admin.Stat, 0, len(all))
	for _, one := range all {
		out = append(out, *one)
	}
	return out
}

// addServer adds the values of the whole process.
func (p *process) addServer(all stats) {
	const live, draining, preInitializing = 0, 1, 2 // envoy.admin.v3.ServerInfo.State
	state, isLive, started := preInitializing, 0.0, 0.0
	switch p.adminState() {
	case admin.Starting:
	case admin.Ready:
		state, isLive, started = live, 1, 1
	case admin.Draining:
		state, started = draining, 1
	}
	all.add("server.state", float64(state), true)
	all.add("server.live", isLive, true)
	all.add("listener_manager.workers_started", started, true)
	all.add("server.uptime", time.Since(p.started).Seconds(), true)
	all.add("server.concurrency", float64(runtime.GOMAXPROCS(0)), true)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	all.add("server.memory_allocated", float64(m.HeapAlloc), true)
	all.add("server.memory_heap_size", float64(m.HeapSys), true)
}
