// Package flowcontrol implements flowControlFilter, which is compatible with MOSN's filter. It
// limits the requests to each resource by Sentinel rules.
//
//	Config   the configuration of the filter           config.go
//	rule     admits, delays or rejects requests        rule.go
package flowcontrol

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Factory returns the filter factory. Filters that one factory builds, such as those before and
// after a reload, share the state of their rules if their configuration and env.Key are the same.
func Factory() filter.StreamFilterFactory {
	fac := &factory{start: time.Now()}
	return filter.StreamFilterFactory{
		Name:    "flowControlFilter",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     fac.build,
		Metrics: []metrics.Metric{passedMetric(), queuedMetric(), blockedMetric(), rejectedMetric()},
	}
}

const (
	name      = "flow_control" // name of the filter in metrics
	labelRule = "rule"
)

func passedMetric() metrics.Metric {
	return filter.Counter(name, "passed", "Requests that a rule of the flowControlFilter allowed, including those that waited.", labelRule)
}

func queuedMetric() metrics.Metric {
	return filter.Counter(name, "queued", "Requests that a rule delayed, or would have delayed if monitor were false.", labelRule)
}

func blockedMetric() metrics.Metric {
	return filter.Counter(name, "blocked", "Requests that exceeded a rule, whether rejected or not.", labelRule)
}

func rejectedMetric() metrics.Metric {
	return filter.Counter(name, "refused", "Requests that were rejected because they exceeded a rule.", labelRule)
}

// factory builds filters.
type factory struct {
	start     time.Time // immutable; times are relative to it
	ruleCache filter.WeakCache[[]*rule]
}

func (fac *factory) build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	p, err := c.compile()
	if err != nil {
		return nil, err
	}
	if len(p.rules) == 0 || c.Switch == nil || !*c.Switch {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	settings, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f := &flowControl{plan: p, keyType: c.KeyType, monitor: c.Monitor, action: c.Action, start: fac.start}
	if f.action.Status == 0 {
		f.action.Status = defaultStatus
	}
	f.rules = fac.ruleCache.GetOrCreate(env.Key+" "+string(settings), func() *[]*rule {
		rules := new([]*rule)
		for _, l := range p.rules {
			*rules = append(*rules, newRule(l))
		}
		return rules
	})
	for _, label := range p.labels {
		f.counters = append(f.counters, ruleCounters{
			passed:   env.Metrics.Counter(passedMetric(), c.Name, label),
			queued:   env.Metrics.Counter(queuedMetric(), c.Name, label),
			blocked:  env.Metrics.Counter(blockedMetric(), c.Name, label),
			rejected: env.Metrics.Counter(rejectedMetric(), c.Name, label),
		})
	}
	f.requestPool.New = func() any { return &inFlightRequest{filter: f} }
	return func(next protocol.Service) protocol.Service { return &limitedService{f, next} }, nil
}

// flowControl is a compiled configuration. Only its rules, counters and pool change.
type flowControl struct {
	plan        *plan
	keyType     string
	monitor     bool
	action      Action
	start       time.Time
	rules       *[]*rule       // same indexes as plan.rules
	counters    []ruleCounters // same indexes as plan.rules
	requestPool sync.Pool      // of *inFlightRequest
}

type ruleCounters struct{ passed, queued, blocked, rejected *metrics.Counter }

// limitedService is the filter in front of a service.
type limitedService struct {
	*flowControl
	next protocol.Service
}

// Start implements protocol.Service.
func (f *limitedService) Start(ctx context.Context, x *protocol.Exchange) error {
	resource := f.resource(x)
	ruleIndexes := f.plan.byResource[resource]
	if len(ruleIndexes) == 0 && len(f.plan.expressions) == 0 {
		return f.next.Start(ctx, x)
	}
	g := grant{now: time.Since(f.start)}
	for _, i := range ruleIndexes {
		if !f.applyRule(x, &g, i) {
			return nil
		}
	}
	for i := range f.plan.expressions {
		if e := &f.plan.expressions[i]; e.pattern.MatchString(resource) && !f.applyRule(x, &g, e.rule) {
			return nil
		}
	}
	if g.inFlight != nil {
		x.PushFinisher(g.inFlight)
	}
	if g.wait > 0 {
		return x.RunBlocking(ctx, &delayedService{f, g.wait})
	}
	return f.next.Start(ctx, x)
}

// resource returns the resource of x, as limit_key_type selects it.
func (f *flowControl) resource(x *protocol.Exchange) string {
	original := x.OriginalPath()
	if f.keyType == "URI" || f.keyType == "URL" {
		return original
	}
	path, query, _ := strings.Cut(original, "?")
	if f.keyType == "ARG" {
		return query
	}
	return path
}

// grant records what the rules have granted to one request.
type grant struct {
	now         time.Duration
	wait        time.Duration    // time until the latest of the turns that throttling rules have assigned
	ruleIndexes [8]uint16        // indexes of rules to refund, without concurrency rules; further rules are not refunded
	count       int              // number of ruleIndexes in use
	inFlight    *inFlightRequest // nil: no rule limits requests in flight
}

// reject sends the local reply of a rejection. It does not use Exchange.LocalReplyError, which
// allocates, because there may be many rejections.
func (f *flowControl) reject(x *protocol.Exchange) {
	x.Record.Reason, x.Record.Detail = protocol.RateLimited, "flowControlFilter: the request exceeds a rule"
	x.LocalReply(f.action.Status, "text/plain; charset=utf-8", f.action.Body)
}

// applyRule applies a rule to x. It returns false if it rejected x and sent the local reply.
func (f *flowControl) applyRule(x *protocol.Exchange, g *grant, i int) bool {
	r, counters := (*f.rules)[i], &f.counters[i]
	wait, ok := r.take(g.now, f.maxWait(x, r))
	if !ok {
		counters.blocked.Add(1)
		if f.monitor {
			return true
		}
		counters.rejected.Add(1)
		f.refund(g)
		f.reject(x)
		return false
	}
	counters.passed.Add(1)
	if wait > 0 {
		counters.queued.Add(1)
	}
	if g.wait < wait && !f.monitor {
		g.wait = wait
	}
	if r.limit.kind == kindConcurrency {
		if g.inFlight == nil {
			g.inFlight = f.requestPool.Get().(*inFlightRequest) //nolint:forcetypeassert // what New returns
		}
		g.inFlight.rules = append(g.inFlight.rules, r)
	} else if g.count < len(g.ruleIndexes) {
		g.ruleIndexes[g.count] = uint16(i)
		g.count++
	}
	return true
}

// maxWait returns the maximum time that x may wait for a turn of r. A turn after the deadline of x
// would only delay later requests.
func (f *flowControl) maxWait(x *protocol.Exchange, r *rule) time.Duration {
	if f.monitor || r.limit.kind != kindThrottling || x.Deadline.IsZero() {
		return math.MaxInt64
	}
	return max(time.Until(x.Deadline), 0)
}

// refund undoes what the rules have granted to g. It does not return turns of throttling rules, or
// requests that are counted by rules that did not fit in g.ruleIndexes.
func (f *flowControl) refund(g *grant) {
	for _, i := range g.ruleIndexes[:g.count] {
		(*f.rules)[i].refund(g.now)
	}
	if g.inFlight != nil {
		g.inFlight.release()
	}
}

// delayedService serves a request after wait.
type delayedService struct {
	*limitedService
	wait time.Duration
}

// Serve implements protocol.BlockingService.
func (s *delayedService) Serve(ctx context.Context, x *protocol.Exchange) error {
	switch err := filter.Wait(ctx, x, s.wait); {
	case err == nil:
		return x.Serve(ctx, s.next)
	case errors.Is(err, filter.ErrClientDisconnected):
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, errors.New("the client disconnected while its request was throttled"))
	default:
		return protocol.NewFault(protocol.Draining, err)
	}
}

// inFlightRequest is a request that counts against rules for requests in flight.
type inFlightRequest struct {
	filter *flowControl // immutable
	rules  []*rule
}

// Finish implements protocol.Finisher.
func (c *inFlightRequest) Finish(_ context.Context, _ *protocol.Exchange, err error) error {
	c.release()
	return err
}

// release stops counting the request and puts c into the pool. The caller must not use c
// afterwards.
func (c *inFlightRequest) release() {
	for i, r := range c.rules {
		r.release()
		c.rules[i] = nil
	}
	c.rules = c.rules[:0]
	c.filter.requestPool.Put(c)
}
