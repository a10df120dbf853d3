package service

import (
	"context"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// serviceTimeHeader tells the client how long the upstream took.
const serviceTimeHeader = "x-envoy-upstream-service-time"

// RouterHeaders reads and sets headers as Envoy's router filter does; see config.RouterHeaders. build
// composes the services that send a request by a route. RouterHeaders calls it for route, and for
// each request whose headers override settings of the route, with a route for that request.
func RouterHeaders(route *router.Route, c *config.RouterHeaders, build func(*router.Route) protocol.Service) protocol.Service {
	return &routerHeaders{next: build(route), route: route, config: c, build: build}
}

// routerHeaders is immutable.
type routerHeaders struct {
	next   protocol.Service
	route  *router.Route
	config *config.RouterHeaders
	build  func(*router.Route) protocol.Service
}

// Start implements protocol.Service.
func (r *routerHeaders) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Method == "" { // RPC
		return r.next.Start(ctx, x)
	}
	e := routerExchanges.Get().(*routerExchange)
	e.routerHeaders, e.start = r, time.Now()
	x.PushFinisher(e)
	if !r.hasControls(&x.Request.Header) {
		return r.next.Start(ctx, x)
	}
	if err := checkControls(&x.Request.Header, r.config.StrictChecks); err != nil {
		return err
	}
	o := readOverrides(r.route.Config.Forward, &x.Request.Header, r.config.RespectExpectedTimeout)
	x.Request.Header.DelFunc(func(name string) bool { return r.removes(name, &o) })
	if d := o.maxDuration; d > 0 {
		if end := x.Meta.Start.Add(d); x.Deadline.IsZero() || end.Before(x.Deadline) {
			x.Deadline = end
		}
	}
	if o.altResponse {
		x.PushFinisher(altResponse{})
	}
	if !o.changed {
		return r.next.Start(ctx, x)
	}
	return r.build(r.route.WithForward(&o.forward)).Start(ctx, x)
}

// hasControls reports whether a request has headers that control the router.
func (r *routerHeaders) hasControls(h *protocol.Header) bool {
	for i := range h.Len() {
		switch controlName(h.At(i).Name) {
		case "":
		case expectedTimeoutHeader:
			if r.config.RespectExpectedTimeout {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// removes reports whether the header is not forwarded.
func (r *routerHeaders) removes(name string, o *overrides) bool {
	switch name := controlName(name); name {
	case "", expectedTimeoutHeader:
		return false
	case timeoutHeader:
		return !o.expectedTimeout
	default:
		return true
	}
}

// routerExchange is the state of RouterHeaders for one exchange.
type routerExchange struct {
	*routerHeaders
	start time.Time // when RouterHeaders received the request, after the filters
}

//nolint:gochecknoglobals // the pool saves an allocation for each exchange
var routerExchanges = sync.Pool{New: func() any { return new(routerExchange) }}

// Finish implements protocol.Finisher. It releases e.
func (e *routerExchange) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil && x.Response.Source == protocol.UpstreamResponse && !e.config.Suppress && x.RequestReceived() {
		SetServiceTime(x, e.start)
	}
	*e = routerExchange{}
	routerExchanges.Put(e)
	return err
}

// SetServiceTime tells the receiver of the response how long the upstream took since start.
func SetServiceTime(x *protocol.Exchange, start time.Time) {
	if x.Request.Method == "" { // RPC
		return
	}
	x.Response.Header.Set(serviceTimeHeader, milliseconds(max(x.Record.UpstreamFirstByte.Sub(start), 0)))
}

// SetInternalHeaders sets the headers by which Envoy marks the requests that its filters send, and
// removes the control headers that a copied request may have. timeout is the timeout of the call;
// 0: none.
func SetInternalHeaders(x *protocol.Exchange, timeout time.Duration) {
	if x.Request.Method == "" { // RPC
		return
	}
	h := &x.Request.Header
	h.DelFunc(func(name string) bool { return controlName(name) != "" })
	h.Set(envoyInternal, "true")
	if timeout > 0 {
		h.Set(expectedTimeoutHeader, milliseconds(timeout))
	}
}
