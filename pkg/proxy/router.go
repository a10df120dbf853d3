package proxy

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Router finds the route of an exchange and passes the exchange to that route's service. A new
// configuration creates a new Router, unless only routes have changed, which the Router adopts. An
// exchange keeps its route to its end.
type Router struct {
	active atomic.Pointer[routingTable]

	// Inputs for composing routes. Immutable.
	proxy   *config.Proxy
	filters []routeFilter
	// unrouted serves exchanges that no route matches: the filters with the listener's settings,
	// then the fault.
	unrouted protocol.Service
}

// routingTable is a table and the services of its routes. Immutable.
type routingTable struct {
	table  *router.Table
	routes []routeService // by index in the table
}

// routeService serves the exchanges of one route.
type routeService struct {
	service protocol.Service
	scope   *routeScope
}

// Start implements protocol.Service.
func (r *Router) Start(ctx context.Context, x *protocol.Exchange) error {
	now := r.active.Load()
	at := now.table.Find(x)
	if at < 0 {
		return r.unrouted.Start(ctx, x)
	}
	to := &now.routes[at]
	x.Record.Route = to.scope
	return to.service.Start(ctx, x)
}

// noRoute returns the Fault for exchanges that no route matches.
type noRoute struct{ table string }

// Start implements protocol.Service.
func (n noRoute) Start(_ context.Context, x *protocol.Exchange) error {
	return protocol.Faultf(protocol.ReasonNoRoute, "nothing in route table %q matches %s %s%s",
		n.table, x.Request.Method, x.Request.Authority, x.Request.Path)
}

// forward rewrites the request for the upstream and the response for the client.
type forward struct {
	route *router.Route
	next  protocol.Service
}

// Start implements protocol.Service.
func (f *forward) Start(ctx context.Context, x *protocol.Exchange) error {
	if f.route.Hashes() {
		var made bool
		if x.Record.Hash, made = f.route.Hash(x, rand.Uint64()); made {
			x.PushFinisher(cookieSetter{f.route})
		}
	}
	var random uint64
	if len(f.route.Config.Forward.WeightedClusters) > 0 {
		random = rand.Uint64()
	}
	x.Record.TargetCluster, x.Record.WeightedIndex = f.route.ChooseCluster(x, random)
	f.route.RewriteRequest(x)
	if f.route.MutatesResponse() || f.route.Config.Forward.ClusterNotFoundStatus != 0 {
		x.PushFinisher(f)
	}
	return f.next.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (f *forward) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		return f.replyNoCluster(x, err)
	}
	f.route.MutateResponse(x)
	return nil
}

// replyNoCluster responds with the route's NoClusterStatus if err says that there is no cluster.
// It returns other errors.
func (f *forward) replyNoCluster(x *protocol.Exchange, err error) error {
	status := f.route.Config.Forward.ClusterNotFoundStatus
	if status == 0 || protocol.ReasonOf(err) != protocol.NoCluster {
		return err
	}
	x.LocalReplyError(err)
	x.Response.Status = status
	return nil
}

// cookieSetter sends the client the hash cookie if the cluster that responded uses hashing.
type cookieSetter struct{ route *router.Route }

// Finish implements protocol.Finisher.
func (c cookieSetter) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if to, ok := x.Record.Cluster.(*upstream.Cluster); ok && err == nil && to.Hashes() {
		c.route.SetCookie(x)
	}
	return err
}

// reply sends the local reply of a redirect or direct_response.
type reply struct{ route *router.Route }

// Start implements protocol.Service.
func (r reply) Start(_ context.Context, x *protocol.Exchange) error {
	r.route.Reply(x)
	return nil
}

// dynamicCluster sends to the cluster that the route chose for the exchange.
type dynamicCluster func(name string) *upstream.ClusterPicker

// Start implements protocol.Service.
func (find dynamicCluster) Start(ctx context.Context, x *protocol.Exchange) error {
	way := find(x.Record.TargetCluster)
	if way == nil {
		return protocol.Faultf(protocol.NoCluster, "the route chose cluster %q", x.Record.TargetCluster)
	}
	return way.Start(ctx, x)
}

// weightedClusters sends to the weighted cluster that the route chose for the exchange.
type weightedClusters []*upstream.ClusterPicker

// Start implements protocol.Service.
func (ways weightedClusters) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Record.TargetCluster == "" {
		return protocol.Faultf(protocol.NoCluster, "the weights of all clusters of the route are 0")
	}
	return ways[x.Record.WeightedIndex].Start(ctx, x)
}

// retryBudget returns a function for the retry budget of a priority: the circuit breaker of the
// exchange's cluster.
func retryBudget(p config.Priority) func(x *protocol.Exchange) RetryBudget {
	return func(x *protocol.Exchange) RetryBudget {
		c, _ := x.Record.Cluster.(*upstream.Cluster)
		if c == nil {
			return nil
		}
		return c.Breaker(p)
	}
}
