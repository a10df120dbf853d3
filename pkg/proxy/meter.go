package proxy

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Meter creates recorders of clusters and hosts in a metrics registry. It implements
// upstream.Meter.
type Meter struct{ Registry *metrics.Registry }

// Cluster implements upstream.Meter.
func (m Meter) Cluster(name string, gauges upstream.Gauges) upstream.ClusterRecorder {
	c, release := m.Registry.Cluster(name)
	c.Active.SetFunc(gauges.InFlight)
	c.LimitUsage.SetFunc(func(priority int, l metrics.Limit) (used, limit int64) {
		return gauges.LimitUsage(config.Priority(priority), l)
	})
	return clusterRecorder{c, release}
}

// Host implements upstream.Meter.
func (m Meter) Host(cluster, address string) upstream.Recorder {
	h, release := m.Registry.Host(cluster, address)
	return hostRecorder{h, release}
}

type hostRecorder struct {
	*metrics.RequestRecorder
	release func()
}

func (r hostRecorder) Close() { r.release() }

type clusterRecorder struct {
	cluster *metrics.Cluster
	release func()
}

func (r clusterRecorder) Close() { r.release() }

// Add implements metrics.Recorder.
func (r clusterRecorder) Add(b metrics.Batch) {
	r.cluster.Add(b)
	if n := b.Retries(); n > 0 {
		r.cluster.Retries.Add(uint64(n))
	}
}

// Count implements upstream.ClusterRecorder.
func (r clusterRecorder) Count(e upstream.Event) {
	c := r.cluster
	switch e {
	case upstream.ConnectionOpened:
		c.Opened.Add(1)
	case upstream.ConnectionClosed:
		c.Closed.Add(1)
	case upstream.ConnectionMaxRequests:
		c.MaxRequestsReached.Add(1)
	case upstream.ConnectFailed:
		c.ConnectFailures.Add(1)
	case upstream.Resent:
		c.Resent.Add(1)
	case upstream.HostDown:
		c.HostDown.Add(1)
	case upstream.HostUp:
		c.HostUp.Add(1)
	case upstream.CheckFailed:
		c.CheckFailures.Add(1)
	case upstream.HostEjected:
		c.Ejections.Add(1)
	case upstream.EjectionOverflow:
		c.EjectionOverflow.Add(1)
	case upstream.Hedged:
		c.Hedges.Add(1)
	case upstream.HedgeWon:
		c.HedgesWon.Add(1)
	case upstream.AttemptCanceled:
		c.Canceled.Add(1)
	default: // an overflow, which LimitReached counts
	}
}

// LimitReached implements upstream.ClusterRecorder.
func (r clusterRecorder) LimitReached(p config.Priority, e upstream.Event) {
	counters := &r.cluster.Overflow[p]
	switch e {
	case upstream.ConnectionOverflow:
		counters[metrics.LimitConnections].Add(1)
	case upstream.PendingOverflow:
		counters[metrics.LimitPending].Add(1)
	case upstream.RequestOverflow:
		counters[metrics.LimitRequests].Add(1)
	case upstream.RetryOverflow:
		counters[metrics.LimitRetries].Add(1)
	case upstream.BudgetOverflow:
		counters[metrics.LimitRetryBudget].Add(1)
	default: // Count counts the other events
	}
}
