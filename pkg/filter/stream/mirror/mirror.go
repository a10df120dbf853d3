// Package mirror implements the mirror filter, which sends copies of requests to other clusters.
// Requests do not wait for their copies.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration. request_mirror_policies of a route has the same keys.
type Config struct {
	Cluster          string              `key:"cluster" doc:"Cluster that gets the copies; empty: none, unless the route has one." refers:"cluster" example:"\"shadow\""`
	ClusterHeader    string              `key:"cluster_header" doc:"Header of the request that names the cluster, instead of cluster; :authority, :method, :path and :scheme as in HTTP/2. Requests without a value are not copied." example:"\"x-shadow\""`
	Percent          float64             `key:"percent" doc:"Fraction of requests to copy." unit:"percent" min:"0" max:"100" default:"100" example:"10"`
	Protocol         string              `key:"upstream_protocol" doc:"Protocol for that cluster; empty: the protocol of the request." enum:"Http1|Http2" example:"\"Http1\""`
	Amplification    int                 `key:"amplification" doc:"Number of copies of each request." min:"1" max:"1000" default:"1" example:"3"`
	Broadcast        bool                `key:"broadcast" doc:"Sends a copy to each host of the cluster; amplification then has no effect." default:"false" example:"true"`
	Timeout          time.Duration       `key:"timeout" doc:"Response timeout of a copy." min:"1ms" max:"1m" default:"10s" example:"\"1s\""`
	Sampled          bool                `key:"trace_sampled" doc:"Whether copies are traced." ignored:"copies are not traced" example:"true"`
	ShadowHostSuffix bool                `key:"shadow_host_suffix" doc:"Appends -shadow to the host, before the port, as Envoy does." default:"false" example:"true"`
	XFF              bool                `key:"append_x_forwarded_for" doc:"Appends the client address to X-Forwarded-For, as Envoy does, unless it is already the last one." default:"false" example:"true"`
	MaxBody          int                 `key:"max_body_size" doc:"Maximum size of a body to copy; requests with a larger body are not copied." unit:"bytes" min:"0" default:"65536" example:"\"1MB\""`
	MaxInFlight      int64               `key:"max_in_flight" doc:"Maximum number of requests with copies in flight to a cluster; further requests are not copied to it." min:"1" default:"128" example:"1000"`
	Additional       []AdditionalCluster `key:"more" doc:"More clusters that get copies."`

	inheritsCopies bool // broadcast and amplification are those of the listener's filter
}

// AdditionalCluster is an additional cluster that gets copies. It uses the other settings of
// Config.
type AdditionalCluster struct {
	Cluster          string  `key:"cluster" doc:"Cluster that gets the copies; required without cluster_header." refers:"cluster" example:"\"canary\""`
	ClusterHeader    string  `key:"cluster_header" doc:"Header of the request that names the cluster, instead of cluster." example:"\"x-shadow\""`
	Percent          float64 `key:"percent" doc:"Fraction of requests to copy to this cluster." unit:"percent" min:"0" max:"100" default:"100" example:"10"`
	Protocol         string  `key:"upstream_protocol" doc:"Protocol for that cluster; empty: the protocol of the request." enum:"Http1|Http2" example:"\"Http1\""`
	ShadowHostSuffix bool    `key:"shadow_host_suffix" doc:"Appends -shadow to the host, before the port, as Envoy does." default:"false" example:"true"`
}

// Validate returns an error if a cluster that gets copies has two names or none.
func (c *Config) Validate() error {
	if c.Cluster != "" && c.ClusterHeader != "" {
		return errors.New("cluster and cluster_header are mutually exclusive")
	}
	for i, a := range c.Additional {
		if (a.Cluster == "") == (a.ClusterHeader == "") {
			return fmt.Errorf("more[%d]: exactly one of cluster and cluster_header is required", i)
		}
	}
	return nil
}

// Warnings returns the keys without effect.
func (c *Config) Warnings() []document.KeyError {
	if c.Broadcast && c.Amplification != 1 {
		return []document.KeyError{{Key: "amplification", Err: errors.New("amplification has no effect together with broadcast")}}
	}
	return nil
}

// InheritCopies makes the settings of a route use broadcast and amplification of the listener's
// filter, as request_mirror_policies of MOSN do. The reader of routes calls it.
func (c *Config) InheritCopies() { c.inheritsCopies = true }

// inherit returns the settings of a route, with broadcast and amplification of the listener's
// filter if the route inherits them.
func inherit(listener, route any) any {
	c := *route.(*Config) //nolint:forcetypeassert // what Config returned
	if from, ok := listener.(*Config); ok && c.inheritsCopies {
		c.Broadcast, c.Amplification = from.Broadcast, from.Amplification
	}
	return &c
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "mirror",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		Inherit: inherit,
		New:     build,
		Metrics: []metrics.Metric{copiesMetric(), skippedMetric()},
	}
}

func copiesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_mirror_copies_total", Help: "Copies that the mirror filter sent, by result: succeeded or failed.", Kind: metrics.KindCounter, Labels: []string{"result"}}
}

func skippedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_mirror_skipped_total", Help: "Requests that were selected but not copied, by reason: too_large (the body), overflow (too many copies in flight to a cluster) or unsupported (cannot be copied).", Kind: metrics.KindCounter, Labels: []string{"reason"}}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := *cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	targets := targetsOf(&c)
	if len(targets) == 0 {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	counter := func(m metrics.Metric, label string) *metrics.Counter { return env.Metrics.Counter(m, label) }
	m := mirror{
		config: c, client: env.ClusterClient, targets: targets,
		randomPercent: func() float64 { return rand.Float64() * 100 },
		succeeded:     counter(copiesMetric(), "succeeded"), failed: counter(copiesMetric(), "failed"),
		tooLarge: counter(skippedMetric(), "too_large"), overflow: counter(skippedMetric(), "overflow"), notCopyable: counter(skippedMetric(), "unsupported"),
	}
	return m.wrap, nil
}

// targetsOf returns the clusters that get copies.
func targetsOf(c *Config) (targets []*target) {
	for _, cluster := range append([]AdditionalCluster{{Cluster: c.Cluster, ClusterHeader: c.ClusterHeader, Percent: c.Percent, Protocol: c.Protocol, ShadowHostSuffix: c.ShadowHostSuffix}}, c.Additional...) {
		if cluster.Cluster+cluster.ClusterHeader != "" && cluster.Percent > 0 {
			targets = append(targets, &target{percent: cluster.Percent, addsSuffix: cluster.ShadowHostSuffix, clusterHeader: cluster.ClusterHeader,
				callTarget: filter.Target{Cluster: cluster.Cluster, Protocol: config.Protocol(cluster.Protocol)}, inFlight: new(atomic.Int64)})
		}
	}
	return targets
}

// target is a cluster that gets copies.
type target struct {
	percent       float64
	addsSuffix    bool
	clusterHeader string // header that names the cluster; "": callTarget has the cluster
	callTarget    filter.Target
	inFlight      *atomic.Int64 // requests whose copies are in flight; all routes with this configuration share it
}

// resolve returns t with the cluster for x. It returns nil if the request names none.
func (t *target) resolve(x *protocol.Exchange) *target {
	if t.clusterHeader == "" {
		return t
	}
	cluster := headerOf(&x.Request, t.clusterHeader)
	if cluster == "" {
		return nil
	}
	resolved := *t
	resolved.callTarget.Cluster = cluster
	return &resolved
}

// headerOf returns the first value of a header or pseudo-header of r, "" if there is none.
func headerOf(r *protocol.Request, name string) string {
	switch {
	case name[0] != ':' && !protocol.EqualFold(name, "host"):
		return strings.Clone(r.Header.Get(name)) // the header is reused before the copy ends
	case protocol.EqualFold(name, ":path"):
		return strings.Clone(r.Path)
	case protocol.EqualFold(name, ":method"):
		return strings.Clone(r.Method)
	case protocol.EqualFold(name, ":scheme"):
		return strings.Clone(r.Scheme)
	case protocol.EqualFold(name, ":authority"), name[0] != ':':
		return strings.Clone(r.Authority)
	}
	return ""
}

// mirror is immutable; only its counters change.
type mirror struct {
	config        Config
	targets       []*target // not empty
	client        filter.ClusterClient
	next          protocol.Service
	randomPercent func() float64 // returns a uniform random number in [0, 100)

	succeeded, failed               *metrics.Counter
	tooLarge, overflow, notCopyable *metrics.Counter
}

// wrap returns a service that runs m and then next.
func (m mirror) wrap(next protocol.Service) protocol.Service {
	m.next = next
	return &m
}

// Start implements protocol.Service.
func (m *mirror) Start(ctx context.Context, x *protocol.Exchange) error {
	if targets := m.sampleTargets(x); len(targets) > 0 {
		m.copyRequest(x, targets)
	}
	return m.next.Start(ctx, x)
}

// sampleTargets samples the targets that get a copy of x's request.
func (m *mirror) sampleTargets(x *protocol.Exchange) (sampled []*target) {
	for _, t := range m.targets {
		if m.randomPercent() >= t.percent {
			continue
		}
		switch resolved := t.resolve(x); {
		case resolved == nil:
		case t.inFlight.Load() >= m.config.MaxInFlight: // launch would drop the copy
			m.overflow.Add(1)
		case len(m.targets) == 1 && resolved == t:
			return m.targets
		default:
			sampled = append(sampled, resolved)
		}
	}
	return sampled
}

// copyRequest copies x's request to targets: immediately if it has no body or is an RPC frame, else
// when the body has been read.
func (m *mirror) copyRequest(x *protocol.Exchange, targets []*target) {
	r := &x.Request
	switch {
	case r.Method == "":
		if frame, ok := copyFrame(x, m.config.MaxBody); ok {
			m.launch(frame, targets)
		} else if frame == nil {
			m.notCopyable.Add(1)
		} else {
			m.tooLarge.Add(1)
		}
	case r.Method == "CONNECT" || r.Upgrade != "":
		m.notCopyable.Add(1)
	case r.ContentLength > int64(m.config.MaxBody):
		m.tooLarge.Add(1)
	case r.Body == nil || r.ContentLength == 0:
		m.launch(m.prepareHead(x), targets)
	default:
		r.Body = &tee{Body: r.Body, mirror: m, targets: targets, request: m.prepareHead(x), length: r.ContentLength, trailer: &r.Trailer}
	}
}

// prepareHead returns the head of the copies of x's request.
func (m *mirror) prepareHead(x *protocol.Exchange) *httpCopy {
	r := copyHead(x)
	if m.config.XFF {
		r.header = appendForwardedFor(r.header, x.Meta.Conn)
	}
	return r
}

// launch sends the copies of r on one goroutine per target. It skips targets for which too many
// requests are in flight.
func (m *mirror) launch(r request, targets []*target) {
	for _, t := range targets {
		if t.inFlight.Add(1) > m.config.MaxInFlight {
			t.inFlight.Add(-1)
			m.overflow.Add(1)
			continue
		}
		m.client.Go(func(ctx context.Context) {
			defer t.inFlight.Add(-1)
			m.send(ctx, r, t)
		})
	}
}

// send sends the copies of r to t, one after the other, until ctx is done.
func (m *mirror) send(ctx context.Context, r request, t *target) {
	callTarget := t.callTarget
	n := m.config.Amplification
	if m.config.Broadcast {
		_, total := m.client.Hosts(callTarget.Cluster)
		n = max(total, 1) // a cluster without hosts counts as a failure
	}
	var attempts []protocol.Attempt // for a broadcast: hosts that already have a copy
	for range n {
		if ctx.Err() != nil {
			return
		}
		x := new(protocol.Exchange)
		x.Reset()
		if err := r.fill(x); err != nil {
			m.failed.Add(1)
			return
		}
		if t.addsSuffix && x.Request.Method != "" {
			x.Request.Authority = shadowHost(x.Request.Authority)
		}
		x.Meta.Start = time.Now()
		x.Deadline = x.Meta.Start.Add(m.config.Timeout)
		x.Record.Attempts = attempts
		callTarget.Timeout = m.config.Timeout
		err := m.client.Call(ctx, callTarget, x, func() error { return drain(x.Response.Body) })
		if err != nil {
			m.failed.Add(1)
		} else {
			m.succeeded.Add(1)
		}
		if m.config.Broadcast {
			attempts = x.Record.Attempts
		}
	}
}
