package configjson

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// faultSettings replaces the settings of a filter that runs after route selection.
type faultSettings struct {
	Status     int           `key:"status" doc:"Status of the response." min:"200" max:"599" default:"503" example:"500"`
	Percentage uint32        `key:"percentage" doc:"Fraction of the requests." unit:"percent" max:"100" default:"100" example:"10"`
	Delay      time.Duration `key:"delay" doc:"Wait." example:"\"1s\""`
	Secret     string        `key:"secret" doc:"A secret." secret:"true" example:"\"x\""`
}

// Validate rejects a delay together with 418.
func (f *faultSettings) Validate() error {
	if f.Status == 418 && f.Delay > 0 {
		return &document.KeyError{Key: "delay", Err: errors.New("a teapot does not wait")}
	}
	return nil
}

// limitSettings replaces the settings of a filter with a required key.
type limitSettings struct {
	Max int64 `key:"max" doc:"Maximum size of a body." unit:"bytes" required:"true" example:"1024"`
}

// earlySettings replaces the settings of a filter that runs before route selection.
type earlySettings struct {
	Tag string `key:"tag" doc:"A field." default:"x-early" example:"\"x-tag\""`
}

// outlierSettings replaces the settings of a filter with an outlier policy.
type outlierSettings struct {
	Hosts int `key:"hosts" doc:"Hosts." example:"2"`
}

// Outlier implements filter.OutlierPolicy.
func (s *outlierSettings) Outlier() *config.OutlierDetection {
	if s.Hosts == 0 {
		return nil
	}
	return &config.OutlierDetection{MaxEjectedHosts: s.Hosts}
}

// testCapabilities returns the features that the tests support, including the filters above.
func testCapabilities() Capabilities {
	return Capabilities{
		XDS: true,

		DubboRegistries: []string{"memory", "zookeeper"},
		Protocols:       []config.Protocol{config.HTTP1, config.Dubbo, config.Bolt, config.BoltV2},
		NetworkFilters:  []string{ProxyFilter, TCPProxyFilter, UDPProxyFilter},
		ConnectionFilters: []filter.ConnectionFilterFactory{
			{Name: "rbac", Config: func() any { return &map[string]any{} }},
			{Name: "istio_stats", Config: func() any { return &map[string]any{} }, NewObserver: func(any, filter.Env) (filter.SessionObserver, error) { return nil, nil }},
		},
		StreamFilters: []filter.StreamFilterFactory{
			{Name: "fault", Config: func() any { return &faultSettings{} }},
			{Name: "mirror", Config: func() any { return &mirrorSettings{} }},
			{Name: "payload_limit", Config: func() any { return &limitSettings{} }},
			{Name: "early", Stage: filter.BeforeRoute, Config: func() any { return &earlySettings{} }},
			{Name: "fault_tolerance", Stage: filter.BeforeRoute, Config: func() any { return &outlierSettings{} }},
		},
		ClusterTypes: []config.ClusterType{config.ClusterStatic, config.ClusterStrictDNS, config.ClusterLogicalDNS, config.ClusterOriginalDst},
		Policies:     []config.LBPolicy{config.RoundRobin, config.WeightedRoundRobin, config.Random, config.LeastRequest, config.RingHash, config.Maglev, config.LBOriginalDst},
	}
}
