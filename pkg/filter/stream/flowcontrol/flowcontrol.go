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

// Kind returns the filter factory. Filters that one factory builds, such as those before and after
// a reload, share the state of their rules if their configuration and env.Key are the same.
func Kind() filter.StreamFilterFactory {
	k := &shelf{start: time.Now()}
	return filter.StreamFilterFactory{
		Name:    "flowControlFilter",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     k.build,
		Metrics: []metrics.Metric{passed(), queued(), blocked(), refused()},
	}
}

const (
	name      = "flow_control" // in metrics
	labelRule = "rule"
)

func passed() metrics.Metric {
	return filter.Counter(name, "passed", "Requests that a rule of the flowControlFilter allowed, including those that waited.", labelRule)
}

func queued() metrics.Metric {
	return filter.Counter(name, "queued", "Requests that a rule delayed, or would have delayed without monitor.", labelRule)
}

func blocked() metrics.Metric {
	return filter.Counter(name, "blocked", "Requests that exceeded a rule, whether rejected or not.", labelRule)
}

func refused() metrics.Metric {
	return filter.Counter(name, "refused", "Requests that were rejected because they exceeded a rule.", labelRule)
}

// shelf builds filters.
type shelf struct {
	start time.Time // immutable; times are relative to it
	rules filter.WeakCache[[]*rule]
}

func (s *shelf) build(cfg any, env filter.Env) (filter.Filter, error) {
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
	f.rules = s.rules.GetOrCreate(env.Key+" "+string(said), func() *[]*rule {
		rules := new([]*rule)
		for _, l := range p.rules {
			*rules = append(*rules, newRule(l))
		}
		return rules
	})
	for _, label := range p.labels {
		f.counts = append(f.counts, counts{
			passed:  env.Metrics.Counter(passed(), c.Name, label),
			queued:  env.Metrics.Counter(queued(), c.Name, label),
			blocked: env.Metrics.Counter(blocked(), c.Name, label),
			refused: env.Metrics.Counter(refused(), c.Name, label),
		})
	}
	f.calls.New = func() any { return &call{filter: f} }
	return func(next protocol.Service) protocol.Service { return &controlled{f, protocol.Async(next)} }, nil
}

// flowControl is a compiled configuration. It is immutable except for its rules, counters and pool.
type flowControl struct {
	plan    *plan
	key     string
	monitor bool
	action  Action
	start   time.Time
	rules   *[]*rule // same indexes as plan.rules
	counts  []counts // same indexes as plan.rules
	calls   sync.Pool
}

type counts struct{ passed, queued, blocked, refused *metrics.Counter }

// controlled is the filter in front of a service.
type controlled struct {
	*flowControl
	next protocol.AsyncService
}

// Serve implements protocol.Service.
func (f *controlled) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, f, x)
}

// Start implements protocol.AsyncService.
func (f *controlled) Start(ctx context.Context, x *protocol.Exchange) error {
	resource := f.resource(x)
	named := f.plan.byResource[resource]
	if len(named) == 0 && len(f.plan.expressions) == 0 {
		return f.next.Start(ctx, x)
	}
	h := acquired{now: time.Since(f.start)}
	for _, i := range named {
		if !f.take(x, &h, i) {
			return nil
		}
	}
	for i := range f.plan.expressions {
		if e := &f.plan.expressions[i]; e.fits.MatchString(resource) && !f.take(x, &h, e.rule) {
			return nil
		}
	}
	if h.call != nil {
		x.PushFinisher(h.call)
	}
	if h.wait > 0 {
		return x.RunBlocking(ctx, &waiting{f, h.wait})
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

// acquired is what the rules have granted to a request.
type acquired struct {
	now   time.Duration
	wait  time.Duration // until the last of its turns
	taken [8]uint16     // indexes of rules to undo; rules beyond the eighth are not undone
	count int
	call  *call // nil: no rule counts it as in flight
}

// refuse sends the local reply of a rejection. It does what Exchange.Fail does, without allocating,
// because there may be many.
func (f *flowControl) refuse(x *protocol.Exchange) {
	x.Record.Reason, x.Record.Detail = protocol.RateLimited, "flowControlFilter: the request exceeds a rule"
	x.LocalReply(f.action.Status, "text/plain; charset=utf-8", f.action.Body)
}

// take applies a rule to x. It returns false if it rejected x and sent the local reply.
func (f *flowControl) take(x *protocol.Exchange, h *acquired, i int) bool {
	r, count := (*f.rules)[i], &f.counts[i]
	wait, ok := r.take(h.now, f.patience(x, r))
	if !ok {
		count.blocked.Add(1)
		if f.monitor {
			return true
		}
		count.refused.Add(1)
		f.giveBack(h)
		f.refuse(x)
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
			h.call = f.calls.Get().(*call) //nolint:forcetypeassert // what New returns
		}
		h.call.rules = append(h.call.rules, r)
	} else if h.count < len(h.taken) {
		h.taken[h.count] = uint16(i)
		h.count++
	}
	return true
}

// patience returns the maximum wait of x for a turn of r. x does not take a turn after its
// deadline, because that would only delay later requests.
func (f *flowControl) patience(x *protocol.Exchange, r *rule) time.Duration {
	if f.monitor || r.limit.kind != kindThrottling || x.Deadline.IsZero() {
		return math.MaxInt64
	}
	return max(time.Until(x.Deadline), 0)
}

// giveBack undoes what the rules have granted.
func (f *flowControl) giveBack(h *acquired) {
	for _, i := range h.taken[:h.count] {
		(*f.rules)[i].giveBack(h.now)
	}
	if h.call != nil {
		h.call.end()
	}
}

// waiting serves a request when its turn comes.
type waiting struct {
	*controlled
	wait time.Duration
}

// Serve implements protocol.Service.
func (w *waiting) Serve(ctx context.Context, x *protocol.Exchange) error {
	switch err := filter.Wait(ctx, x, w.wait); {
	case err == nil:
		return w.next.Serve(ctx, x)
	case errors.Is(err, filter.ErrClientGone):
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, errors.New("client disconnected while its request was throttled"))
	default:
		return protocol.NewFault(protocol.Draining, err)
	}
}

// call is a request that some rules count as in flight.
type call struct {
	filter *flowControl // immutable
	rules  []*rule
}

// Finish implements protocol.Finisher.
func (c *call) Finish(_ context.Context, _ *protocol.Exchange, err error) error {
	c.end()
	return err
}

// end ends the request and puts c into the pool. The caller must not use c afterwards.
func (c *call) end() {
	for i, r := range c.rules {
		r.leave()
		c.rules[i] = nil
	}
	c.rules = c.rules[:0]
	c.filter.calls.Put(c)
}
