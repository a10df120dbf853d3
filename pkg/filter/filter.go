// Package filter owns the contract of filters. Each filter is a folder below
// it and one line in cmd/weft/registry.go.
package filter

import (
	"log/slog"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Filter puts itself before a service: what it does before calling next is the
// request path, what it does after is the response path, and not calling next
// is an answer of its own (x.Reply, or a Fault).
type Filter func(next protocol.Service) protocol.Service

// Stage is where a filter stands.
type Stage uint8

const (
	// AfterRoute filters run inside the route that matched, with that route's
	// per_filter_config in place of their own if it has one. When no route
	// matches they run with the listener's configuration.
	AfterRoute Stage = iota
	// BeforeRoute filters run before the router and can change what matches.
	BeforeRoute
)

// StreamFilterFactory describes a kind of stream filter to the registry.
type StreamFilterFactory struct {
	Name  string // as config.json spells it
	Stage Stage

	// Config returns a pointer to a new configuration struct that holds the
	// defaults. Package config/document fills it by its field tags, for the
	// filter and for routes alike; if it has a method Validate() error, that is
	// called last.
	Config func() any

	// Inherit returns what own, a route's configuration, means at a filter of a listener
	// that is configured as of: both are what Config returned, filled, and stay as they
	// are. nil: it takes the place of the listener's as a whole.
	Inherit func(of, own any) any

	// New builds the filter from what Config returned, filled. It is called
	// once per chain and once per route that overrides the configuration, when
	// a snapshot is built, and starts nothing.
	New func(cfg any, env Env) (Filter, error)

	// Metrics describes what the filter counts in Env.Metrics, for its README
	// and docs/observability.md.
	Metrics []metrics.Metric
}

// Env is what a filter may use of the process. New is given one without nils.
type Env struct {
	Log           *slog.Logger // names the filter already
	Metrics       *metrics.Registry
	ClusterClient ClusterClient
	// Cluster returns what a cluster is configured as, nil if there is none of the name; the
	// result is not changed. For while exchanges are served, not for New. Safe for
	// concurrent use.
	Cluster func(name string) *config.Cluster
	// Observe has f called once for each exchange of the filter's listener, those that no
	// route matched among them, after the last byte of its answer: f keeps nothing of it
	// (docs/ownership.md), waits for nothing, and is safe for concurrent use. It is
	// called by New, of filters that stand before the route; those behind it would
	// observe the exchanges of other routes, too.
	Observe func(f func(x *protocol.Exchange))
	// Key is where the filter stands: the listener, the position among its filters,
	// and the route if the configuration is that route's own. It is the same after a
	// reload, so that what outlives a configuration is found by it. "" in a test.
	Key string
}
