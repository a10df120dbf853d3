package router

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Route is one rule of a Table. Its methods act on an exchange that matched it and do not retain
// the exchange. A Route is immutable.
type Route struct {
	Config      *config.Route
	VirtualHost string // name of the route's virtual host

	matcher   *routeMatcher // nil: the route has no conditions, or only a path
	inherited inherited

	trustTimeoutHeaders bool // see WithTimeoutHeaders
	originals           originals

	// Actions of the route; nil: none.
	request, response *mutation
	path              *pathRewrite
	host              *hostRewrite
	cluster           *clusterSelector
	hash              []hashPolicy
	retry             *retryConditions
}

// inherited holds the mutations of a route's virtual host and table; nil: none.
type inherited struct{ request, response *mutation }

// RewriteRequest changes the request for the upstream. It applies the header mutations of the
// chosen weighted cluster (Record.WeightedIndex), the route, the virtual host and the table, in
// this order or that of config.RouteTable.MostSpecificMutationsWin. Then it rewrites Authority, then Path. If the path changes, RewriteRequest stores the
// original path in Record.OriginalPath with its query, and in a request header: OriginalPathHeader, or
// see WithEnvoyOriginals.
//
// For an RPC request, a new path changes the headers service and method, and no header contains the
// original path. A rewrite whose result is not "/service/method" has no effect. The Authority does
// not change. An addition to service, method, version or group replaces the present value.
//
// The caller calls RewriteRequest once per exchange, before the first attempt. RewriteRequest
// allocates for a new path, unless prefix_rewrite only removes a part. It also allocates for values
// with variables.
func (r *Route) RewriteRequest(x *protocol.Exchange) {
	request, host := r.request, r.host
	if w := r.weightedCluster(x); w != nil {
		request = w.request
		if w.host != nil {
			host = w.host
		}
	}
	request.apply(&x.Request.Header, x)
	if host != nil {
		host.apply(x, r.originals)
	}
	if r.path != nil {
		r.path.apply(x, r.originals)
	}
}

// ChangesRequestHeader reports whether a header mutation of the route, its weighted clusters, its
// virtual host or its table removes the request header name, or replaces its value.
func (r *Route) ChangesRequestHeader(name string) bool {
	if r.request.changes(name) {
		return true
	}
	return r.cluster != nil && slices.ContainsFunc(r.cluster.clusters, func(w weightedCluster) bool { return w.request.changes(name) })
}

// WithForward returns a copy of r whose configuration has f. f must have the rewrites and header
// mutations of r.
func (r *Route) WithForward(f *config.Forward) *Route {
	clone, c := *r, *r.Config
	c.Forward = f
	clone.Config = &c
	return &clone
}

// MutatesResponse reports whether MutateResponse has any mutation to apply.
func (r *Route) MutatesResponse() bool {
	return r.response != nil || r.cluster != nil && slices.ContainsFunc(r.cluster.clusters, func(w weightedCluster) bool { return w.response != nil })
}

// weightedCluster returns the weighted cluster that was chosen for x, nil if the route has none.
func (r *Route) weightedCluster(x *protocol.Exchange) *weightedCluster {
	if r.cluster == nil || r.cluster.clusters == nil {
		return nil
	}
	return &r.cluster.clusters[x.Record.WeightedIndex]
}

// MutateResponse applies the header mutations to the response: those of the chosen weighted
// cluster, the route, the virtual host and the table, in the order of RewriteRequest.
func (r *Route) MutateResponse(x *protocol.Exchange) {
	response := r.response
	if w := r.weightedCluster(x); w != nil {
		response = w.response
	}
	response.apply(&x.Response.Header, x)
}
