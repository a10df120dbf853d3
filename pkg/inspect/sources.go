package inspect

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"runtime"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/proxy/explain"
	"github.com/weft-proxy/weft/pkg/proxy/overload"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Sources provides the state that the views show. Each function must be safe for concurrent use.
// The views do not modify the returned values. An endpoint whose source is nil does not exist.
type Sources struct {
	State   func() State
	Process func() Process
	Config  func() ConfigDump

	// Either all of Clusters, Cluster and FileClusters are set, or none.
	Clusters func() []upstream.ClusterStatus
	Cluster  func(name string) (upstream.ClusterStatus, bool) // false: the cluster does not exist
	// FileClusters returns the names of the clusters that the configuration file defines, including
	// those in static_resources. Control planes and applications add the others.
	FileClusters func() map[string]bool

	Listeners func() []proxy.ListenerStatus
	Routes    func(table string) []proxy.RouteTableStatus // empty for an unknown table; "": all tables
	Overload  func() *overload.Status                     // nil: no overload manager is configured

	// Certificates returns the certificates of each TLS context that is in use.
	Certificates func() []credential.Certificates

	// Runtime returns the layers of the runtime; later layers override earlier ones.
	Runtime func() []RuntimeLayer

	// UnreadyListeners returns the listeners that are not active in their last version; while the
	// process starts, all listeners.
	UnreadyListeners func() []UnreadyListener

	// XDS returns the state of the control planes; nil if none is configured.
	XDS func() *XDS
	// Dump returns the resources that control planes sent; see ConfigDump.Configs. resource and
	// includeEndpoints are the parameters resource and include_eds of Envoy's /config_dump. Dump
	// returns nil if there is no control plane, and an error if a parameter is invalid.
	Dump func(resource string, includeEndpoints bool) ([]json.RawMessage, error)

	// Samples returns the current values of the metrics. Statistics also need Clusters, Listeners,
	// Process and ReadMemory.
	Samples    func() iter.Seq[metrics.Sample]
	ReadMemory func(*runtime.MemStats) // runtime.ReadMemStats
	Metrics    http.Handler            // the metrics in the Prometheus format

	// Explain returns where a request would go, or an error if the query is invalid.
	Explain func(query url.Values) (*explain.Result, error)

	Level    func() string            // log level
	SetLevel func(level string) error // the error lists the valid levels

	SetHealthFailed func(failed bool) // makes health checks fail, or succeed again

	// DrainListeners stops listeners, drains their connections, or both, and returns before that.
	DrainListeners func(DrainListeners)

	Drain func() // starts a drain and returns
	Exit  func() // ends the process without a drain, and returns before that
	// Reload reads the configuration again and returns the result. It returns an error only if ctx
	// ends first.
	Reload func(ctx context.Context) (Reload, error)

	counterResets *counterResets // set by Endpoints

	Pprof bool // true: the admin port serves profiles
}
