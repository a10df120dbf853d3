package proxy

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Hedge is Retry for a route with a hedge_policy. It sends requests that may be sent twice and are
// complete to several hosts concurrently; the client gets the first good response. It serves other
// requests like Retry.
//
// Each attempt is an exchange with a copy of the request, on a goroutine that start runs and waits
// for. The hedgedRequest waits on its own goroutine for the results:
//
//	launch ──▶ running ── good response ───────────▶ taken: sent to the client
//	              │  ├─── bad, others run ──────────▶ held until those have ended
//	              │  ├─── bad, the last ────────────▶ another attempt, or sent to the client
//	              │  └─── per-try timeout ──────────▶ runs on, and another is launched
//	              └────── another was taken ────────▶ abandoned: its stream is reset
//
// The hedge neither waits for abandoned attempts nor counts them as host failures. Attempts beyond
// the first need the retry budget, like retries.
func Hedge(next protocol.Service, route *router.Route, budget func(x *protocol.Exchange) RetryBudget, start func(func(ctx context.Context))) protocol.AsyncService {
	r, _ := Retry(next, route, budget).(*retry)
	return &hedge{retry: r, policy: *route.Config.Forward.Hedge, start: start, roll: rand.Uint32N}
}

// hedge is immutable.
type hedge struct {
	*retry
	policy config.HedgePolicy
	start  func(func(ctx context.Context)) // runs f concurrently; see filter.ClusterClient
	roll   func(n uint32) uint32           // returns a uniform random number below n
}

// Serve implements protocol.Service.
func (h *hedge) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, h, x)
}

// Start implements protocol.AsyncService.
func (h *hedge) Start(ctx context.Context, x *protocol.Exchange) error {
	if !hedgeable(x) {
		return h.retry.Start(ctx, x)
	}
	return x.RunBlocking(ctx, &hedgedRequest{h: h})
}

// hedgedRequest is one exchange with concurrent attempts. The goroutine that called Serve owns it,
// except for the fields guarded by mu.
type hedgedRequest struct {
	h       *hedge
	x       *protocol.Exchange
	request *requestCopy

	atOnce  int           // initial attempts
	retries int           // attempts launched beyond those
	tryTime time.Duration // timeout of each attempt; 0: none
	made    []*attempt    // in launch order
	running int           // number of attempts that have not ended
	held    *attempt      // bad response, sent to the client if no better one arrives
	failed  *attempt      // the last attempt without a response

	ended  chan *attempt    // has capacity for all
	moved  chan struct{}    // capacity 1: an attempt has chosen a host
	late   <-chan time.Time // per-try timeout of the latest attempt; nil: none
	paused <-chan time.Time // next is due; nil: no retry waits
	next   permit

	mu      sync.Mutex
	hosts   []protocol.Attempt // guarded by mu; hosts of the attempts
	cluster protocol.Named     // guarded by mu; their cluster; nil: not known
}

// watchAfter is how long the response may take before the hedge watches for a client disconnect,
// because watching may cost a goroutine.
const watchAfter = 250 * time.Millisecond

// Serve implements protocol.Service.
func (r *hedgedRequest) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	r.x = x
	var err error
	if r.request, err = copyRequest(x); err != nil {
		return err
	}
	r.atOnce = max(r.h.policy.InitialRequests, 1)
	if chance := r.h.policy.AdditionalChance; chance > 0 && r.h.roll(config.Millionths) < chance {
		r.atOnce++
	}
	_, r.tryTime = r.h.route.Timeouts(x)
	r.ended, r.moved = make(chan *attempt, r.atOnce+r.h.retry.policy.NumRetries), make(chan struct{}, 1)
	defer r.leave()
	r.launch(permit{})
	return r.run(ctx)
}

// run launches and ends attempts until one gives the result. Errors are Faults.
func (r *hedgedRequest) run(ctx context.Context) error {
	slow, gone := time.After(watchAfter), make(chan struct{})
	for {
		select {
		case a := <-r.ended:
			if a.err != nil {
				select { // it chose a host before it failed
				case <-r.moved:
					r.addInitial()
				default:
				}
			}
			if over, err := r.finish(a); over {
				return err
			}
		case <-r.moved:
			r.addInitial()
		case <-r.late:
			r.late = nil
			if r.running > 0 && policyCovers(&r.h.retry.policy, protocol.ReasonPerTryTimeout, r.x) && r.retries < r.h.retry.policy.NumRetries && r.beside() {
				r.retries++
			}
		case <-r.paused:
			r.paused = nil
			r.launch(r.next)
		case <-slow:
			if r.x.Caller != nil {
				defer r.x.Caller.OnDisconnect(func() { close(gone) })()
			}
		case <-gone:
			r.record(r.made[len(r.made)-1])
			return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client disconnected while %d attempts were in flight", r.running)
		case <-ctx.Done():
			r.record(r.made[len(r.made)-1])
			return protocol.NewFault(protocol.ReasonDownstreamDisconnect, context.Cause(ctx))
		}
	}
}

// addInitial launches the next initial attempt, if any. The previous attempt has chosen its host,
// so the next can choose another.
func (r *hedgedRequest) addInitial() {
	if len(r.made) < r.atOnce {
		r.beside()
	}
}

// beside launches an attempt next to the running ones if there is an untried host and the budget
// allows it.
func (r *hedgedRequest) beside() bool {
	hosts, cluster := r.reached()
	if c, ok := cluster.(interface{ EligibleHosts() int }); ok && c.EligibleHosts() <= hosts {
		return false
	}
	p := permit{budget: r.h.budget(r.x)}
	if p.budget != nil && !p.budget.BeginRetry() {
		return false
	}
	count(cluster, upstream.Hedged)
	r.launch(p)
	return true
}

// reached returns the number of hosts tried and their cluster, which it also records in x.
func (r *hedgedRequest) reached() (hosts int, cluster protocol.Named) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.hosts {
		if h := r.hosts[i].Host; !slices.ContainsFunc(r.hosts[:i], func(a protocol.Attempt) bool { return a.Host == h }) {
			hosts++
		}
	}
	if r.cluster != nil {
		r.x.Record.Cluster = r.cluster
	}
	return hosts, r.cluster
}

// launch starts an attempt with the budget of p.
func (r *hedgedRequest) launch(p permit) {
	a := &attempt{race: r, budget: p.budget, beside: r.running > 0}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.x.Reset()
	a.x.Caller, a.x.Deadline, a.x.Record.Listener = a, r.x.Deadline, r.x.Record.Listener
	a.x.IdleTimeout = r.x.IdleTimeout
	if r.tryTime > 0 {
		if r.h.policy.OnTryTimeout {
			r.late = time.After(r.tryTime)
		} else {
			a.x.PerTryDeadline = time.Now().Add(r.tryTime)
		}
	}
	r.mu.Lock()
	a.x.Record.Attempts = slices.Clone(r.hosts)
	a.first = len(r.hosts)
	r.mu.Unlock()
	r.made = append(r.made, a)
	r.running++
	r.h.start(a.run)
}

// finish processes the result of an attempt. over: the exchange has its response or fails with the
// returned Fault.
func (r *hedgedRequest) finish(a *attempt) (over bool, err error) {
	r.running--
	a.ended = true
	reason := protocol.ReasonOf(a.err)
	again := policyCovers(&r.h.retry.policy, reason, &a.x)
	switch {
	case a.err != nil:
		a.cancel()
		r.failed = a
	case !again:
		r.take(a)
		return true, nil
	default:
		r.drop()
		r.held = a
	}
	if r.running > 0 {
		return false, nil
	}
	if again && r.mayRetry() {
		r.drop()
		r.retries++
		r.paused = time.After(r.next.wait)
		return false, nil
	}
	if r.held != nil {
		r.take(r.held)
		return true, nil
	}
	r.record(r.failed)
	return true, r.failed.err
}

// mayRetry reports whether another attempt may begin after all have ended, and sets next.
func (r *hedgedRequest) mayRetry() bool {
	policy := &r.h.retry.policy
	if r.retries >= policy.NumRetries {
		if policy.NumRetries > 0 {
			r.x.Record.Flags |= protocol.RetryLimitExceeded
		}
		return false
	}
	r.next = permit{}
	if bound := policy.BackOff.Bound(r.retries + 1); bound > 0 {
		r.next.wait = r.h.jitter(bound)
	}
	if d := r.x.Deadline; !d.IsZero() && time.Until(d) <= r.next.wait {
		return false
	}
	r.reached()
	r.next.budget = r.h.budget(r.x)
	return r.next.budget == nil || r.next.budget.BeginRetry()
}

// take makes the response of an attempt the response of the exchange.
func (r *hedgedRequest) take(a *attempt) {
	if r.held == a {
		r.held = nil
	}
	r.record(a)
	if a.beside {
		count(r.x.Record.Cluster, upstream.HedgeWon)
	}
	x := r.x
	x.Response, a.x.Response = a.x.Response, protocol.Response{}
	x.Response.Trailer = protocol.Header{}
	x.Response.SetBody(a.acceptBody(x.Response.Body))
	a.accepted = true
}

// record copies the attempts into x's record, a's last, and the upstream data of a if it has ended.
func (r *hedgedRequest) record(a *attempt) {
	r.x.Record.Attempts = r.x.Record.Attempts[:0]
	for _, other := range r.made {
		if other != a {
			r.x.Record.Attempts = append(r.x.Record.Attempts, other.attempts()...)
		}
	}
	r.x.Record.Attempts = append(r.x.Record.Attempts, a.attempts()...)
	if !a.ended {
		return
	}
	of := &a.x.Record
	r.x.Record.Cluster, r.x.Record.UpstreamStart, r.x.Record.UpstreamFirstByte = of.Cluster, of.UpstreamStart, of.UpstreamFirstByte
}

// drop discards the held response.
func (r *hedgedRequest) drop() {
	if r.held != nil {
		r.held.discard()
		r.held = nil
	}
}

// leave abandons every attempt that was not taken, and the waiting retry, without waiting for them.
func (r *hedgedRequest) leave() {
	r.drop()
	if r.paused != nil && r.next.budget != nil {
		r.next.budget.EndRetry()
	}
	for _, a := range r.made {
		if !a.ended {
			a.leave()
		}
	}
}

// count counts an event of a cluster; it ignores nil.
func count(cluster protocol.Named, e upstream.Event) {
	if c, ok := cluster.(*upstream.Cluster); ok {
		c.Count(e)
	}
}
