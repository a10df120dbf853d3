package router

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Route is one rule of a Table. Its methods act on the exchange that it was
// matched for and keep nothing of it; everything in it is immutable.
type Route struct {
	Config      *config.Route
	VirtualHost string // its name

	when  *routeMatcher // nil: the path, or nothing, is all that it asks for
	outer inherited     // what it was compiled within

	timeoutFields bool // see WithTimeoutFields

	// What it does; nil for nothing.
	request, response *mutation
	path              *pathRewrite
	host              *hostRewrite
	cluster           *clusterSelector
	hash              []hashPolicy
}

// inherited is what a route inherits of its virtual host and table; nil for nothing.
type inherited struct{ request, response *mutation }

// RewriteRequest makes the request what the upstream is to see: header mutations of the
// weighted cluster that was chosen (Record.Choice), the route, the virtual host and the
// table, in this order, then Authority, then Path. A path that changes is kept in Record.OriginalPath, query included, and,
// without its query, in the request's x-mosn-original-path field.
//
// Of an RPC request a changed path changes the fields service and method that it
// shows, and no field tells of it; a rewrite that does not leave a "/service/method"
// changes nothing. Its Authority stays, and an addition to service, method, version
// or group takes the place of what is there.
//
// It is called once per exchange, before the first attempt. It allocates a new
// path, unless prefix_rewrite only takes something away, and what Text of a
// variable.Template allocates.
func (r *Route) RewriteRequest(x *protocol.Exchange) {
	request := r.request
	if s := r.share(x); s != nil {
		request = s.request
	}
	request.apply(&x.Request.Header, x)
	if r.host != nil {
		r.host.apply(x)
	}
	if r.path != nil {
		r.path.apply(x)
	}
}

// MutatesResponse reports whether MutateResponse changes anything.
func (r *Route) MutatesResponse() bool {
	return r.response != nil || r.cluster != nil && slices.ContainsFunc(r.cluster.shares, func(s weightedCluster) bool { return s.response != nil })
}

// share is the weighted cluster that was chosen for x, nil if there are none.
func (r *Route) share(x *protocol.Exchange) *weightedCluster {
	if r.cluster == nil || r.cluster.shares == nil {
		return nil
	}
	return &r.cluster.shares[x.Record.WeightedIndex]
}

// MutateResponse makes the answer what the caller is to see: header mutations
// of the route, the virtual host and the table, in this order.
func (r *Route) MutateResponse(x *protocol.Exchange) {
	response := r.response
	if s := r.share(x); s != nil {
		response = s.response
	}
	response.apply(&x.Response.Header, x)
}
