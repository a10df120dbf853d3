// Package adaptiveconcurrency owns the adaptive_concurrency filter. It limits the requests in
// flight to as many as the host serves in about the time of an unloaded request, and rejects
// others, the least important first.
//
//	Config      the configuration of the filter                    config.go
//	limiterSet  the limiters of routes or methods                  limits.go
//	controller  finds a limit from how long requests take          controller.go, histogram.go
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

// Kind returns the filter factory. Filters that one factory builds, such as those before and after
// a reload, share their limits if their configuration and env.Key are the same.
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
	return filter.Counter(name, "refused", "Requests that the adaptive_concurrency filter rejected, by scope of the limit (a route, or a service and its method) and by level.", labelScope, labelPriority)
}

func limit() metrics.Metric {
	return filter.Gauge(name, "limit", "Current limit of requests in flight.", labelScope)
}

func gradient() metrics.Metric {
	return filter.Gauge(name, "gradient", "Factor of the last limit update: below 1 if requests took longer than at low load.", labelScope)
}

func minRTT() metrics.Metric {
	return filter.Gauge(name, "min_rtt_seconds", "Minimum round-trip time: the request time at low load.", labelScope)
}

func inFlight() metrics.Metric {
	return filter.Gauge(name, "in_flight", "Requests that wait for the headers of their response.", labelScope)
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

// adaptive is a compiled configuration. It is immutable except for its limits and its pool.
type adaptive struct {
	levels   *levels
	byMethod bool
	status   int
	text     string // body of a rejection
	limits   *limiterSet
	calls    sync.Pool // of *call
}

// limited is the filter in front of a service.
type limited struct {
	*adaptive
	next protocol.AsyncService
}

// call is the state of an admitted request until it finishes.
type call struct {
	filter *adaptive // immutable
	gate   *limiter
	began  time.Duration
	stream bool // the duration is not a sample
	grpc   bool
}

// Serve implements protocol.Service.
func (f *limited) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, f, x)
}

// Start implements protocol.AsyncService.
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

// refuse sends the local reply of a rejection. It does what Exchange.Fail does, without allocating,
// because an overloaded proxy rejects many requests.
func (f *adaptive) refuse(x *protocol.Exchange) {
	x.Record.Reason = protocol.Overflow
	x.Record.Detail = "adaptive_concurrency: the concurrency limit is reached"
	x.LocalReply(f.status, "text/plain; charset=utf-8", f.text)
}

// goesOn reports whether the request body is incomplete after the response began, as in a stream.
// It returns false if the body does not know.
func goesOn(r *protocol.Request) bool {
	body, ok := r.Body.(protocol.CompleteBody)
	if !ok {
		return false
	}
	whole, _ := body.Complete()
	return !whole
}

// Finish implements protocol.Finisher. It releases the request even if the request body, which
// outcome examines, panics.
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

// outcome classifies the duration of x as a sample.
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

// isFailure reports whether a gRPC status is a failure of the service. Others, such as NOT_FOUND,
// are regular responses.
func isFailure(code int) bool {
	switch code {
	case 2, 4, 8, 12, 13, 14, 15: // unknown, deadline, exhausted, unimplemented, internal, unavailable, data loss
		return true
	}
	return false
}

// of returns the index of the level of x. If the field is repeated, of uses the value with the
// smallest share, so that an additional field makes no request more important.
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

// find returns the index of the level of a value.
func (l *levels) find(value string) int {
	for i := range l.list {
		if l.list[i].Value == value {
			return i
		}
	}
	return l.others
}
