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

// Router finds an exchange's route and lets that route's service answer it. A new
// configuration makes a new one, but where only routes have changed: these the Router
// takes. What an exchange has found it keeps to its end.
type Router struct {
	now atomic.Pointer[routing]

	// What routes are composed with. Immutable.
	proxy   *config.Proxy
	filters []routeFilter
	// unrouted serves exchanges that no route matches: the filters with the listener's
	// settings, and behind them the fault.
	unrouted protocol.AsyncService
}

// routing is a table and what its routes are served by. Immutable.
type routing struct {
	table  *router.Table
	routes []routed // by their places in the table
}

// routed serves the exchanges of one route.
type routed struct {
	service protocol.AsyncService
	place   *routeScope
}

// Serve answers x by the first route that matches.
func (r *Router) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, r, x)
}

// Start is protocol.AsyncService's.
func (r *Router) Start(ctx context.Context, x *protocol.Exchange) error {
	now := r.now.Load()
	at := now.table.Find(x)
	if at < 0 {
		return r.unrouted.Start(ctx, x)
	}
	to := &now.routes[at]
	x.Record.Route = to.place
	return to.service.Start(ctx, x)
}

// noRoute is the end of the way of an exchange that no route of a table matches.
type noRoute struct{ table string }

// Serve is protocol.Service's.
func (n noRoute) Serve(_ context.Context, x *protocol.Exchange) error {
	return protocol.Faultf(protocol.ReasonNoRoute, "nothing in route table %q matches %s %s%s",
		n.table, x.Request.Method, x.Request.Authority, x.Request.Path)
}

// Start is protocol.AsyncService's.
func (n noRoute) Start(ctx context.Context, x *protocol.Exchange) error { return n.Serve(ctx, x) }

// forward makes the request what the upstream is to see, and the answer what
// the caller is to see.
type forward struct {
	route *router.Route
	next  protocol.AsyncService
}

// Serve is protocol.Service's.
func (f *forward) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, f, x)
}

// Start is protocol.AsyncService's.
func (f *forward) Start(ctx context.Context, x *protocol.Exchange) error {
	if f.route.Hashes() {
		var made bool
		if x.Record.Hash, made = f.route.Hash(x, rand.Uint64()); made {
			x.PushFinisher(cookie{f.route})
		}
	}
	var random uint64
	if len(f.route.Config.Forward.Weighted) > 0 {
		random = rand.Uint64()
	}
	x.Record.TargetCluster, x.Record.WeightedIndex = f.route.ChooseCluster(x, random)
	f.route.RewriteRequest(x)
	if f.route.MutatesResponse() || f.route.Config.Forward.NoClusterStatus != 0 {
		x.PushFinisher(f)
	}
	return f.next.Start(ctx, x)
}

// Finish is protocol.Finisher's.
func (f *forward) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		return f.answerNoCluster(x, err)
	}
	f.route.MutateResponse(x)
	return nil
}

// answerNoCluster answers with the route's NoClusterStatus if err says that there is no
// cluster. Other errors it returns.
func (f *forward) answerNoCluster(x *protocol.Exchange, err error) error {
	status := f.route.Config.Forward.NoClusterStatus
	if status == 0 || protocol.ReasonOf(err) != protocol.NoCluster {
		return err
	}
	x.LocalReplyError(err)
	x.Response.Status = status
	return nil
}

// cookie gives the caller the cookie that it will be known by, if the cluster that has
// answered goes by it.
type cookie struct{ route *router.Route }

// Finish is protocol.Finisher's.
func (c cookie) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if to, ok := x.Record.Cluster.(*upstream.Cluster); ok && err == nil && to.Hashes() {
		c.route.SetCookie(x)
	}
	return err
}

// reply answers by itself, as a redirect or direct_response says.
type reply struct{ route *router.Route }

// Serve is protocol.Service's.
func (r reply) Serve(_ context.Context, x *protocol.Exchange) error {
	r.route.Reply(x)
	return nil
}

// Start is protocol.AsyncService's.
func (r reply) Start(ctx context.Context, x *protocol.Exchange) error { return r.Serve(ctx, x) }

// dynamicCluster goes into the cluster that the route chose for the exchange.
type dynamicCluster func(name string) *upstream.ClusterPicker

// Serve is protocol.Service's.
func (find dynamicCluster) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, find, x)
}

// Start is protocol.AsyncService's.
func (find dynamicCluster) Start(ctx context.Context, x *protocol.Exchange) error {
	way := find(x.Record.TargetCluster)
	if way == nil {
		return protocol.Faultf(protocol.NoCluster, "the route chose cluster %q", x.Record.TargetCluster)
	}
	return way.Start(ctx, x)
}

// weightedClusters goes into the weighted cluster that the route chose for the exchange.
type weightedClusters []*upstream.ClusterPicker

// Serve is protocol.Service's.
func (ways weightedClusters) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, ways, x)
}

// Start is protocol.AsyncService's.
func (ways weightedClusters) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Record.TargetCluster == "" {
		return protocol.Faultf(protocol.NoCluster, "the weights of all clusters of the route are 0")
	}
	return ways[x.Record.WeightedIndex].Start(ctx, x)
}

// retryBudget returns what bounds the retries of exchanges of a priority: the circuit
// breaker of the cluster that they went to.
func retryBudget(p config.Priority) func(x *protocol.Exchange) RetryBudget {
	return func(x *protocol.Exchange) RetryBudget {
		c, _ := x.Record.Cluster.(*upstream.Cluster)
		if c == nil {
			return nil
		}
		return c.Breaker(p)
	}
}
