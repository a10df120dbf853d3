// Package adaptiveconcurrency owns the adaptive_concurrency filter: it lets as many
// requests be under way at once as can be served in about the time that few take, and
// refuses others, the least important first.
//
//	Config      what a file says                                  config.go
//	limits      the controllers of routes or methods              limits.go
//	controller  finds a limit by how long requests take           controller.go, histogram.go
package adaptiveconcurrency

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

const name = "adaptive_concurrency"

// Kind is the filter's entry for the registry. What one Kind builds, one configuration
// after the other, shares the limits that stay.
func Kind() filter.StreamFilterFactory {
	k := &kind{start: time.Now()}
	return filter.StreamFilterFactory{
		Name:    name,
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     k.build,
		Metrics: []metrics.Metric{refused(), limit(), gradient(), minRTT(), inFlight()},
	}
}

// Labels of the metrics.
const (
	labelScope    = "scope" // route or method
	labelPriority = "priority"
)

func refused() metrics.Metric {
	return filter.Counter(name, "refused", "Requests that the adaptive_concurrency filter refused, by what the limit is of (a route, or a service with its method) and by their level.", labelScope, labelPriority)
}

func limit() metrics.Metric {
	return filter.Gauge(name, "limit", "How many requests may be under way at once.", labelScope)
}

func gradient() metrics.Metric {
	return filter.Gauge(name, "gradient", "What the limit was multiplied with the last time: less than 1 if requests took longer than when there are few.", labelScope)
}

func minRTT() metrics.Metric {
	return filter.Gauge(name, "min_rtt_seconds", "What requests took when there were few.", labelScope)
}

func inFlight() metrics.Metric {
	return filter.Gauge(name, "in_flight", "How many requests wait for the head of their answer.", labelScope)
}

// kind builds filters.
type kind struct {
	start time.Time // immutable
	shelf filter.WeakCache[limiterSet]
}

func (k *kind) build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // what Config returned
	if c.Gradient == nil || !c.Enabled.Default {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	levels, err := c.Priority.compile()
	if err != nil {
		return nil, err
	}
	said, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f := &adaptive{
		levels:   levels,
		byMethod: c.Per == "method",
		status:   c.status(),
		text:     protocol.Overflow.Text() + "\n",
		limits: k.shelf.GetOrCreate(env.Key+" "+string(said), func() *limiterSet {
			l := &limiterSet{start: k.start, params: c.Gradient.params(), levels: levels, most: c.MaxLimits, prefix: c.Prefix, counts: env.Metrics}
			l.byScope.Store(new(map[scope]*limiter))
			return l
		}),
	}
	f.calls.New = func() any { return &call{filter: f} }
	return func(next protocol.Service) protocol.Service { return &limited{f, protocol.Async(next)} }, nil
}

// adaptive is a configuration. It is immutable but for its limits and its pool.
type adaptive struct {
	levels   *levels
	byMethod bool
	status   int
	text     string // for those who are refused
	limits   *limiterSet
	calls    sync.Pool // of *call
}

// limited is the filter before a service.
type limited struct {
	*adaptive
	next protocol.AsyncService
}

// call is a request that was let in: what is to be known at its end.
type call struct {
	filter *adaptive // immutable
	gate   *limiter
	began  time.Duration
	stream bool // the time that it takes says nothing
	grpc   bool
}

// Serve is protocol.Service's.
func (f *limited) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, f, x)
}

// Start is protocol.AsyncService's.
func (f *limited) Start(ctx context.Context, x *protocol.Exchange) error {
	g := f.limits.of(x, f.byMethod)
	level := f.levels.of(x)
	now := f.limits.now()
	if !g.enter(f.levels.list[level].Share) {
		g.refused[level].Add(1)
		g.look(now)
		f.refuse(x)
		return nil
	}
	c := f.calls.Get().(*call) //nolint:forcetypeassert // what New returns
	c.gate, c.began = g, now
	c.grpc = x.Request.Method != "" && protocol.IsGRPC(&x.Request.Header)
	c.stream = x.Request.OneWay || x.Request.Upgrade != "" || x.Request.Method == "CONNECT"
	x.PushFinisher(c)
	return f.next.Start(ctx, x)
}

// refuse answers x. It is Exchange.Fail without what that allocates: whoever is
// overloaded refuses many.
func (f *adaptive) refuse(x *protocol.Exchange) {
	x.Record.Reason = protocol.Overflow
	x.Record.Detail = "adaptive_concurrency: as many requests are under way as can be served in time"
	x.LocalReply(f.status, "text/plain; charset=utf-8", f.text)
}

// goesOn reports whether the caller of a request that is answered is still sending it, as
// those of streams do. The engine that reads it may not know: then it does not.
func goesOn(r *protocol.Request) bool {
	body, ok := r.Body.(protocol.CompleteBody)
	if !ok {
		return false
	}
	whole, _ := body.Complete()
	return !whole
}

// Finish is protocol.Finisher's. outcome asks the body of the request, which may panic: the
// request is no longer under way then, either.
func (c *call) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	o := failed
	defer func() {
		c.gate.leave(c.began, c.filter.limits.now(), o)
		c.gate = nil
		c.filter.calls.Put(c)
	}()
	o = c.outcome(x, err)
	return err
}

// outcome tells what the time that x took says of the upstream.
func (c *call) outcome(x *protocol.Exchange, err error) outcome {
	switch reason := protocol.ReasonOf(err); {
	case c.stream, reason == protocol.ReasonDownstreamDisconnect:
		return leftOut
	case reason != protocol.ReasonNone:
		return failed
	}
	r := &x.Response
	switch {
	case r.Status == 0, r.Tunnel != nil:
		return leftOut
	case r.Status >= 500, r.Status == tooManyRequests:
		return failed
	case c.grpc && isFailure(protocol.GRPCStatus(r)):
		return failed
	case c.grpc && goesOn(&x.Request):
		return leftOut
	}
	return answered
}

const tooManyRequests = 429 // RFC 6585 4

// isFailure reports whether a status of gRPC says that a service has not done what it
// does. Others, as that something was not found, are answers.
func isFailure(code int) bool {
	switch code {
	case 2, 4, 8, 12, 13, 14, 15: // unknown, deadline, exhausted, unimplemented, internal, unavailable, data loss
		return true
	}
	return false
}

// of returns the level of x: of several fields, the one with the smallest share, so that
// a field that is added makes no request more important.
func (l *levels) of(x *protocol.Exchange) (least int) {
	if len(l.list) == 1 {
		return 0
	}
	for n := 0; ; n++ {
		value, ok, more := l.field.Value(x, n)
		if !ok {
			return l.others
		}
		if level := l.find(value); n == 0 && !more {
			return level
		} else if n == 0 || l.list[level].Share < l.list[least].Share {
			least = level
		}
		if !more {
			return least
		}
	}
}

// find returns the level of a value.
func (l *levels) find(value string) int {
	for i := range l.list {
		if l.list[i].Value == value {
			return i
		}
	}
	return l.others
}
