package filter

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ConnectionFilter decides whether Weft serves a connection. It returns nil to allow the
// connection. If it returns an error, Weft closes the connection with the reason ClosedDenied. Weft
// calls it once per connection, after the TLS handshake if there is one. It must not retain conn
// and must be safe for concurrent use.
type ConnectionFilter func(conn *protocol.ConnMeta) error

// ConnectionFilterFactory describes a network filter to the registry. The filter runs before
// those that serve connections. Either New or NewObserver is set.
type ConnectionFilterFactory struct {
	Name string // as spelled in config.json

	// Config and Metrics are as in StreamFilterFactory.
	Config  func() any
	Metrics []metrics.Metric

	// New builds the filter from the filled result of Config. Weft calls it once per filter chain
	// when it builds a snapshot. New starts nothing. The fields Log, Metrics, ClusterClient and Key
	// of env are set.
	New func(cfg any, env Env) (ConnectionFilter, error)

	// NewObserver is set instead of New if the filter only observes: its observer sees the
	// connections that a later tcp_proxy forwards. Weft calls it like New.
	NewObserver func(cfg any, env Env) (SessionObserver, error)
}
