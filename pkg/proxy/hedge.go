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

// Hedge is Retry for a route with a hedge_policy: requests that may be sent twice, and of
// which all has come, are sent to several hosts at once, and the first good answer is
// the caller's. Other requests are served as by Retry.
//
// Each try is an exchange of its own (attempt), whose request is a copy, on a goroutine
// that start runs and sees the end of. Who asked waits on its own stack (race) for what
// the tries bring:
//
//	launch ──▶ running ── good answer ─────────────▶ taken: the caller's
//	              │  ├─── bad, others run ──────────▶ held until those have ended
//	              │  ├─── bad, the last ────────────▶ another try, or the caller's
//	              │  └─── its time is up ───────────▶ runs on, and another beside it
//	              └────── another was taken ────────▶ left: its stream is reset
//
// What is left is neither waited for nor a failure of its host. Tries beyond the first
// begin within the budget, as retries do.
func Hedge(next protocol.Service, route *router.Route, budget func(x *protocol.Exchange) RetryBudget, start func(func(ctx context.Context))) protocol.AsyncService {
	r, _ := Retry(next, route, budget).(*retry)
	return &hedge{retry: r, policy: *route.Config.Forward.Hedge, start: start, roll: rand.Uint32N}
}

// hedge is immutable.
type hedge struct {
	*retry
	policy config.HedgePolicy
	start  func(func(ctx context.Context)) // runs f beside the exchange; see filter.ClusterClient
	roll   func(n uint32) uint32           // a number below n, each as likely
}

// Serve is protocol.Service's.
func (h *hedge) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, h, x)
}

// Start is protocol.AsyncService's.
func (h *hedge) Start(ctx context.Context, x *protocol.Exchange) error {
	if !hedgeable(x) {
		return h.retry.Start(ctx, x)
	}
	return x.RunBlocking(ctx, &hedgedRequest{h: h})
}

// hedgedRequest is one exchange whose tries run beside one another. It belongs to the goroutine
// that called Serve, but for what mu guards.
type hedgedRequest struct {
	h       *hedge
	x       *protocol.Exchange
	request *requestCopy

	atOnce  int           // tries that begin without a cause
	retries int           // that have begun beyond those
	tryTime time.Duration // of each; 0: none of its own
	made    []*attempt    // in the order in which they began
	running int           // of those
	held    *attempt      // a bad answer that is the caller's if no better one comes
	failed  *attempt      // the last that brought none

	ended  chan *attempt    // has room for all
	moved  chan struct{}    // has room for one: a try has chosen a host
	late   <-chan time.Time // the time of the try that began last is up; nil: it has none
	paused <-chan time.Time // next is due; nil: there is none
	next   permit

	mu      sync.Mutex
	hosts   []protocol.Attempt // guarded by mu; where tries went
	cluster protocol.Named     // guarded by mu; theirs; nil: not known
}

// watchAfter is how long answers may take before the caller is watched for having gone:
// watching may cost a goroutine.
const watchAfter = 250 * time.Millisecond

// Serve is protocol.Service's.
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

// run has tries begin and end until one of them is the caller's. Errors are Faults.
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
			return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client gone while %d tries were under way", r.running)
		case <-ctx.Done():
			r.record(r.made[len(r.made)-1])
			return protocol.NewFault(protocol.ReasonDownstreamDisconnect, context.Cause(ctx))
		}
	}
}

// addInitial launches the next of the tries that begin without a cause, if there is one: a try
// has chosen its host, so the next one can choose another.
func (r *hedgedRequest) addInitial() {
	if len(r.made) < r.atOnce {
		r.beside()
	}
}

// beside launches a try beside those that run, if there is a host that none was made at,
// and the budget allows it.
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

// reached returns how many hosts tries were made at, and whose; x knows their cluster, then.
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

// launch has a try begin, with what it is permitted by.
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

// finish takes what a try brought. over: the exchange has its answer, or the Fault that
// is returned.
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

// mayRetry reports whether another try may begin now that none is left, and sets next.
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

// take makes the answer of a try the caller's.
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

// record has x's record tell of all tries, a's being the last, and of a if it has ended.
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

// drop gives up the answer that was held.
func (r *hedgedRequest) drop() {
	if r.held != nil {
		r.held.discard()
		r.held = nil
	}
}

// leave gives up every try that was not taken, and the retry that waits. None is waited
// for.
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

// count counts what happened to an exchange in a cluster, nil for none.
func count(cluster protocol.Named, e upstream.Event) {
	if c, ok := cluster.(*upstream.Cluster); ok {
		c.Count(e)
	}
}
