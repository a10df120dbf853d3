package xds

import (
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// meter is what a Source tells of itself in numbers. Safe for concurrent use.
type meter struct {
	registry *metrics.Registry        // nil: nobody is told
	held     map[string]*atomic.Int64 // by type; immutable
}

// typeNames are the types of resources as metrics call them.
func typeNames() map[string]string {
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

// meterAll exports what is one of a Source.
func (s *Source) meterAll() {
	m := &s.meter
	m.registry, m.held = s.o.Metrics, map[string]*atomic.Int64{}
	for url := range typeNames() {
		m.held[url] = &atomic.Int64{}
	}
	if m.registry == nil {
		return
	}
	for url, name := range typeNames() {
		m.registry.Func(metrics.XDSResources, func() float64 { return float64(m.held[url].Load()) }, name)
	}
	m.registry.Func(metrics.XDSKeptAge, func() float64 {
		if k := s.Kept(); k.InUse {
			return time.Since(k.Said).Seconds()
		}
		return 0
	})
}

// meterFeed exports what is one of each feed.
func (s *Source) meterFeed(f *feed) {
	f.answered.Store(time.Now().UnixNano())
	if s.meter.registry == nil {
		return
	}
	s.meter.registry.Func(metrics.XDSConnected, func() float64 {
		if f.isConnected() {
			return 1
		}
		return 0
	}, f.name)
	s.meter.registry.Func(metrics.XDSResponseAge, func() float64 {
		return time.Since(time.Unix(0, f.answered.Load())).Seconds()
	}, f.name)
}

// count counts a response, of which wrong was refused.
func (s *Source) count(f *feed, u ads.Update, wrong []ads.Wrong) {
	f.answered.Store(time.Now().UnixNano())
	if s.meter.registry == nil {
		return
	}
	result := metrics.ResultAccepted
	if len(wrong) > 0 {
		result = metrics.ResultRefused
	}
	s.meter.registry.Counter(metrics.XDSResponses, f.name, typeNames()[u.Type], result).Add(1)
}

// noteUnknown counts and logs the fields of an accepted resource that this build does not know.
func (s *Source) noteUnknown(typeURL, name string, ignored []string) {
	n := resource.CountUnknown(ignored)
	if n == 0 {
		return
	}
	if s.meter.registry != nil {
		s.meter.registry.Counter(metrics.XDSUnknownFields, typeNames()[typeURL]).Add(uint64(n))
	}
	for _, field := range ignored {
		if resource.CountUnknown([]string{field}) > 0 {
			s.o.Log.Warn("accepted a resource without a field that this build does not know", logType, typeURL, logResource, name, logReason, field)
		}
	}
}

// recount has the numbers of resources be right again. The Source's work is held.
func (s *Source) recount() {
	m := &s.meter
	for url, n := range m.held {
		held := 0
		for _, f := range s.feeds {
			if f.secrets == (resource.SecretSource{}) || url == resource.SecretType {
				held += len(f.client.Held(url))
			}
		}
		n.Store(int64(held))
	}
}
