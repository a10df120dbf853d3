// Package dubbostream implements the dubbo_stream filter. It makes Dubbo requests match HTTP route
// tables, as control planes generate them: the domain is the service, the path is "/", and the
// pod's labels are headers.
package dubbostream

import (
	"context"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	Subset     string `key:"subset" doc:"Pod label whose value is the metric label subset. If it is empty, or the pod does not have the label, the metric label is none." example:"\"version\""`
	LabelsFile string `key:"pod_labels_file" doc:"File with the pod labels, in the format of the Kubernetes downward API. If the default file does not exist, there are no labels." default:"/etc/istio/pod/labels" example:"\"/etc/podinfo/labels\""`
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "dubbo_stream",
		Stage:   filter.BeforeRoute,
		Config:  func() any { return &Config{LabelsFile: defaultLabelsFile} },
		New:     build,
		Metrics: []metrics.Metric{requestsMetric(), successesMetric(), failuresMetric()},
	}
}

const (
	labelSubset = "subset"
	noSubset    = "none" // label value for pods without a subset
)

func requestsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_dubbo_stream_requests_total", Help: "Dubbo requests that reached the dubbo_stream filter, by the value of the pod label that the key subset names.", Kind: metrics.KindCounter, Labels: []string{labelSubset}}
}

func successesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_dubbo_stream_successes_total", Help: "Two-way Dubbo requests with the response status OK (20), including exceptions of the service.", Kind: metrics.KindCounter, Labels: []string{labelSubset}}
}

func failuresMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_dubbo_stream_failures_total", Help: "Two-way Dubbo requests with another response status or without a response, including local replies of Weft.", Kind: metrics.KindCounter, Labels: []string{labelSubset}}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	labels, err := readLabels(c.LabelsFile)
	if err != nil {
		return nil, err
	}
	subset := noSubset
	for _, l := range labels {
		if l.Name == c.Subset && l.Value != "" {
			subset = l.Value
		}
	}
	d := dubboStream{
		labels:    withoutRoutingLabels(labels),
		requests:  env.Metrics.Counter(requestsMetric(), subset),
		successes: env.Metrics.Counter(successesMetric(), subset),
		failures:  env.Metrics.Counter(failuresMetric(), subset),
	}
	return d.wrap, nil
}

// dubboStream is immutable; only its counters change.
type dubboStream struct {
	labels    []protocol.Field // labels that become headers
	next      protocol.Service
	requests  *metrics.Counter
	successes *metrics.Counter
	failures  *metrics.Counter
}

// wrap returns a copy of d in front of next.
func (d dubboStream) wrap(next protocol.Service) protocol.Service {
	d.next = next
	return &d
}

// statusOK is the Dubbo status of a response from the service.
const statusOK = 20

// The exchange's metadata holds the path of the request until Finish restores it.
const (
	namespace = "dubbo_stream"
	pathKey   = "path"
)

// Start implements protocol.Service. The engine has set Authority to the service. Start sets the
// path to "/"; Finish restores it for the access log, unless the route has rewritten it.
func (d *dubboStream) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Meta.Protocol != string(config.Dubbo) {
		return d.next.Start(ctx, x)
	}
	d.requests.Add(1)
	d.addLabels(&x.Request.Header)
	x.Metadata.Add(namespace, pathKey, x.Request.Path)
	x.Request.Path = "/"
	x.PushFinisher(d)
	return d.next.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (d *dubboStream) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if path, ok := x.Metadata.Lookup(namespace, pathKey); ok && x.Record.OriginalPath == "" {
		x.Request.Path = path
	}
	switch {
	case x.Request.OneWay:
	case err == nil && x.Response.Code == statusOK:
		d.successes.Add(1)
	default:
		d.failures.Add(1)
	}
	return err
}

// addLabels adds the pod's labels as headers for route matching. It does not mark the header as
// changed, so that the original frame can be forwarded. It does not replace headers of the request.
func (d *dubboStream) addLabels(h *protocol.Header) {
	if len(d.labels) == 0 {
		return
	}
	changed := h.Changed()
	for _, l := range d.labels {
		if _, ok := h.Lookup(l.Name); !ok {
			h.Add(l.Name, l.Value)
		}
	}
	if !changed {
		h.MarkUnchanged()
	}
}
