package proxy

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Timeout bounds the exchange as a whole, as its route and its request say. A
// deadline that is nearer already stays.
func Timeout(next protocol.Service, route *router.Route) protocol.AsyncService {
	return &timeout{protocol.Async(next), route}
}

type timeout struct {
	next  protocol.AsyncService
	route *router.Route
}

// Serve is protocol.Service's.
func (t *timeout) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, t, x)
}

// Start is protocol.AsyncService's.
func (t *timeout) Start(ctx context.Context, x *protocol.Exchange) error {
	d, _ := t.route.Timeouts(x)
	if g := &t.route.Config.Forward.GRPCTimeout; *g != (config.GRPCTimeout{}) && isGRPC(x) {
		d = grpcTimeout(x, g, d)
	}
	if d > 0 {
		if end := x.Meta.Start.Add(d); x.Deadline.IsZero() || end.Before(x.Deadline) {
			x.Deadline = end
		}
	}
	return t.next.Start(ctx, x)
}

// grpcTimeout makes the deadline of a call, which its grpc-timeout has set, what g says, and
// returns what is left of the route's timeout d.
func grpcTimeout(x *protocol.Exchange, g *config.GRPCTimeout, d time.Duration) time.Duration {
	if g.Ignore {
		x.Deadline = time.Time{}
		return d
	}
	said := !x.Deadline.IsZero()
	if end := x.Meta.Start.Add(g.Max); g.Max > 0 && (said && end.Before(x.Deadline) || !said && g.Replace) {
		x.Deadline = end
	}
	if g.Replace {
		return 0
	}
	return d
}

// RetryBudget bounds the retries in flight, those that wait included; a cluster's
// circuit breaker is one.
type RetryBudget interface {
	BeginRetry() bool
	EndRetry()
}

// Retry tries again what failed, on another host if there is one, as often as the
// route's policy says and as far as that is safe: a request that cannot have
// reached an application, or one that may be sent twice, whose content is still at
// hand. HTTP says by the method which those are (RFC 9110 9.2.2); of RPC, gRPC
// included, whoever gave the route its policy. A route without a policy gets one
// try: a host that refuses the connection is replaced by the cluster.
//
// A retry waits before it begins, as the policy's back-off says. If the exchange has
// less time left than that, what the last try brought stays.
//
// Each try has the time that the policy, or the request, gives it, until the head
// of its answer; what took longer failed with TryTimeout.
func Retry(next protocol.Service, route *router.Route, budget func(x *protocol.Exchange) RetryBudget) protocol.AsyncService {
	r := &retry{next: protocol.Async(next), route: route, budget: budget, jitter: rand.N[time.Duration]}
	if p := route.Config.Forward.Retry; p != nil && p.On != 0 {
		r.policy = *p
	}
	return r
}

// retry is immutable.
type retry struct {
	next   protocol.AsyncService
	route  *router.Route
	policy config.RetryPolicy                     // the zero value: nothing is tried again
	budget func(x *protocol.Exchange) RetryBudget // may return nil: no bound
	jitter func(bound time.Duration) time.Duration
}

// permit is what a retry begins with.
type permit struct {
	budget RetryBudget   // to be given back; nil: no bound
	wait   time.Duration // before it is sent
}

// Serve is protocol.Service's.
func (r *retry) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, r, x)
}

// Start is protocol.AsyncService's: the first try.
func (r *retry) Start(ctx context.Context, x *protocol.Exchange) error {
	if limited := r.limit(x); limited || r.policy.NumRetries > 0 {
		x.PushFinisher(r)
	}
	return r.next.Start(ctx, x)
}

// Finish is protocol.Finisher's.
func (r *retry) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	err = attemptError(x, err)
	if second, ok := r.again(x, err, 0); ok {
		return x.RunBlocking(ctx, &retries{r, second})
	}
	return err
}

// retries are the tries after the first.
type retries struct {
	*retry
	second permit
}

// Serve is protocol.Service's.
func (r *retries) Serve(ctx context.Context, x *protocol.Exchange) error {
	next := r.second
	for n := 1; ; n++ {
		err := r.try(ctx, x, next)
		var ok bool
		if next, ok = r.again(x, err, n); !ok {
			return err
		}
	}
}

// try serves once more, within a budget that it gives back.
func (r *retries) try(ctx context.Context, x *protocol.Exchange, p permit) error {
	if p.budget != nil {
		defer p.budget.EndRetry()
	}
	if p.wait > 0 {
		if err := pause(ctx, x, p.wait); err != nil {
			return err
		}
	}
	r.limit(x)
	return attemptError(x, r.next.Serve(ctx, x))
}

// limit sets the time for a try, and reports whether there is one.
func (r *retry) limit(x *protocol.Exchange) bool {
	_, d := r.route.Timeouts(x)
	if d > 0 {
		x.PerTryDeadline = time.Now().Add(d)
	}
	return d > 0
}

// attemptError says what err is after a try: that it took too long is no fault of the
// exchange's as a whole.
func attemptError(x *protocol.Exchange, err error) error {
	if err != nil && protocol.ReasonOf(err) == protocol.UpstreamTimeout && x.EffectiveDeadline() != x.Deadline {
		err = protocol.NewFault(protocol.ReasonPerTryTimeout, err)
	}
	x.PerTryDeadline = time.Time{}
	return err
}

// again decides, after so many retries, whether one more is wanted, safe and
// possible. If so, the answer is dropped, and the retry is within a budget.
func (r *retry) again(x *protocol.Exchange, err error, retries int) (next permit, ok bool) {
	reason := protocol.ReasonOf(err)
	switch {
	case r.policy.NumRetries == 0,
		!policyCovers(&r.policy, reason, x),
		!reason.Traits().SafeToRetry && !idempotent(x):
		return next, false
	case retries >= r.policy.NumRetries:
		x.Record.Flags |= protocol.RetryLimitExceeded
		return next, false
	}
	if bound := r.policy.BackOff.Bound(retries + 1); bound > 0 {
		next.wait = r.jitter(bound)
	}
	if !x.Deadline.IsZero() && time.Until(x.Deadline) <= next.wait || !rewind(x.Request.Body) {
		return next, false
	}
	if next.budget = r.budget(x); next.budget != nil && !next.budget.BeginRetry() {
		return next, false
	}
	if h, ok := x.Record.Host().(dropped); ok && err == nil {
		h.ResponseDiscarded(x)
	}
	x.ResetResponse()
	return next, true
}

// dropped is a host that is told of its answers that callers do not get.
type dropped interface{ ResponseDiscarded(x *protocol.Exchange) }

// idempotent reports whether a request may be sent twice: of HTTP by its method
// (RFC 9110 9.2.2); RPC has no such methods, and a route's policy for some of its
// own is its author's word for them.
func idempotent(x *protocol.Exchange) bool {
	switch x.Request.Method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return isGRPC(x)
}

func rewind(body protocol.Body) bool {
	if body == nil {
		return true
	}
	r, ok := body.(protocol.Rewinder)
	return ok && r.Rewind()
}
