package configjson

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type metricsJSON struct {
	Sinks        []sinkJSON `key:"sinks" doc:"Exporters in addition to /stats/prometheus on the admin port."`
	StatsMatcher struct {
		RejectAll       bool     `key:"reject_all" doc:"Export no metrics." example:"true"`
		ExclusionLabels []string `key:"exclusion_labels" doc:"Exclude the metrics that have one of these labels." example:"[\"host\"]"`
		ExclusionKeys   []string `key:"exclusion_keys" doc:"Metrics to exclude." example:"[\"weft_request_bytes_total\"]"`
	} `key:"stats_matcher" doc:"Metrics to exclude."`
	ShmZone string        `key:"shm_zone" doc:"Shared memory zone of MOSN." ignored:"true" example:"\"zone\""`
	Flush   document.Node `key:"flush_interval" doc:"Interval of writing to sinks." accept:"number|string" ignored:"Weft's metrics are scraped, not pushed" example:"\"500ms\""`
	ShmSize document.Node `key:"shm_size" doc:"Size of shm_zone." accept:"number|string" ignored:"true" example:"\"64M\""`
}

type sinkJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Type of the exporter: prometheus." required:"true" example:"\"prometheus\""`
	Config document.Node `key:"config" doc:"Settings of the exporter." accept:"object" variant:"sink"`
}

type prometheusJSON struct {
	Node        document.Node `key:"."`
	Address     string        `key:"address" doc:"IP address to listen on." default:"0.0.0.0" example:"\"127.0.0.1\""`
	Port        uint16        `key:"port" doc:"Port of the scrape endpoint." required:"true" min:"1" example:"34903"`
	Percentiles document.Node `key:"percentiles" doc:"Percentiles of durations." accept:"list" ignored:"durations are histograms, from which percentiles are computed" example:"[50, 99]"`
	Endpoint    string        `key:"endpoint" doc:"Path of the scrape endpoint." default:"/metrics" example:"\"/stats\""`
}

type tracingJSON struct {
	Node   document.Node `key:"."`
	Enable bool          `key:"enable" doc:"Whether MOSN creates spans. Weft creates none: true causes a warning, and requests keep their tracing headers." example:"true"`
	Driver string        `key:"driver" doc:"Name of the tracer, which Weft does not use." example:"\"SkyWalking\""`
	Tracer string        `key:"tracer" doc:"Older name of driver." example:"\"SOFATracer\""`
	HTTP   document.Node `key:"http" doc:"Envoy bootstrap: tracer." accept:"object" ignored:"Weft creates no spans" example:"{\"name\": \"envoy.tracers.zipkin\"}"`
	Config document.Node `key:"config" doc:"Settings of the tracer, which Weft does not use." accept:"object" example:"{\"service_name\": \"a\"}"`
}

// metricsReader reads the keys "metrics" and "tracing".
type metricsReader struct{ *input }

// read converts the key "metrics".
func (r *metricsReader) read(j *metricsJSON) (m config.Metrics) {
	m.RejectAll = j.StatsMatcher.RejectAll
	m.ExcludeLabels, m.ExcludeKeys = j.StatsMatcher.ExclusionLabels, j.StatsMatcher.ExclusionKeys
	for i := range j.Sinks {
		s := &j.Sinks[i]
		node := s.Node.Get("type").Or(s.Node)
		if s.Type == "" {
			continue
		}
		if _, ok := choose(r.report, node, "metrics sink", s.Type, []string{prometheusSink}, knownSinks()); !ok {
			continue
		}
		if m.Prometheus != nil {
			r.report.Errorf(node, "duplicate prometheus sink")
			continue
		}
		var p prometheusJSON
		if !r.decoder.Decode(s.Node.MemberOrEmpty("config"), &p) {
			continue
		}
		if _, err := netip.ParseAddr(p.Address); err != nil && p.Address != localhost {
			r.report.Errorf(p.Node.Get("address"), "found %q, expected an IP address", p.Address)
		}
		if !strings.HasPrefix(p.Endpoint, "/") {
			r.report.Errorf(p.Node.Get("endpoint"), "found %q, expected a path that begins with \"/\"", p.Endpoint)
		}
		address := net.JoinHostPort(p.Address, strconv.Itoa(int(p.Port)))
		m.Prometheus = &config.Prometheus{Address: numericHost(address), Path: p.Endpoint}
	}
	return m
}

// checkTracing warns about enabled tracing.
func (r *metricsReader) checkTracing(j *tracingJSON) {
	if j.Enable {
		r.report.Warnf(j.Node.Get("enable"), "Weft creates no spans yet: it only passes on the tracing headers of requests")
	}
}
