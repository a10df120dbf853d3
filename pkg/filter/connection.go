package filter

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ConnectionFilter decides about a connection before anything of it is served: nil lets it in, an
// error says why it ends, with CauseDenied. It sees the connection once, after its TLS
// handshake if it has one, and keeps nothing of it. Safe for concurrent use.
type ConnectionFilter func(conn *protocol.ConnMeta) error

// ConnectionFilterFactory describes a kind of network filter that stands before those that serve
// connections, to the registry: it has New or Watch.
type ConnectionFilterFactory struct {
	Name string // as config.json spells it

	// Config and Metrics are as Stream has them.
	Config  func() any
	Metrics []metrics.Metric

	// New builds the filter from what Config returned, filled. It is called once per
	// filter chain, when a snapshot is built, and starts nothing. Of env it may use Log,
	// Metrics and Place.
	New func(cfg any, env Env) (ConnectionFilter, error)

	// NewObserver is New of a filter that decides nothing, and watches the connections that a
	// tcp_proxy behind it carries.
	NewObserver func(cfg any, env Env) (SessionObserver, error)
}
