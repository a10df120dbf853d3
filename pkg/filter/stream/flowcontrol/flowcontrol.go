// Package flowcontrol owns the flowControlFilter, which is compatible with MOSN's. It limits the
// requests to each resource by Sentinel rules.
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
	k := &factory{start: time.Now()}
	return filter.StreamFilterFactory{
		Name:    "flowControlFilter",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     k.build,
		Metrics: []metrics.Metric{passedMetric(), queuedMetric(), blockedMetric(), rejectedMetric()},
	}
}

const (
	name      = "flow_control" // in metrics
	labelRule = "rule"
)

func passedMetric() metrics.Metric {
	return filter.Counter(name, "passed", "Requests that a rule of the flowControlFilter allowed, including those that waited.", labelRule)
}

func queuedMetric() metrics.Metric {
	return filter.Counter(name, "queued", "Requests that a rule delayed, or would have delayed without monitor.", labelRule)
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

func (s *factory) build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // what Config returned
	p, err := c.compile()
	if err != nil {
		return nil, err
	}
	if len(p.rules) == 0 || c.Switch == nil || !*c.Switch {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	said, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f := &flowControl{plan: p, key: c.Key, monitor: c.Monitor, action: c.Action, start: s.start}
	if f.action.Status == 0 {
		f.action.Status = defaultStatus
	}
	f.rules = s.ruleCache.GetOrCreate(env.Key+" "+string(said), func() *[]*rule {
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
	f.callPool.New = func() any { return &inFlightCall{filter: f} }
	return func(next protocol.Service) protocol.Service { return &limitedService{f, next} }, nil
}

// flowControl is a compiled configuration. It is immutable except for its rules, counters and pool.
type flowControl struct {
	plan     *plan
	key      string
	monitor  bool
	action   Action
	start    time.Time
	rules    *[]*rule       // same indexes as plan.rules
	counters []ruleCounters // same indexes as plan.rules
	callPool sync.Pool
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
	named := f.plan.byResource[resource]
	if len(named) == 0 && len(f.plan.expressions) == 0 {
		return f.next.Start(ctx, x)
	}
	h := grant{now: time.Since(f.start)}
	for _, i := range named {
		if !f.applyRule(x, &h, i) {
			return nil
		}
	}
	for i := range f.plan.expressions {
		if e := &f.plan.expressions[i]; e.pattern.MatchString(resource) && !f.applyRule(x, &h, e.rule) {
			return nil
		}
	}
	if h.call != nil {
		x.PushFinisher(h.call)
	}
	if h.wait > 0 {
		return x.RunBlocking(ctx, &delayedService{f, h.wait})
	}
	return f.next.Start(ctx, x)
}

// resource returns the resource of x, as limit_key_type selects it.
func (f *flowControl) resource(x *protocol.Exchange) string {
	asked := x.OriginalPath()
	if f.key == "URI" || f.key == "URL" {
		return asked
	}
	path, query, _ := strings.Cut(asked, "?")
	if f.key == "ARG" {
		return query
	}
	return path
}

// grant is what the rules have granted to a request.
type grant struct {
	now         time.Duration
	wait        time.Duration // until the last of its turns
	ruleIndexes [8]uint16     // indexes of rules to undo; rules beyond the eighth are not undone
	count       int
	call        *inFlightCall // nil: no rule counts it as in flight
}

// reject sends the local reply of a rejection. It does what Exchange.Fail does, without allocating,
// because there may be many.
func (f *flowControl) reject(x *protocol.Exchange) {
	x.Record.Reason, x.Record.Detail = protocol.RateLimited, "flowControlFilter: the request exceeds a rule"
	x.LocalReply(f.action.Status, "text/plain; charset=utf-8", f.action.Body)
}

// applyRule applies a rule to x. It returns false if it rejected x and sent the local reply.
func (f *flowControl) applyRule(x *protocol.Exchange, h *grant, i int) bool {
	r, count := (*f.rules)[i], &f.counters[i]
	wait, ok := r.take(h.now, f.maxWait(x, r))
	if !ok {
		count.blocked.Add(1)
		if f.monitor {
			return true
		}
		count.rejected.Add(1)
		f.refund(h)
		f.reject(x)
		return false
	}
	count.passed.Add(1)
	if wait > 0 {
		count.queued.Add(1)
	}
	if h.wait < wait && !f.monitor {
		h.wait = wait
	}
	if r.limit.kind == kindConcurrency {
		if h.call == nil {
			h.call = f.callPool.Get().(*inFlightCall) //nolint:forcetypeassert // what New returns
		}
		h.call.rules = append(h.call.rules, r)
	} else if h.count < len(h.ruleIndexes) {
		h.ruleIndexes[h.count] = uint16(i)
		h.count++
	}
	return true
}

// maxWait returns the maximum wait of x for a turn of r. x does not take a turn after its
// deadline, because that would only delay later requests.
func (f *flowControl) maxWait(x *protocol.Exchange, r *rule) time.Duration {
	if f.monitor || r.limit.kind != kindThrottling || x.Deadline.IsZero() {
		return math.MaxInt64
	}
	return max(time.Until(x.Deadline), 0)
}

// refund undoes what the rules have granted.
func (f *flowControl) refund(h *grant) {
	for _, i := range h.ruleIndexes[:h.count] {
		(*f.rules)[i].refund(h.now)
	}
	if h.call != nil {
		h.call.release()
	}
}

// delayedService serves a request when its turn comes.
type delayedService struct {
	*limitedService
	wait time.Duration
}

// Serve implements protocol.BlockingService.
func (w *delayedService) Serve(ctx context.Context, x *protocol.Exchange) error {
	switch err := filter.Wait(ctx, x, w.wait); {
	case err == nil:
		return x.Serve(ctx, w.next)
	case errors.Is(err, filter.ErrClientDisconnected):
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, errors.New("client disconnected while its request was throttled"))
	default:
		return protocol.NewFault(protocol.Draining, err)
	}
}

// inFlightCall is a request that some rules count as in flight.
type inFlightCall struct {
	filter *flowControl // immutable
	rules  []*rule
}

// Finish implements protocol.Finisher.
func (c *inFlightCall) Finish(_ context.Context, _ *protocol.Exchange, err error) error {
	c.release()
	return err
}

// release ends the request and puts c into the pool. The caller must not use c afterwards.
func (c *inFlightCall) release() {
	for i, r := range c.rules {
		r.release()
		c.rules[i] = nil
	}
	c.rules = c.rules[:0]
	c.filter.callPool.Put(c)
}
