package istiostats

import (
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// ConnectionConfig is the configuration of the network filter.
type ConnectionConfig struct {
	Reporter          string               `key:"reporter" doc:"Which side of connections this sidecar reports." enum:"source|destination" required:"true" example:"\"destination\""`
	Workload          workload.Workload    `key:"workload" doc:"The workload of this sidecar."`
	ReportingDuration time.Duration        `key:"tcp_reporting_duration" doc:"How often to count the bytes of an open connection. 0s: only when it closes." default:"5s" example:"\"15s\""`
	Overrides         []ConnectionOverride `key:"metrics" doc:"Metrics to drop, or to report with fewer labels."`
}

// ConnectionOverride changes one metric of connections, or all of them.
type ConnectionOverride struct {
	Name   string   `key:"name" doc:"The metric, without the prefix istio_; empty: all." enum:"|tcp_connections_opened_total|tcp_connections_closed_total|tcp_sent_bytes_total|tcp_received_bytes_total" default:"" example:"\"tcp_sent_bytes_total\""`
	Drop   bool     `key:"drop" doc:"Drops the metric." default:"false" example:"true"`
	Remove []string `key:"tags_to_remove" doc:"Labels whose values are left empty." example:"[\"destination_version\"]"`
}

// Indexes of the connection metrics.
const (
	connectionsOpened = iota
	connectionsClosed
	bytesSent
	bytesReceived
)

// connectionMetrics returns the connection metrics.
func connectionMetrics() [metricCount]metrics.Metric {
	newMetric := func(name, help string) metrics.Metric {
		return metrics.Metric{Name: "istio_tcp_" + name + "_total", Help: help, Kind: metrics.KindCounter, Labels: labelNames()[:sessionLabels]}
	}
	return [metricCount]metrics.Metric{
		connectionsOpened: newMetric("connections_opened", "Relayed connections, counted once the connection to their host is established or has failed, as by Istio's sidecars."),
		connectionsClosed: newMetric("connections_closed", "Relayed connections that have closed, including those whose connection to a host failed."),
		bytesSent:         newMetric("sent_bytes", "Bytes sent to the clients of relayed connections."),
		bytesReceived:     newMetric("received_bytes", "Bytes received from the clients of relayed connections."),
	}
}

// ConnectionFactory returns the network filter's factory. Its filters share one limit on the number
// of series.
func ConnectionFactory() filter.ConnectionFilterFactory {
	limiter := new(seriesLimiter)
	definitions := connectionMetrics()
	return filter.ConnectionFilterFactory{
		Name:   "istio_stats",
		Config: func() any { return new(ConnectionConfig) },
		NewObserver: func(cfg any, env filter.Env) (filter.SessionObserver, error) {
			c := cfg.(*ConnectionConfig) //nolint:forcetypeassert // a value that ConnectionFilterFactory.Config created
			statsConfig := &Config{Reporter: c.Reporter, Workload: c.Workload}
			for _, o := range c.Overrides {
				statsConfig.Overrides = append(statsConfig.Overrides, Override(o))
			}
			s, err := newStats(statsConfig, definitions, env, limiter)
			if err != nil {
				return nil, err
			}
			return func(conn *filter.Session) (onEnd func()) { return s.watch(conn, c.ReportingDuration) }, nil
		},
		Metrics: definitions[:],
	}
}
