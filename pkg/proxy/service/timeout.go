package service

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Timeout sets the deadline of an exchange from the timeouts of its route and its request. An
// earlier deadline stays, unless the route's GRPCTimeout removes or replaces it.
func Timeout(next protocol.Service, route *router.Route) protocol.Service {
	return &timeout{next, route, route.Config.Forward.Extra().IdleTimeout}
}

type timeout struct {
	next        protocol.Service
	route       *router.Route
	idleTimeout time.Duration // see config.ForwardExtras
}

// Start implements protocol.Service.
func (t *timeout) Start(ctx context.Context, x *protocol.Exchange) error {
	if d := t.idleTimeout; d != 0 {
		x.IdleTimeout = max(d, 0)
	}
	d, _ := t.route.Timeouts(x)
	if g := &t.route.Config.Forward.GRPCTimeout; *g != (config.GRPCTimeout{}) && IsGRPC(x) {
		d = grpcTimeout(x, g, d)
	}
	if d > 0 {
		if end := x.Meta.Start.Add(d); x.Deadline.IsZero() || end.Before(x.Deadline) {
			x.Deadline = end
		}
	}
	return t.next.Start(ctx, x)
}

// grpcTimeout adjusts the deadline that the grpc-timeout header has set, or sets one without the
// header, as g requires. d is the timeout of the route; grpcTimeout returns d if it still applies,
// or 0.
func grpcTimeout(x *protocol.Exchange, g *config.GRPCTimeout, d time.Duration) time.Duration {
	if g.Ignore {
		x.Deadline = time.Time{}
		return d
	}
	hasDeadline := !x.Deadline.IsZero()
	if end := x.Meta.Start.Add(g.Max); g.Max > 0 && (hasDeadline && end.Before(x.Deadline) || !hasDeadline && g.Replace) {
		x.Deadline = end
	}
	if g.Replace {
		return 0
	}
	return d
}

// IsGRPC reports whether x is a gRPC call: a POST over HTTP/2 with a gRPC content type. The check
// is cheap for other requests.
func IsGRPC(x *protocol.Exchange) bool {
	return x.Request.Method == "POST" && x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header)
}
