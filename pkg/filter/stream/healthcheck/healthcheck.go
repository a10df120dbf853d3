// Package healthcheck owns the healthcheck filter: it answers those who ask
// whether Weft is alive, in the application's place.
package healthcheck

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration. Heartbeats of RPC protocols need none:
// their engine answers them, with the filter or without.
type Config struct {
	Endpoint     string             `key:"endpoint" doc:"Path of the HTTP requests that are answered, without a query; empty: none." example:"\"/healthz\""`
	GRPC         bool               `key:"grpc" doc:"Answer calls of gRPC's health protocol, grpc.health.v1.Health, over HTTP/2." example:"true"`
	GRPCServices []string           `key:"grpc_services" doc:"Names that grpc knows beside the empty one, which is Weft as a whole; others are not found." example:"[\"shop.Items\"]"`
	PassThrough  bool               `key:"passthrough" doc:"Let the application answer, heartbeats included." unbuilt:"passthrough" example:"true"`
	CacheTime    time.Duration      `key:"cache_time" doc:"How long an answer of the application's is given again." noeffect:"it belongs to passthrough" example:"\"360s\""`
	MinHealthy   map[string]float64 `key:"cluster_min_healthy_percentages" doc:"Share of a cluster's hosts that must be healthy, by the cluster's name." unbuilt:"cluster_min_healthy_percentages" example:"{\"shop\": 70}"`
}

// Validate is called once the configuration was read.
func (c *Config) Validate() error {
	if c.Endpoint != "" && (c.Endpoint[0] != '/' || strings.ContainsAny(c.Endpoint, "?# ")) {
		return errors.New("endpoint is no path")
	}
	if len(c.GRPCServices) > 0 && !c.GRPC {
		return errors.New("grpc_services without grpc")
	}
	return nil
}

// Kind is the filter's entry for the registry.
func Kind() filter.Stream {
	return filter.Stream{
		Name:    "healthcheck",
		Stage:   filter.BeforeRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{answered()},
	}
}

func answered() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_healthcheck_answered_total", Help: "Health requests that the healthcheck filter answered.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // what Config returned
	if c.Endpoint == "" && !c.GRPC {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	count := env.Metrics.Counter(answered())
	var grpc *health
	if c.GRPC {
		grpc = &health{services: c.GRPCServices}
	}
	return func(next protocol.Service) protocol.Service {
		return &healthCheck{c.Endpoint, grpc, count, protocol.Halves(next)}
	}, nil
}

// healthCheck is immutable but for its counter.
type healthCheck struct {
	endpoint string  // "": none
	grpc     *health // nil: none
	answered *metrics.Counter
	next     protocol.Starter
}

// Serve is protocol.Service's.
func (h *healthCheck) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.Run(ctx, h, x)
}

// Start is protocol.Starter's.
func (h *healthCheck) Start(ctx context.Context, x *protocol.Exchange) error {
	switch {
	case h.endpoint != "" && asked(&x.Request, h.endpoint):
		h.answered.Add(1)
		x.Reply(200, "text/plain; charset=utf-8", "ok\n")
		return nil
	case h.grpc != nil && called(x):
		h.answered.Add(1)
		return x.Fork(ctx, h.grpc) // its content may still be on its way
	}
	return h.next.Start(ctx, x)
}

// asked reports whether r is a health request of HTTP. RPC requests have no method.
func asked(r *protocol.Request, endpoint string) bool {
	if r.Method != "GET" && r.Method != "HEAD" {
		return false
	}
	rest, ok := strings.CutPrefix(r.Path, endpoint)
	return ok && (rest == "" || rest[0] == '?')
}
