// Package filter defines the contract of filters. Each filter has a directory below this one and
// one line in cmd/weft/registry.go.
package filter

import (
	"log/slog"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Filter wraps a service. Code before the call of next is the request path, code after it the
// response path. A filter that does not call next sends a local reply (x.LocalReply) or returns a
// Fault.
type Filter func(next protocol.Service) protocol.Service

// Stage says whether a filter runs before or after the router.
type Stage uint8

const (
	// AfterRoute filters run after Weft has chosen the route. If the route's per_filter_config has a
	// configuration, they run with it (see StreamFilterFactory.Inherit), otherwise with the
	// listener's, also when no route matches.
	AfterRoute Stage = iota
	// BeforeRoute filters run before the router and can change what matches.
	BeforeRoute
)

// StreamFilterFactory describes a stream filter to the registry.
type StreamFilterFactory struct {
	Name  string // as spelled in config.json
	Stage Stage

	// Config returns a pointer to a new configuration struct. Package config/document fills it by
	// its field tags, which also declare defaults, for listeners and routes alike. If the struct
	// has a method Validate() error, document calls that last.
	Config func() any

	// Inherit merges a route's configuration into the listener's and returns the effective one.
	// Both are filled results of Config, which Inherit must not change. If Inherit is nil, the
	// route's configuration replaces the listener's entirely.
	Inherit func(listener, route any) any

	// New builds the filter from the filled result of Config. Weft calls it when it builds a
	// snapshot: once per chain and once per route that overrides the configuration. New starts
	// nothing.
	New func(cfg any, env Env) (Filter, error)

	// Metrics describes the metrics that the filter registers in Env.Metrics, for its README and
	// docs/observability.md.
	Metrics []metrics.Metric
}

// Env holds the parts of the process that a filter may use. A StreamFilterFactory gets all fields;
// ConnectionFilterFactory says which ones its functions get.
type Env struct {
	Log           *slog.Logger // has the filter's name as an attribute
	Metrics       *metrics.Registry
	ClusterClient ClusterClient
	// Cluster returns the configuration of a cluster, or nil if no cluster has that name. The
	// caller must not change it. Filters may call Cluster while exchanges are served, not in New.
	// It is safe for concurrent use.
	Cluster func(name string) *config.Cluster
	// Observe registers f. Weft calls f once for each exchange of the filter's chain, after the
	// last byte of the response, even if no route matched. f must not retain x (docs/ownership.md)
	// or block, and must be safe for concurrent use. Only New of BeforeRoute filters may call
	// Observe; an AfterRoute filter would also observe the exchanges of other routes.
	Observe func(f func(x *protocol.Exchange))
	// HealthFailed reports whether /healthcheck/fail of the admin port is in effect; nil: it never
	// is. It is safe for concurrent use.
	HealthFailed func() bool
	// Key identifies the filter by its listener, its filter chain, its index among the filters and,
	// if the configuration is a route's, the route. Key stays the same across reloads, so filters
	// use it as a cache key for state that outlives a configuration.
	Key string
}
