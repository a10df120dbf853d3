package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Timeout bounds the exchange as a whole, as its route and its request say. A
// deadline that is nearer already stays.
func Timeout(next protocol.Service, route *router.Route) protocol.Service {
	return protocol.ServiceFunc(func(ctx context.Context, x *protocol.Exchange) error {
		if d, _ := route.Timeouts(x); d > 0 {
			narrow(x, x.Meta.Start.Add(d))
		}
		return next.Serve(ctx, x)
	})
}

// narrow moves the deadline to t if that is nearer.
func narrow(x *protocol.Exchange, t time.Time) {
	if x.Deadline.IsZero() || t.Before(x.Deadline) {
		x.Deadline = t
	}
}

// RetryBudget bounds the retries in flight; a cluster's circuit breaker is one.
type RetryBudget interface {
	BeginRetry() bool
	EndRetry()
}

// Retry tries again what failed, on another host if there is one, as often as the
// route's policy says and as far as that is safe: a request that cannot have
// reached an application, or one that may be sent twice, whose content is still at
// hand. HTTP says by the method which those are (RFC 9110 9.2.2); of RPC, whoever
// gave the route its policy. A route without a policy gets one try: a host that refuses the
// connection is replaced by the cluster.
//
// Each try has the time that the policy, or the request, gives it, until the head
// of its answer; what took longer failed with TryTimeout.
func Retry(next protocol.Service, route *router.Route, budget func(x *protocol.Exchange) RetryBudget) protocol.Service {
	r := &retry{next: next, route: route, budget: budget}
	if p := route.Config.Forward.Retry; p != nil && p.On {
		r.most, r.codes = p.NumRetries, p.StatusCodes
	}
	return r
}

type retry struct {
	next   protocol.Service
	route  *router.Route
	most   int                                    // tries after the first
	codes  []int                                  // answers that are tried again, beside 5xx
	budget func(x *protocol.Exchange) RetryBudget // may return nil: no bound
}

func (r *retry) Serve(ctx context.Context, x *protocol.Exchange) error {
	deadline := x.Deadline
	err := r.try(ctx, x, deadline)
	for n := 0; n < r.most && r.again(x, err, deadline); n++ {
		budget := r.budget(x)
		if budget != nil && !budget.BeginRetry() {
			break
		}
		x.ResetResponse()
		err = r.retry(ctx, x, deadline, budget)
	}
	x.Deadline = deadline
	return err
}

// retry is try within a budget that it gives back.
func (r *retry) retry(ctx context.Context, x *protocol.Exchange, deadline time.Time, budget RetryBudget) error {
	if budget != nil {
		defer budget.EndRetry()
	}
	return r.try(ctx, x, deadline)
}

// try serves once, within the time for one try.
func (r *retry) try(ctx context.Context, x *protocol.Exchange, deadline time.Time) error {
	x.Deadline = deadline
	if _, d := r.route.Timeouts(x); d > 0 {
		narrow(x, time.Now().Add(d))
	}
	err := r.next.Serve(ctx, x)
	if err != nil && protocol.ReasonOf(err) == protocol.UpstreamTimeout && x.Deadline != deadline {
		return protocol.NewFault(protocol.TryTimeout, err)
	}
	return err
}

// again decides whether another try is wanted, safe and possible.
func (r *retry) again(x *protocol.Exchange, err error, deadline time.Time) bool {
	reason := protocol.ReasonOf(err)
	switch {
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return false
	case !r.wanted(reason, x.Response.Status):
		return false
	case !reason.Traits().Unsent && !idempotent(x.Request.Method):
		return false
	}
	return rewind(x.Request.Body)
}

// wanted reports whether the policy covers the failure, or the answer.
func (r *retry) wanted(reason protocol.Reason, status int) bool {
	switch reason {
	case protocol.None:
		return status >= 500 || slices.Contains(r.codes, status)
	case protocol.ConnectFailure, protocol.ConnectTimeout, protocol.UpstreamReset, protocol.UpstreamClosed,
		protocol.UpstreamMalformed, protocol.TryTimeout:
		return true
	default:
		return false
	}
}

// idempotent reports whether a request may be sent twice: of HTTP by its method
// (RFC 9110 9.2.2); RPC has no such methods, and a route's policy for some of its
// own is its author's word for them.
func idempotent(method string) bool {
	switch method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

func rewind(body protocol.Body) bool {
	if body == nil {
		return true
	}
	r, ok := body.(protocol.Rewinder)
	return ok && r.Rewind()
}
