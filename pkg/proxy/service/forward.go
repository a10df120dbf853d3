package service

import (
	"context"
	"math/rand/v2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// NoRoute returns a service that fails every exchange with ReasonNoRoute.
func NoRoute(table string) protocol.Service { return noRoute{table} }

type noRoute struct{ table string }

// Start implements protocol.Service.
func (n noRoute) Start(_ context.Context, x *protocol.Exchange) error {
	return protocol.Faultf(protocol.ReasonNoRoute, "nothing in route table %q matches %s %s%s",
		n.table, x.Request.Method, x.Request.Authority, x.Request.Path)
}

// Forward rewrites the request for the upstream and the response for the client as the route
// requires, and chooses the cluster to which next sends.
func Forward(next protocol.Service, route *router.Route) protocol.Service {
	return &forward{route: route, next: next}
}

// forward is immutable.
type forward struct {
	route *router.Route
	next  protocol.Service
}

// Start implements protocol.Service.
func (f *forward) Start(ctx context.Context, x *protocol.Exchange) error {
	if f.route.Hashes() {
		var newCookie bool
		if x.Record.Hash, newCookie = f.route.Hash(x, rand.Uint64()); newCookie {
			x.PushFinisher(cookieSetter{f.route})
		}
	}
	var random uint64
	if len(f.route.Config.Forward.WeightedClusters) > 0 {
		random = rand.Uint64()
	}
	cluster, index := f.route.ChooseCluster(x, random)
	x.Record.TargetCluster, x.Record.WeightedIndex = cluster, uint16(index) //nolint:gosec // limited by router.Compile
	f.route.RewriteRequest(x)
	if f.route.MutatesResponse() || f.route.Config.Forward.ClusterNotFoundStatus != 0 {
		x.PushFinisher(f)
	}
	return f.next.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (f *forward) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		err = f.replyNoCluster(x, err)
	}
	if err != nil && x.EnvoyReplies != nil && protocol.PanicIn(err) == nil {
		x.LocalReplyError(err) // the mutations of the route apply to local replies, too
		err = nil
	}
	if err != nil {
		return err
	}
	f.route.MutateResponse(x)
	return nil
}

// replyNoCluster responds with the route's ClusterNotFoundStatus if err reports that there is no
// cluster. It returns other errors.
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
	if cluster, ok := x.Record.Cluster.(*upstream.Cluster); ok && err == nil && cluster.Hashes() {
		c.route.SetCookie(x)
	}
	return err
}

// Reply returns a service that sends the local reply of a redirect or direct_response.
func Reply(route *router.Route) protocol.Service { return reply{route} }

type reply struct{ route *router.Route }

// Start implements protocol.Service.
func (r reply) Start(_ context.Context, x *protocol.Exchange) error {
	r.route.Reply(x)
	return nil
}
