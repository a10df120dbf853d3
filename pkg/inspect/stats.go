package inspect

import (
	"iter"
	"runtime"
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Stats is the response body of /stats?format=json: Weft's metrics under Envoy's names (see
// "Statistics" in the Envoy documentation), for tools that need these names, such as the readiness
// probe of Istio's agent.
type Stats struct {
	Stats []Stat `json:"stats"`
}

// Stat is one value under the name that Envoy gives it.
type Stat struct {
	Name    string `json:"name"`
	Value   uint64 `json:"value"`
	IsGauge bool   `json:"-"` // false: a counter
	Used    bool   `json:"-"` // true for a gauge, and for a counter that is not zero
}

// StatsInput holds the values from which NewStats computes the statistics.
type StatsInput struct {
	Samples   iter.Seq[metrics.Sample]
	Clusters  []upstream.ClusterStatus
	Listeners int // number of active and draining listeners
	Process   Process
	Memory    runtime.MemStats
}

// NewStats returns all statistics, in any order.
func NewStats(in *StatsInput) []Stat {
	set, patterns := statSet{}, envoyStatNames()
	for m := range in.Samples {
		switch m.Name {
		case metrics.XDSResponses.Name:
			set.addUpdates(m)
		case "weft_cluster_overflow_total":
			set.addOverflow(m)
		default:
			set.addSample(m, patterns[m.Name])
		}
	}
	for i := range in.Clusters {
		set.addHosts(&in.Clusters[i])
	}
	set.add("cluster_manager.active_clusters", float64(len(in.Clusters)), true)
	set.add("listener_manager.total_listeners_active", float64(in.Listeners), true)
	set.addProcess(in)
	out := make([]Stat, 0, len(set))
	for _, stat := range set {
		out = append(out, *stat)
	}
	return out
}

// statSet maps the names of statistics to their values.
type statSet map[string]*Stat

func (s statSet) add(name string, value float64, isGauge bool) {
	stat := s[name]
	if stat == nil {
		stat = &Stat{Name: name, IsGauge: isGauge, Used: isGauge}
		s[name] = stat
	}
	stat.Value += uint64(max(value, 0))
	stat.Used = stat.Used || value > 0
}

// addSample adds the value of a sample under each pattern.
func (s statSet) addSample(m metrics.Sample, patterns []statName) {
	for _, p := range patterns {
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
		s.add(name, m.Value, p.isGauge)
	}
}

// addUpdates adds the number of cluster and listener updates from the control plane.
func (s statSet) addUpdates(m metrics.Sample) {
	prefix, ok := map[string]string{"cluster": "cluster_manager.cds.", "listener": "listener_manager.lds."}[m.Labels[metrics.LabelType]]
	if !ok {
		return
	}
	accepted, rejected := m.Value, 0.0
	if m.Labels[metrics.LabelResult] == metrics.ResultNotAccepted {
		accepted, rejected = 0, m.Value
	}
	s.add(prefix+"update_attempt", m.Value, false)
	s.add(prefix+"update_success", accepted, false)
	s.add(prefix+"update_rejected", rejected, false)
}

// addOverflow adds how often a circuit breaker limit was reached. Envoy counts max_requests like
// max_pending_requests, and a retry budget like max_retries.
func (s statSet) addOverflow(m metrics.Sample) {
	name, ok := map[string]string{
		metrics.LimitConnections.String(): ".upstream_cx_overflow",
		metrics.LimitPending.String():     ".upstream_rq_pending_overflow",
		metrics.LimitRequests.String():    ".upstream_rq_pending_overflow",
		metrics.LimitRetries.String():     ".upstream_rq_retry_overflow",
		metrics.LimitRetryBudget.String(): ".upstream_rq_retry_overflow",
	}[m.Labels[metrics.LabelLimit]]
	if ok {
		s.add("cluster."+escapeStatName(m.Labels[metrics.LabelCluster])+name, m.Value, false)
	}
}

// addHosts adds the numbers of hosts, of healthy hosts and of pending requests of a cluster.
func (s statSet) addHosts(c *upstream.ClusterStatus) {
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

// addProcess adds the values of the whole process.
func (s statSet) addProcess(in *StatsInput) {
	p := &in.Process
	_, number := p.State.envoyState()
	isLive, started := 0.0, 0.0
	if p.State == Ready {
		isLive = 1
	}
	if p.State != Starting {
		started = 1
	}
	s.add("server.state", float64(number), true)
	s.add("server.live", isLive, true)
	s.add("listener_manager.workers_started", started, true)
	s.add("server.uptime", p.Uptime.Seconds(), true)
	s.add("server.concurrency", float64(p.Concurrency), true)
	s.add("server.memory_allocated", float64(in.Memory.HeapAlloc), true)
	s.add("server.memory_heap_size", float64(in.Memory.HeapSys), true)
}
