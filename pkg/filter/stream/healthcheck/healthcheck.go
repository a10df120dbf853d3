// Package healthcheck implements the healthcheck filter. It responds to health checks instead of
// the application, or forwards them to the application and caches the status of the response.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration. It does not affect heartbeats of RPC protocols: their
// engine responds to them, with or without the filter.
type Config struct {
	Endpoint     string                      `key:"endpoint" doc:"Path of HTTP health checks, without a query. Empty: headers selects health checks; without headers, there are none." example:"\"/healthz\""`
	Headers      []match.HeaderMatcherConfig `key:"headers" doc:"Conditions that HTTP health checks must match, in addition to endpoint if it is set."`
	GRPC         bool                        `key:"grpc" doc:"Responds to gRPC health checks (grpc.health.v1.Health) over HTTP/2." example:"true"`
	GRPCServices []string                    `key:"grpc_services" doc:"Service names that grpc responds to, in addition to the empty name, which means Weft as a whole; other names are not found." example:"[\"shop.Items\"]"`
	PassThrough  bool                        `key:"passthrough,pass_through_mode" doc:"Forwards HTTP health checks to the application." default:"false" example:"true"`
	CacheTime    time.Duration               `key:"cache_time" doc:"With passthrough: how long the status of the application's last response is reused." example:"\"10s\""`
	MinHealthy   map[string]float64          `key:"cluster_min_healthy_percentages" doc:"Percentage of a cluster's hosts that must be usable, by cluster name; otherwise the response is 503, or NOT_SERVING for gRPC. Mutually exclusive with passthrough." refers:"cluster,warn" example:"{\"shop\": 70}"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	hasHTTPChecks := c.Endpoint != "" || len(c.Headers) > 0
	switch {
	case c.Endpoint != "" && (c.Endpoint[0] != '/' || strings.ContainsAny(c.Endpoint, "?# ")):
		return errors.New("endpoint is not a valid path: expected a leading slash, no query and no spaces")
	case len(c.GRPCServices) > 0 && !c.GRPC:
		return errors.New("grpc_services requires grpc")
	case c.PassThrough && (!hasHTTPChecks || c.GRPC):
		return errors.New("passthrough applies to HTTP health checks: it requires endpoint or headers, and is mutually exclusive with grpc; RPC heartbeats always get a local reply")
	case c.PassThrough && len(c.MinHealthy) > 0:
		return errors.New("passthrough and cluster_min_healthy_percentages are mutually exclusive")
	case len(c.MinHealthy) > 0 && !hasHTTPChecks && !c.GRPC:
		return errors.New("cluster_min_healthy_percentages requires endpoint, headers or grpc: RPC heartbeats always get a local reply")
	}
	for _, name := range slices.Sorted(maps.Keys(c.MinHealthy)) {
		if percentage := c.MinHealthy[name]; !(percentage >= 0 && percentage <= 100) {
			return fmt.Errorf("cluster_min_healthy_percentages of %q: %v is not a percentage", name, percentage)
		}
	}
	_, err := match.CompileHeaders("headers", c.Headers)
	return err
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory { return newFactory(time.Now) }

// newFactory is Factory with now as the clock.
func newFactory(now func() time.Time) filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "healthcheck",
		Stage:   filter.BeforeRoute,
		Config:  func() any { return new(Config) },
		New:     func(cfg any, env filter.Env) (filter.Filter, error) { return build(cfg, env, now) },
		Metrics: []metrics.Metric{respondedMetric()},
	}
}

func respondedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_healthcheck_responses_total", Help: "Health checks that the healthcheck filter responded to, by itself or with the last status of the application.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env, now func() time.Time) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	headers, err := match.CompileHeaders("headers", c.Headers)
	if err != nil {
		return nil, err
	}
	if c.Endpoint == "" && len(headers) == 0 && !c.GRPC {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	h := healthCheck{
		endpoint: c.Endpoint, headers: headers, minHealthy: minHealthy{c.MinHealthy, env.ClusterClient},
		responded: env.Metrics.Counter(respondedMetric()), failed: env.HealthFailed,
	}
	if h.failed == nil {
		h.failed = func() bool { return false }
	}
	if c.GRPC {
		h.grpc = &grpcHealth{services: c.GRPCServices, minHealthy: h.minHealthy, failed: h.failed}
	}
	if c.PassThrough {
		h.cache = &statusCache{ttl: c.CacheTime, now: now}
	}
	return func(next protocol.Service) protocol.Service {
		h := h
		h.next = next
		return &h
	}, nil
}

// healthCheck is immutable; only its counter and its status cache change.
type healthCheck struct {
	endpoint   string                // "": any path, if there are headers
	headers    []match.HeaderMatcher // all of them must match
	grpc       *grpcHealth           // nil: gRPC health checks are not configured
	cache      *statusCache          // nil: the filter responds, not the application
	minHealthy minHealthy
	failed     func() bool // see filter.Env.HealthFailed
	responded  *metrics.Counter
	next       protocol.Service
}

// Start implements protocol.Service.
func (h *healthCheck) Start(ctx context.Context, x *protocol.Exchange) error {
	if h.failed() && x.Request.Method != "" {
		announceFailure(x)
	}
	switch {
	case h.isHealthCheck(x):
		x.Record.HealthCheck = true
		return h.handleHealthCheck(ctx, x)
	case h.grpc != nil && isGRPCHealthCall(x):
		x.Record.HealthCheck = true
		h.responded.Add(1)
		return x.RunBlocking(ctx, h.grpc) // the body may be incomplete
	}
	return h.next.Start(ctx, x)
}

// handleHealthCheck sends a local reply to x, or forwards x to the application.
func (h *healthCheck) handleHealthCheck(ctx context.Context, x *protocol.Exchange) error {
	if h.failed() { // also with passthrough, as in Envoy
		h.responded.Add(1)
		x.Record.Flags |= protocol.HealthCheckFailed
		replyNotHealthy(x)
		return nil
	}
	if h.cache != nil {
		if status, ok := h.cache.get(); ok {
			h.responded.Add(1)
			x.LocalReply(status, "", "")
			x.Record.EnvoyReply = &checkCached
			return nil
		}
		x.PushFinisher(h)
		return h.next.Start(ctx, x)
	}
	h.responded.Add(1)
	switch {
	case isDraining(x):
		replyNotHealthy(x)
	case !h.minHealthy.isMet():
		replyNotHealthy(x)
		x.Record.EnvoyReply = &clusterUnhealthy
	default:
		h.replyHealthy(x)
	}
	return nil
}

func (h *healthCheck) replyHealthy(x *protocol.Exchange) {
	reply(x, 200, "ok\n")
	x.Record.EnvoyReply = &checkOK
	if len(h.minHealthy.percentages) > 0 {
		x.Record.EnvoyReply = &clusterHealthy
	}
}

func replyNotHealthy(x *protocol.Exchange) {
	reply(x, 503, "not healthy\n")
	x.Record.EnvoyReply = &checkFailed
}

// reply sends a local reply. The replies of Envoy have no text.
func reply(x *protocol.Exchange, status int, text string) {
	if x.EnvoyReplies != nil {
		text = ""
	}
	x.LocalReply(status, protocol.TextPlain, text)
}

//nolint:gochecknoglobals // constants
var (
	checkOK          = protocol.EnvoyReply{Details: "health_check_ok"}
	checkFailed      = protocol.EnvoyReply{Details: "health_check_failed"}
	checkCached      = protocol.EnvoyReply{Details: "health_check_cached"}
	clusterHealthy   = protocol.EnvoyReply{Details: "health_check_ok_cluster_healthy"}
	clusterUnhealthy = protocol.EnvoyReply{Details: "health_check_failed_cluster_unhealthy"}
)

// Finish implements protocol.Finisher. It caches the status of the response, unless the response
// says nothing about the application.
func (h *healthCheck) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	reason, status := x.Record.Reason, x.Response.Status
	if err != nil {
		reason = protocol.ReasonOf(err)
		status = reason.Spec().HTTP
	}
	if !saysNothingAboutHealth(reason) && status >= 200 { // a 101 is valid only for its own request
		h.cache.set(status)
	}
	return err
}

// saysNothingAboutHealth reports whether reason does not show whether the application is healthy,
// because the client, its request, a filter or the configuration caused it.
func saysNothingAboutHealth(reason protocol.Reason) bool {
	switch reason {
	case protocol.RateLimited, protocol.FaultInjected, protocol.VersionNotSupported, protocol.NotImplemented:
		return true
	default:
		return reason != protocol.ReasonNone && reason.Spec().HTTP < 500 // for example ReasonDownstreamDisconnect
	}
}

// isHealthCheck reports whether x is an HTTP health check. RPC requests, which have no method, are
// not.
func (h *healthCheck) isHealthCheck(x *protocol.Exchange) bool {
	r := &x.Request
	switch {
	case h.endpoint == "" && len(h.headers) == 0, r.Method == "":
		return false
	case h.endpoint != "":
		if r.Method != "GET" && r.Method != "HEAD" {
			return false
		}
		if rest, ok := strings.CutPrefix(r.Path, h.endpoint); !ok || rest != "" && rest[0] != '?' {
			return false
		}
	}
	for i := range h.headers {
		if !h.headers[i].Matches(x) {
			return false
		}
	}
	return true
}

// minHealthy holds the percentages of hosts that must be usable.
type minHealthy struct {
	percentages map[string]float64 // by cluster name
	client      filter.ClusterClient
}

// isMet reports whether every cluster has enough usable hosts. A cluster without hosts has enough
// only if its percentage is 0.
func (c minHealthy) isMet() bool {
	for name, percentage := range c.percentages {
		usable, total := c.client.Hosts(name)
		if percentage > 0 && (total == 0 || float64(usable)*100 < percentage*float64(total)) {
			return false
		}
	}
	return true
}

// statusCache caches the status of the application's last response. It is safe for concurrent use.
type statusCache struct {
	ttl time.Duration    // immutable; 0: get returns no status
	now func() time.Time // immutable

	mu      sync.Mutex
	status  int       // guarded by mu
	expires time.Time // guarded by mu
}

// get returns the status. ok is false if there is none or it has expired.
func (c *statusCache) get() (status int, ok bool) {
	if c.ttl == 0 {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status, c.now().Before(c.expires)
}

// set caches a status.
func (c *statusCache) set(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.expires = status, c.now().Add(c.ttl)
}
