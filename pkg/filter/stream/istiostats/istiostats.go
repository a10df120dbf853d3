// Package istiostats implements the filters called istio_stats. They count requests and relayed
// connections by source and destination workload, under Istio's metric names, as the sidecars of an
// Istio mesh do.
//
//	Config              configuration of the stream filter   istiostats.go
//	observe             counts an exchange that has ended    observe.go
//	  key               properties that select the series    observe.go
//	  entryCache        finds the series of a key            series.go
//	    labels          label values of a series             labels.go
//	ConnectionConfig    configuration of the network filter  connections.go
//	watch               counts a session until its end       session.go
package istiostats

import (
	"fmt"
	"slices"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// Config is the filter's configuration.
type Config struct {
	Reporter   string            `key:"reporter" doc:"Which side of requests this sidecar reports." enum:"source|destination" required:"true" example:"\"destination\""`
	Workload   workload.Workload `key:"workload" doc:"The workload of this sidecar."`
	NoFallback bool              `key:"disable_host_header_fallback" doc:"Does not count requests by their host if the service of their cluster is unknown." default:"false" example:"true"`
	Overrides  []Override        `key:"metrics" doc:"Metrics to drop, or to report with fewer labels."`
}

// Override changes one metric of requests, or all of them.
type Override struct {
	Name   string   `key:"name" doc:"The metric, without the prefix istio_; empty: all." enum:"|requests_total|request_duration_milliseconds|request_bytes|response_bytes" default:"" example:"\"request_bytes\""`
	Drop   bool     `key:"drop" doc:"Drops the metric." default:"false" example:"true"`
	Remove []string `key:"tags_to_remove" doc:"Labels whose values are left empty." example:"[\"destination_version\"]"`
}

// Values of Reporter.
const (
	source      = "source"
	destination = "destination"
)

// metricCount is the number of metrics of each filter, without overflowsMetric.
const metricCount = 4

// Indexes of the request metrics.
const (
	requestsTotal = iota
	requestDuration
	requestBytes
	responseBytes
)

// requestMetrics returns the request metrics.
func requestMetrics() [metricCount]metrics.Metric {
	newMetric := func(name, help string, kind metrics.Kind) metrics.Metric {
		return metrics.Metric{Name: "istio_" + name, Help: help, Kind: kind, Labels: labelNames()}
	}
	return [metricCount]metrics.Metric{
		requestsTotal:   newMetric("requests_total", "Completed requests, counted as by Istio's sidecars.", metrics.KindCounter),
		requestDuration: newMetric("request_duration_milliseconds", "Time from the first byte of a request to the last byte of its response, in whole milliseconds.", metrics.KindHistogram),
		requestBytes:    newMetric("request_bytes", "Bytes of requests, including their heads.", metrics.KindHistogram),
		responseBytes:   newMetric("response_bytes", "Bytes of response bodies.", metrics.KindHistogram),
	}
}

func overflowsMetric() metrics.Metric {
	return metrics.Metric{
		Name: "weft_filter_istio_stats_overflow_total", Kind: metrics.KindCounter,
		Help: "Requests and relayed connections that were counted in the series with the label value _other because there are too many series.",
	}
}

// Factory returns the filter factory. Its filters share one limit on the number of series.
func Factory() filter.StreamFilterFactory {
	limiter := new(seriesLimiter)
	definitions := requestMetrics()
	return filter.StreamFilterFactory{
		Name:   "istio_stats",
		Stage:  filter.BeforeRoute,
		Config: func() any { return new(Config) },
		New: func(cfg any, env filter.Env) (filter.Filter, error) {
			s, err := newStats(cfg.(*Config), definitions, env, limiter) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
			if err != nil {
				return nil, err
			}
			env.Observe(s.observe)
			return func(next protocol.Service) protocol.Service { return next }, nil
		},
		Metrics: append(slices.Clone(definitions[:]), overflowsMetric()),
	}
}

// stats counts the exchanges of one listener, or the sessions of one filter chain. Only entries and
// seriesLimiter change.
type stats struct {
	Config
	metrics        [metricCount]metrics.Metric
	env            filter.Env
	seriesLimiter  *seriesLimiter
	droppedMetrics [metricCount]bool
	removedLabels  [metricCount][labelCount]bool
	entries        entryCache
	overflow       *metrics.Counter
}

// newStats returns stats for the metrics in definitions, configured by c.
func newStats(c *Config, definitions [metricCount]metrics.Metric, env filter.Env, limiter *seriesLimiter) (*stats, error) {
	s := &stats{Config: *c, metrics: definitions, env: env, seriesLimiter: limiter, overflow: env.Metrics.Counter(overflowsMetric())}
	for _, o := range c.Overrides {
		found := false
		for i, m := range definitions {
			if o.Name != "" && m.Name != "istio_"+o.Name {
				continue
			}
			found = true
			s.droppedMetrics[i] = s.droppedMetrics[i] || o.Drop
			for j, name := range m.Labels {
				s.removedLabels[i][j] = s.removedLabels[i][j] || slices.Contains(o.Remove, name)
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown metric %q", o.Name)
		}
	}
	return s, nil
}
