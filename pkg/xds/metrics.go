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
	resources map[string]*atomic.Int64 // by type; immutable
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
		if k := s.cache.Status(); k.InUse {
			return time.Since(k.ReceivedAt).Seconds()
		}
		return 0
	})
}

// registerChannelMetrics registers the metrics of a channel.
func (s *Source) registerChannelMetrics(f *channel) {
	f.lastResponse.Store(time.Now().UnixNano())
	if s.metrics.registry == nil {
		return
	}
	s.metrics.registry.Func(metrics.XDSConnected, func() float64 {
		if f.isConnected() {
			return 1
		}
		return 0
	}, f.name)
	s.metrics.registry.Func(metrics.XDSResponseAge, func() float64 {
		return time.Since(time.Unix(0, f.lastResponse.Load())).Seconds()
	}, f.name)
}

// countResponse counts a response; wrong are its rejected resources.
func (s *Source) countResponse(f *channel, u ads.Update, wrong []ads.ResourceError) {
	f.lastResponse.Store(time.Now().UnixNano())
	if s.metrics.registry == nil {
		return
	}
	result := metrics.ResultAccepted
	if len(wrong) > 0 {
		result = metrics.ResultRefused
	}
	s.metrics.registry.Counter(metrics.XDSResponses, f.name, metricTypeNames()[u.Type], result).Add(1)
}

// reportUnknownFields counts and logs the fields of an accepted resource that this build does not
// know.
func (s *Source) reportUnknownFields(typeURL string, one state.UnknownFields) {
	if s.metrics.registry != nil {
		s.metrics.registry.Counter(metrics.XDSUnknownFields, metricTypeNames()[typeURL]).Add(uint64(len(one.Fields)))
	}
	for _, field := range one.Fields {
		s.opts.Log.Warn("accepted a resource without a field that this build does not know", logType, typeURL, logResource, one.Name, logReason, field)
	}
}

// updateResourceCounts updates the resource counts. Called with the stack locked.
func (s *Source) updateResourceCounts() {
	m := &s.metrics
	for url, n := range m.resources {
		held := 0
		for _, f := range s.channels {
			if f.secretSource == (resource.SecretSource{}) || url == resource.SecretType {
				held += len(f.client.Resources(url))
			}
		}
		n.Store(int64(held))
	}
}
