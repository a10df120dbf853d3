package istiostats

import (
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// ConnectionConfig is the configuration of the network filter.
type ConnectionConfig struct {
	Reporter  string               `key:"reporter" doc:"Which end of connections this sidecar stands at." enum:"source|destination" required:"true" example:"\"destination\""`
	Workload  workload.Workload    `key:"workload" doc:"What it stands beside."`
	Every     time.Duration        `key:"tcp_reporting_duration" doc:"How often the bytes of a connection that goes on are counted. 0s: only at its end." default:"5s" example:"\"15s\""`
	Overrides []ConnectionOverride `key:"metrics" doc:"What is not counted, or with fewer labels."`
}

// ConnectionOverride changes one metric of connections, or all of them.
type ConnectionOverride struct {
	Name   string   `key:"name" doc:"The metric, without istio_; empty: all." enum:"|tcp_connections_opened_total|tcp_connections_closed_total|tcp_sent_bytes_total|tcp_received_bytes_total" default:"" example:"\"tcp_sent_bytes_total\""`
	Drop   bool     `key:"drop" doc:"It is not counted." default:"false" example:"true"`
	Remove []string `key:"tags_to_remove" doc:"Labels whose values are left empty." example:"[\"destination_version\"]"`
}

// Indexes of the connection metrics.
const (
	connectionsOpened = iota
	connectionsClosed
	bytesSent
	bytesReceived
)

// ofConnections returns the connection metrics.
func ofConnections() [metricCount]metrics.Metric {
	of := func(name, help string) metrics.Metric {
		return metrics.Metric{Name: "istio_tcp_" + name + "_total", Help: help, Kind: metrics.KindCounter, Labels: labelNames()[:sessionLabels]}
	}
	return [metricCount]metrics.Metric{
		connectionsOpened: of("connections_opened", "Connections whose bytes are carried, once their host is connected to, or could not be, as Istio's sidecars count them."),
		connectionsClosed: of("connections_closed", "Connections whose bytes were carried, or could not be, once they have ended."),
		bytesSent:         of("sent_bytes", "Bytes that were sent to the callers of connections whose bytes are carried."),
		bytesReceived:     of("received_bytes", "Bytes that came from the callers of connections whose bytes are carried."),
	}
}

// Connections returns the network filter's factory. Its filters share the limit on series.
func Connections() filter.ConnectionFilterFactory {
	shared := new(ledger)
	all := ofConnections()
	return filter.ConnectionFilterFactory{
		Name:   "istio_stats",
		Config: func() any { return new(ConnectionConfig) },
		NewObserver: func(cfg any, env filter.Env) (filter.SessionObserver, error) {
			c := cfg.(*ConnectionConfig) //nolint:forcetypeassert // what Config returned
			own := &Config{Reporter: c.Reporter, Workload: c.Workload}
			for _, o := range c.Overrides {
				own.Overrides = append(own.Overrides, Override(o))
			}
			s, err := newStats(own, all, env, shared)
			if err != nil {
				return nil, err
			}
			return func(of *filter.Session) (ended func()) { return s.watch(of, c.Every) }, nil
		},
		Metrics: all[:],
	}
}
