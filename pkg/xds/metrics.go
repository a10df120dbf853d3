package xds

import (
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// sourceMetrics are the metrics of a Source. They are safe for concurrent use.
type sourceMetrics struct {
	registry  *metrics.Registry        // nil: no metrics
	resources map[string]*atomic.Int64 // number of accepted resources, by type URL; the map is immutable
}

// metricTypeNames returns the metric label of each resource type.
func metricTypeNames() map[string]string {
	return map[string]string{
		resource.ClusterType:    "cluster",
		resource.EndpointType:   "endpoint",
		resource.ListenerType:   "listener",
		resource.RouteType:      "route",
		resource.DubboRouteType: "dubbo_route",
		resource.ExtensionType:  "extension",
		resource.RuntimeType:    "runtime",
		resource.SecretType:     "secret",
	}
}

// registerMetrics registers the metrics of the Source.
func (s *Source) registerMetrics() {
	m := &s.metrics
	m.registry, m.resources = s.opts.Metrics, map[string]*atomic.Int64{}
	for url := range metricTypeNames() {
		m.resources[url] = &atomic.Int64{}
	}
	if m.registry == nil {
		return
	}
	for url, name := range metricTypeNames() {
		m.registry.Func(metrics.XDSResources, func() float64 { return float64(m.resources[url].Load()) }, name)
	}
	m.registry.Func(metrics.XDSCacheAge, func() float64 {
		if status := s.cache.Status(); status.InUse {
			return time.Since(status.ReceivedAt).Seconds()
		}
		return 0
	})
}

// registerChannelMetrics registers the metrics of a channel.
func (s *Source) registerChannelMetrics(ch *channel) {
	ch.lastResponse.Store(time.Now().UnixNano())
	if s.metrics.registry == nil {
		return
	}
	s.metrics.registry.Func(metrics.XDSConnected, func() float64 {
		if ch.isConnected() {
			return 1
		}
		return 0
	}, ch.name)
	s.metrics.registry.Func(metrics.XDSResponseAge, func() float64 {
		return time.Since(time.Unix(0, ch.lastResponse.Load())).Seconds()
	}, ch.name)
}

// countResponse counts a response with the given rejected resources, and stores its time.
func (s *Source) countResponse(ch *channel, u ads.Update, rejected []ads.ResourceError) {
	ch.lastResponse.Store(time.Now().UnixNano())
	if s.metrics.registry == nil {
		return
	}
	result := metrics.ResultAccepted
	if len(rejected) > 0 {
		result = metrics.ResultNotAccepted
	}
	s.metrics.registry.Counter(metrics.XDSResponses, ch.name, metricTypeNames()[u.Type], result).Add(1)
}

// reportUnknownFields counts and logs the unknown fields of an accepted resource.
func (s *Source) reportUnknownFields(typeURL string, unknown state.UnknownFields) {
	if s.metrics.registry != nil {
		s.metrics.registry.Counter(metrics.XDSUnknownFields, metricTypeNames()[typeURL]).Add(uint64(len(unknown.Fields)))
	}
	for _, field := range unknown.Fields {
		s.opts.Log.Warn("accepted a resource but ignored a field that this build does not know", logType, typeURL, logResource, unknown.Name, logReason, field)
	}
}

// updateResourceCounts updates the gauges of accepted resources. The caller holds the lock of the
// stack.
func (s *Source) updateResourceCounts() {
	m := &s.metrics
	for url, gauge := range m.resources {
		count := 0
		for _, ch := range s.channels {
			if ch.onlyType == "" && ch.secretSource == (resource.SecretSource{}) || url == resource.SecretType && ch.onlyType == "" || url == ch.onlyType {
				count += len(ch.client.Resources(url))
			}
		}
		gauge.Store(int64(count))
	}
}
