package service

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

// Hedge is Retry for a route with a hedge_policy. It sends a request that isHedgeable accepts to
// several hosts concurrently; the client gets the first good response. It serves other requests
// like Retry.
//
// Each attempt is an exchange with a copy of the request, on a goroutine that start begins. The
// hedgedRequest waits on its own goroutine for the results:
//
//	launch ──▶ running ── good response ───────────▶ accepted: sent to the client
//	              │  ├─── bad, others running ──────▶ fallback until the others have ended
//	              │  ├─── bad, the last ────────────▶ another attempt, or sent to the client
//	              │  └─── OnPerTryTimeout ──────────▶ keeps running; another attempt is launched
//	              └────── another was accepted ─────▶ abandoned: its stream is reset
//
// The hedge neither waits for abandoned attempts nor counts them as host failures. Attempts beyond
// the first need the retry budget, like retries.
func Hedge(next protocol.Service, route *router.Route, budget func(x *protocol.Exchange) RetryBudget, start func(func(ctx context.Context))) protocol.Service {
	r, _ := Retry(next, route, budget).(*retry)
	return &hedge{retry: r, policy: *route.Config.Forward.Hedge, start: start, random: rand.Uint32N}
}

// hedge is immutable.
type hedge struct {
	*retry
	policy config.HedgePolicy
	start  func(func(ctx context.Context)) // runs a function concurrently; see filter.ClusterClient
	random func(n uint32) uint32           // returns a uniform random number below n
}

// Start implements protocol.Service.
func (h *hedge) Start(ctx context.Context, x *protocol.Exchange) error {
	if !isHedgeable(x, h.retry.extras.AnyMethod) {
		return h.retry.Start(ctx, x)
	}
	return x.RunBlocking(ctx, &hedgedRequest{hedge: h})
}

// hedgedCluster is the cluster of the hosts that attempts choose. *upstream.Cluster implements it.
type hedgedCluster interface {
	protocol.Named
	// EligibleHosts returns the number of hosts from which an attempt can choose.
	EligibleHosts() int
	// Count counts an event in the metrics of the cluster.
	Count(e upstream.Event)
}

// hedgedRequest is one exchange with concurrent attempts. The goroutine that called Serve owns it,
// except for the fields guarded by mu.
type hedgedRequest struct {
	hedge   *hedge
	x       *protocol.Exchange
	request *requestCopy

	initialAttempts int           // number of attempts to launch without waiting for a result
	retries         int           // number of attempts launched after the initial ones
	perTryTimeout   time.Duration // timeout of each attempt; 0: none
	attempts        []*attempt    // in launch order
	runningAttempts int           // number of attempts that have not ended
	fallback        *attempt      // bad response, sent to the client if no better one arrives
	lastFailed      *attempt      // the last attempt without a response

	results     chan *attempt    // has capacity for all attempts
	hostChosen  chan struct{}    // capacity 1: an attempt has chosen a host
	perTryTimer <-chan time.Time // per-try timeout of the latest attempt; nil: none
	retryTimer  <-chan time.Time // retry is due; nil: no retry waits
	retryPermit permit           // permit of the retry that retryTimer launches

	mu      sync.Mutex
	hosts   []protocol.Attempt // guarded by mu; hosts that the attempts have chosen
	cluster hedgedCluster      // guarded by mu; cluster of the last chosen host; nil: no host was chosen
}

// disconnectWatchDelay is how long the response may take before the hedge watches for a client
// disconnect, because watching may cost a goroutine.
const disconnectWatchDelay = 250 * time.Millisecond

// Serve implements protocol.BlockingService.
func (r *hedgedRequest) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	r.x = x
	var err error
	if r.request, err = copyRequest(x); err != nil {
		return err
	}
	r.initialAttempts = max(r.hedge.policy.InitialRequests, 1)
	if probability := r.hedge.policy.AdditionalRequestChance; probability > 0 && r.hedge.random(config.Millionths) < probability {
		r.initialAttempts++
	}
	_, r.perTryTimeout = r.hedge.route.Timeouts(x)
	r.results, r.hostChosen = make(chan *attempt, r.initialAttempts+r.hedge.retry.policy.NumRetries), make(chan struct{}, 1)
	defer r.abandonAttempts()
	r.launch(permit{})
	return r.run(ctx)
}

// run launches attempts and handles their results until the exchange has a result. Errors are
// Faults.
func (r *hedgedRequest) run(ctx context.Context) error {
	watchTimer, disconnected := time.After(disconnectWatchDelay), make(chan struct{})
	for {
		select {
		case a := <-r.results:
			if a.err != nil {
				select { // the attempt may have chosen a host before it failed
				case <-r.hostChosen:
					r.launchInitial()
				default:
				}
			}
			if done, err := r.handleResult(a); done {
				return err
			}
		case <-r.hostChosen:
			r.launchInitial()
		case <-r.perTryTimer:
			r.perTryTimer = nil
			if r.runningAttempts > 0 && r.hedge.retry.covers(protocol.ReasonPerTryTimeout, r.x) && r.retries < r.hedge.retry.policy.NumRetries && r.launchConcurrent() {
				r.retries++
			}
		case <-r.retryTimer:
			r.retryTimer = nil
			r.launch(r.retryPermit)
		case <-watchTimer:
			if r.x.Downstream != nil {
				defer r.x.Downstream.OnDisconnect(func() { close(disconnected) })()
			}
		case <-disconnected:
			r.recordAttempts(r.attempts[len(r.attempts)-1])
			return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client disconnected while %d attempts were in flight", r.runningAttempts)
		case <-ctx.Done():
			r.recordAttempts(r.attempts[len(r.attempts)-1])
			return protocol.NewFault(protocol.ReasonDownstreamDisconnect, context.Cause(ctx))
		}
	}
}

// launchInitial launches the next initial attempt, if any. The previous attempt has chosen its
// host, so the next can choose another.
func (r *hedgedRequest) launchInitial() {
	if len(r.attempts) < r.initialAttempts {
		r.launchConcurrent()
	}
}

// launchConcurrent launches an attempt next to the running ones if there is an untried host and the
// budget allows it. It reports whether it did.
func (r *hedgedRequest) launchConcurrent() bool {
	hosts, cluster := r.triedHosts()
	if cluster != nil && cluster.EligibleHosts() <= hosts {
		return false
	}
	p := permit{budget: r.hedge.budget(r.x)}
	if p.budget != nil && !p.budget.BeginRetry() {
		return false
	}
	r.launch(p)
	return true
}

// triedHosts returns the number of hosts tried and their cluster, which it also records in x.
func (r *hedgedRequest) triedHosts() (hosts int, cluster hedgedCluster) {
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
	a := &attempt{request: r, budget: p.budget, concurrent: r.runningAttempts > 0}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.x.Reset()
	a.x.Downstream, a.x.Deadline, a.x.Record.Listener = a, r.x.Deadline, r.x.Record.Listener
	a.x.IdleTimeout = r.x.IdleTimeout
	if r.perTryTimeout > 0 {
		if r.hedge.policy.OnPerTryTimeout {
			r.perTryTimer = time.After(r.perTryTimeout)
		} else {
			a.x.PerTryDeadline = time.Now().Add(r.perTryTimeout)
		}
	}
	r.mu.Lock()
	a.x.Record.Attempts = slices.Clone(r.hosts)
	a.recordStart = len(r.hosts)
	r.mu.Unlock()
	r.attempts = append(r.attempts, a)
	r.runningAttempts++
	r.hedge.start(a.run)
}

// handleResult processes the result of an attempt. If done is true, the exchange has its response
// or fails with the returned Fault.
func (r *hedgedRequest) handleResult(a *attempt) (done bool, err error) {
	r.runningAttempts--
	a.ended = true
	reason := protocol.ReasonOf(a.err)
	retriable := r.hedge.retry.covers(reason, &a.x)
	switch {
	case a.err != nil:
		a.cancel()
		r.lastFailed = a
	case !retriable:
		r.accept(a)
		return true, nil
	default:
		r.discardFallback()
		r.fallback = a
	}
	if r.runningAttempts > 0 {
		return false, nil
	}
	if retriable && r.prepareRetry() {
		r.discardFallback()
		r.retries++
		r.retryTimer = time.After(r.retryPermit.backoff)
		return false, nil
	}
	if r.fallback != nil {
		r.accept(r.fallback)
		return true, nil
	}
	r.recordAttempts(r.lastFailed)
	return true, r.lastFailed.err
}

// prepareRetry reports whether another attempt may begin now that all have ended, and sets
// retryPermit.
func (r *hedgedRequest) prepareRetry() bool {
	policy := &r.hedge.retry.policy
	if r.retries >= policy.NumRetries {
		if policy.NumRetries > 0 {
			r.x.Record.Flags |= protocol.RetryLimitExceeded
		}
		return false
	}
	r.retryPermit = permit{}
	last, lastErr := r.lastAttempt()
	r.retryPermit.backoff = r.hedge.retry.backoff(last, lastErr, r.retries+1)
	if d := r.x.Deadline; !d.IsZero() && time.Until(d) <= r.retryPermit.backoff {
		return false
	}
	r.triedHosts()
	r.retryPermit.budget = r.hedge.budget(r.x)
	if r.retryPermit.budget != nil && !r.retryPermit.budget.BeginRetry() {
		r.x.Record.Flags |= protocol.RetryOverflow
		return false
	}
	return true
}

// lastAttempt returns the exchange of the response that is kept, or of the last failed attempt, and
// its error.
func (r *hedgedRequest) lastAttempt() (*protocol.Exchange, error) {
	switch {
	case r.fallback != nil:
		return &r.fallback.x, r.fallback.err
	case r.lastFailed != nil:
		return &r.lastFailed.x, r.lastFailed.err
	}
	return r.x, nil
}

// accept makes the response of an attempt the response of the exchange.
func (r *hedgedRequest) accept(a *attempt) {
	if r.fallback == a {
		r.fallback = nil
	}
	r.recordAttempts(a)
	if a.concurrent && a.cluster != nil {
		a.cluster.Count(upstream.HedgeWon)
	}
	x := r.x
	x.Response, a.x.Response = a.x.Response, protocol.Response{}
	x.Response.Trailer = protocol.Header{}
	x.Response.SetBody(a.acceptBody(x.Response.Body))
	a.accepted = true
}

// recordAttempts copies the entries of all attempts to x's record, those of a last. If a has ended,
// it also copies a's cluster and upstream times.
func (r *hedgedRequest) recordAttempts(a *attempt) {
	r.x.Record.Attempts = r.x.Record.Attempts[:0]
	for _, other := range r.attempts {
		if other != a {
			r.x.Record.Attempts = append(r.x.Record.Attempts, other.attempts()...)
		}
	}
	r.x.Record.Attempts = append(r.x.Record.Attempts, a.attempts()...)
	if !a.ended {
		return
	}
	rec := &a.x.Record
	r.x.Record.Cluster, r.x.Record.UpstreamStart, r.x.Record.UpstreamFirstByte = rec.Cluster, rec.UpstreamStart, rec.UpstreamFirstByte
}

// discardFallback discards the fallback response.
func (r *hedgedRequest) discardFallback() {
	if r.fallback != nil {
		r.fallback.discard()
		r.fallback = nil
	}
}

// abandonAttempts abandons every attempt that was not accepted and any pending retry. It does not
// wait for the attempts.
func (r *hedgedRequest) abandonAttempts() {
	r.discardFallback()
	if r.retryTimer != nil && r.retryPermit.budget != nil {
		r.retryPermit.budget.EndRetry()
	}
	for _, a := range r.attempts {
		if !a.ended {
			a.abandon()
		}
	}
}
