package service

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// RetryBudget limits the retries in flight, including waiting ones. The circuit breaker of a
// cluster implements it.
type RetryBudget interface {
	BeginRetry() bool
	EndRetry()
}

// BreakerBudget returns a function for the retry budget of a priority: the circuit breaker of the
// exchange's cluster.
func BreakerBudget(p config.Priority) func(x *protocol.Exchange) RetryBudget {
	return func(x *protocol.Exchange) RetryBudget {
		c, _ := x.Record.Cluster.(*upstream.Cluster)
		if c == nil {
			return nil
		}
		return c.Breaker(p)
	}
}

// Retry retries failed requests, on another host if there is one, as often as the route's policy
// allows and only if that is safe: the request cannot have reached an application, or it may be
// sent twice and its body can be rewound. For HTTP the method determines whether it may be sent
// twice (RFC 9110 9.2.2); for RPC, including gRPC, the policy does. Without a policy there is one
// attempt; the cluster still replaces a host that refuses the connection.
//
// A retry waits for the backoff of the policy. If the exchange has less time left, the result of
// the last attempt stays.
//
// The per-try timeout of the policy or the request limits each attempt until the response head; an
// attempt that takes longer fails with ReasonPerTryTimeout.
func Retry(next protocol.Service, route *router.Route, budget func(x *protocol.Exchange) RetryBudget) protocol.Service {
	r := &retry{next: next, route: route, budget: budget, jitter: rand.N[time.Duration]}
	if p := route.Config.Forward.Retry; p != nil && p.On != 0 {
		r.policy, r.extras = *p, p.Extra()
	}
	return r
}

// retry is immutable.
type retry struct {
	next   protocol.Service
	route  *router.Route
	policy config.RetryPolicy                     // the zero value: no retries
	extras config.RetryExtras                     // of policy
	budget func(x *protocol.Exchange) RetryBudget // may return nil: no limit
	jitter func(bound time.Duration) time.Duration
}

// permit allows one retry.
type permit struct {
	budget  RetryBudget   // the retry releases it; nil: no limit
	backoff time.Duration // wait before the retry is sent
}

// Start implements protocol.Service. It makes the first attempt.
func (r *retry) Start(ctx context.Context, x *protocol.Exchange) error {
	if hasDeadline := r.setPerTryDeadline(x); hasDeadline || r.policy.NumRetries > 0 {
		x.PushFinisher(r)
	}
	return r.next.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (r *retry) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	err = attemptError(x, err)
	if next, ok := r.prepareRetry(x, err, 0); ok {
		return x.RunBlocking(ctx, &retries{r, next})
	}
	return err
}

// retries makes the attempts after the first.
type retries struct {
	*retry
	firstPermit permit
}

// Serve implements protocol.BlockingService.
func (r *retries) Serve(ctx context.Context, x *protocol.Exchange) error {
	next := r.firstPermit
	for n := 1; ; n++ {
		err := r.retryOnce(ctx, x, next)
		var ok bool
		if next, ok = r.prepareRetry(x, err, n); !ok {
			return err
		}
	}
}

// retryOnce makes one attempt and releases its budget.
func (r *retries) retryOnce(ctx context.Context, x *protocol.Exchange, p permit) error {
	if p.budget != nil {
		defer p.budget.EndRetry()
	}
	if p.backoff > 0 {
		if err := waitBackoff(ctx, x, p.backoff); err != nil {
			return err
		}
	}
	if x.Record.Retries < math.MaxUint16 {
		x.Record.Retries++
	}
	r.setPerTryDeadline(x)
	return attemptError(x, x.Serve(ctx, r.next))
}

// setPerTryDeadline sets the deadline of an attempt and reports whether there is one.
func (r *retry) setPerTryDeadline(x *protocol.Exchange) bool {
	_, d := r.route.Timeouts(x)
	if d > 0 {
		x.PerTryDeadline = time.Now().Add(d)
	}
	return d > 0
}

// attemptError returns the error of an attempt that ended with err, and clears the per-try
// deadline. A timeout at the per-try deadline becomes ReasonPerTryTimeout.
func attemptError(x *protocol.Exchange, err error) error {
	if err != nil && protocol.ReasonOf(err) == protocol.UpstreamTimeout && x.EffectiveDeadline() != x.Deadline {
		err = protocol.NewFault(protocol.ReasonPerTryTimeout, err)
	}
	x.PerTryDeadline = time.Time{}
	return err
}

// prepareRetry reports whether another retry is allowed, safe and possible; retries is the number
// of retries so far. If so, prepareRetry discards the response and acquires the budget.
func (r *retry) prepareRetry(x *protocol.Exchange, err error, retries int) (next permit, ok bool) {
	reason := protocol.ReasonOf(err)
	switch {
	case r.policy.NumRetries == 0,
		!r.covers(reason, x),
		!reason.Spec().SafeToRetry && !r.extras.AnyMethod && !isIdempotent(x):
		return next, false
	case retries >= r.policy.NumRetries:
		x.Record.Flags |= protocol.RetryLimitExceeded
		return next, false
	}
	next.backoff = r.backoff(x, err, retries+1)
	if !x.Deadline.IsZero() && time.Until(x.Deadline) <= next.backoff || !protocol.RewindBody(x.Request.Body) {
		return next, false
	}
	if next.budget = r.budget(x); next.budget != nil && !next.budget.BeginRetry() {
		x.Record.Flags |= protocol.RetryOverflow
		return next, false
	}
	if h := x.Record.Host(); h != nil && err == nil {
		h.ResponseDiscarded(x)
	}
	x.ResetResponse()
	return next, true
}

// backoff returns the wait before the n-th retry, counted from 1. err is the error of the attempt
// before it. A wait that the response demands becomes up to half longer, as in Envoy, so that clients
// that reached a limit together do not return together.
func (r *retry) backoff(x *protocol.Exchange, err error, n int) time.Duration {
	if len(r.extras.ResetHeaders) > 0 && err == nil {
		if delay := router.ResetDelay(&r.extras, x, time.Now()); delay > 0 {
			return delay + r.jitter(delay/2)
		}
	}
	if bound := r.policy.Backoff.Bound(n); bound > 0 {
		return r.jitter(bound)
	}
	return 0
}

// isIdempotent reports whether a request may be sent twice: its HTTP method is idempotent, or it is
// RPC, including gRPC, for which the policy of the route is the operator's permission.
func isIdempotent(x *protocol.Exchange) bool {
	return x.Request.Method == "" || protocol.IsIdempotentMethod(x.Request.Method) || IsGRPC(x)
}

// waitBackoff returns after d, or with a ReasonDownstreamDisconnect Fault if the client disconnects
// or ctx ends first; see filter.Wait.
func waitBackoff(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	err := filter.Wait(ctx, x, d)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, filter.ErrClientDisconnected):
		err = errors.New("the client disconnected before a retry")
	}
	return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
}
