// Package cdnloop implements the cdn_loop filter, which rejects requests that have passed through
// this network of proxies before (RFC 8586).
package cdnloop

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	ID  string `key:"cdn_id" doc:"Identifier of this network of proxies: a host name with or without a port, or a pseudonym." required:"true" example:"\"cdn.shop.test\""`
	Max int    `key:"max_allowed_occurrences" doc:"How often a request may have passed through this network before." min:"0" max:"4294967295" default:"0" example:"1"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if id, rest, ok := cutID(c.ID); !ok || id != c.ID || rest != "" {
		return errors.New("cdn_id is not a valid identifier of RFC 8586")
	}
	return nil
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "cdn_loop",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{loopsMetric(), malformedMetric()},
	}
}

func loopsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_cdn_loop_loops_total", Help: "Requests rejected because of a loop.", Kind: metrics.KindCounter}
}

func malformedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_cdn_loop_malformed_total", Help: "Requests rejected because their CDN-Loop is malformed.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := *cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	loops, malformed := env.Metrics.Counter(loopsMetric()), env.Metrics.Counter(malformedMetric())
	return func(next protocol.Service) protocol.Service { return &cdnLoop{c, loops, malformed, next} }, nil
}

// cdnLoop is immutable; only its counters change.
type cdnLoop struct {
	config           Config
	loops, malformed *metrics.Counter
	next             protocol.Service
}

// Reasons for a rejection.
var (
	errMalformed = errors.New("cdn_loop: CDN-Loop is malformed")
	errLoop      = errors.New("cdn_loop: the request has passed through this network too often")
)

// HTTP statuses of rejections.
const (
	malformedStatus = 400
	loopStatus      = 502
)

// reject sends a local reply with an HTTP status or, to gRPC clients, a gRPC status.
func reject(x *protocol.Exchange, err error, status int, grpcStatus string) {
	x.LocalReplyError(protocol.NewFault(protocol.ReasonDenied, err))
	x.Response.Status = status
	if protocol.IsGRPC(&x.Request.Header) {
		x.Response.Header.Set("grpc-status", grpcStatus) // the engine does not change it
	}
}

// Start implements protocol.Service.
func (c *cdnLoop) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Method == "" {
		return c.next.Start(ctx, x) // RPC protocols have no such field
	}
	passed, list := 0, ""
	for name, value := range x.Request.Header.All() {
		if !protocol.EqualFold(name, "CDN-Loop") {
			continue
		}
		n, ok := count(value, c.config.ID)
		if !ok {
			c.malformed.Add(1)
			reject(x, errMalformed, malformedStatus, "13") // INTERNAL
			return nil
		}
		passed += n
		if list != "" {
			list += ","
		}
		list += value
	}
	if passed > c.config.Max {
		c.loops.Add(1)
		reject(x, errLoop, loopStatus, "14") // UNAVAILABLE
		return nil
	}
	if list != "" {
		list += ","
	}
	x.Request.Header.Set("CDN-Loop", list+c.config.ID)
	return c.next.Start(ctx, x)
}
