// Package adaptiveconcurrency implements the adaptive_concurrency filter. It limits the requests in
// flight so that they take about as long as on an unloaded host, and rejects other requests, the
// least important first.
//
//	Config      the configuration of the filter                    config.go
//	limiterSet  the limiters of routes or methods                  limiterset.go
//	controller  derives a limit from the durations of requests     controller.go, histogram.go
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

// Factory returns the filter factory. Filters that one factory builds, such as those before and
// after a reload, share their limits if their configuration and env.Key are the same.
func Factory() filter.StreamFilterFactory {
	fac := &factory{start: time.Now()}
	return filter.StreamFilterFactory{
		Name:    name,
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     fac.build,
		Metrics: []metrics.Metric{rejectedMetric(), limitMetric(), gradientMetric(), minRTTMetric(), inFlightMetric()},
	}
}

// Labels of the metrics.
const (
	labelScope    = "scope" // route or method
	labelPriority = "priority"
)

func rejectedMetric() metrics.Metric {
	return filter.Counter(name, "refused", "Requests that the adaptive_concurrency filter rejected, by scope of the limit (a route, a service and its method, or the filter) and by priority level.", labelScope, labelPriority)
}

func limitMetric() metrics.Metric {
	return filter.Gauge(name, "limit", "Current limit of requests in flight.", labelScope)
}

func gradientMetric() metrics.Metric {
	return filter.Gauge(name, "gradient", "Factor of the last limit update: below 1 if requests took longer than at low load.", labelScope)
}

func minRTTMetric() metrics.Metric {
	return filter.Gauge(name, "min_rtt_seconds", "Minimum round-trip time: the request time at low load.", labelScope)
}

func inFlightMetric() metrics.Metric {
	return filter.Gauge(name, "in_flight", "Requests that wait for the headers of their response.", labelScope)
}

// factory builds filters.
type factory struct {
	start       time.Time // immutable
	limiterSets filter.WeakCache[limiterSet]
}

func (fac *factory) build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	if c.Gradient == nil || !c.Enabled.Default {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	levels, err := c.Priority.compile()
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f := &adaptiveConcurrency{
		levels: levels,
		per:    perOf(c.Per),
		status: c.status(),
		text:   protocol.Overflow.Text() + "\n",
		limits: fac.limiterSets.GetOrCreate(env.Key+" "+string(settings), func() *limiterSet {
			l := &limiterSet{start: fac.start, params: c.Gradient.params(), levels: levels, maxScopes: c.MaxLimits, prefix: c.Prefix, registry: env.Metrics}
			l.byScope.Store(new(map[scope]*limiter))
			return l
		}),
	}
	f.requestPool.New = func() any { return &admittedRequest{filter: f} }
	return func(next protocol.Service) protocol.Service { return &limitedService{f, next} }, nil
}

// adaptiveConcurrency is a compiled configuration. Only its limits and its pool change.
type adaptiveConcurrency struct {
	levels      *levels
	per         per
	status      int
	text        string // body of a rejection
	limits      *limiterSet
	requestPool sync.Pool // of *admittedRequest
}

// limitedService is the filter in front of a service.
type limitedService struct {
	*adaptiveConcurrency
	next protocol.Service
}

// admittedRequest is the state of an admitted request until it finishes.
type admittedRequest struct {
	filter    *adaptiveConcurrency // immutable
	limiter   *limiter
	startedAt time.Duration
	excluded  bool // the duration is not a sample
	grpc      bool
}

// Start implements protocol.Service.
func (f *limitedService) Start(ctx context.Context, x *protocol.Exchange) error {
	lim := f.limits.limiterFor(x, f.per)
	level := f.levels.indexFor(x)
	now := f.limits.now()
	if !lim.acquire(f.levels.list[level].Share) {
		lim.rejected[level].Add(1)
		lim.updateIfDue(now)
		f.reject(x)
		return nil
	}
	c := f.requestPool.Get().(*admittedRequest) //nolint:forcetypeassert // what New returns
	c.limiter, c.startedAt = lim, now
	c.grpc = x.Request.Method != "" && protocol.IsGRPC(&x.Request.Header)
	c.excluded = x.Request.OneWay || x.Request.Upgrade != "" || x.Request.Method == "CONNECT"
	x.PushFinisher(c)
	return f.next.Start(ctx, x)
}

// reject sends the local reply of a rejection. It does not use Exchange.LocalReplyError, which
// allocates, because an overloaded proxy rejects many requests.
func (f *adaptiveConcurrency) reject(x *protocol.Exchange) {
	x.Record.Reason = protocol.Overflow
	x.Record.Detail = "adaptive_concurrency: the concurrency limit is reached"
	x.LocalReply(f.status, "text/plain; charset=utf-8", f.text)
}

// requestIncomplete reports whether part of the request body has not arrived yet. It returns false
// if the body does not implement protocol.CompleteBody.
func requestIncomplete(r *protocol.Request) bool {
	body, ok := r.Body.(protocol.CompleteBody)
	if !ok {
		return false
	}
	complete, _ := body.Complete()
	return !complete
}

// Finish implements protocol.Finisher. It releases the request even if the request body, which
// classify examines, panics.
func (c *admittedRequest) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	o := failed
	defer func() {
		c.limiter.release(c.startedAt, c.filter.limits.now(), o)
		c.limiter = nil
		c.filter.requestPool.Put(c)
	}()
	o = c.classify(x, err)
	return err
}

// classify classifies the duration of x as a sample.
func (c *admittedRequest) classify(x *protocol.Exchange, err error) outcome {
	switch reason := protocol.ReasonOf(err); {
	case c.excluded, reason == protocol.ReasonDownstreamDisconnect:
		return notSampled
	case reason != protocol.ReasonNone:
		return failed
	}
	r := &x.Response
	switch {
	case r.Status == 0, r.Tunnel != nil:
		return notSampled
	case r.Status >= 500, r.Status == tooManyRequests:
		return failed
	case c.grpc && isFailure(protocol.GRPCStatus(r)):
		return failed
	case c.grpc && requestIncomplete(&x.Request):
		return notSampled
	}
	return succeeded
}

const tooManyRequests = 429 // RFC 6585 4

// isFailure reports whether a gRPC status is a failure of the service. Other statuses, such as
// NOT_FOUND, are regular responses.
func isFailure(code int) bool {
	switch code {
	case 2, 4, 8, 12, 13, 14, 15: // unknown, deadline, exhausted, unimplemented, internal, unavailable, data loss
		return true
	}
	return false
}

// indexFor returns the index of the level of x. If x has the priority header several times,
// indexFor uses the value with the smallest share, so that an additional header makes no request
// more important.
func (l *levels) indexFor(x *protocol.Exchange) (lowest int) {
	if len(l.list) == 1 {
		return 0
	}
	for n := 0; ; n++ {
		value, ok, more := l.field.Value(x, n)
		if !ok {
			return l.defaultIndex
		}
		if level := l.indexOf(value); n == 0 && !more {
			return level
		} else if n == 0 || l.list[level].Share < l.list[lowest].Share {
			lowest = level
		}
		if !more {
			return lowest
		}
	}
}

// indexOf returns the index of the level with this header value, or defaultIndex.
func (l *levels) indexOf(value string) int {
	for i := range l.list {
		if l.list[i].Value == value {
			return i
		}
	}
	return l.defaultIndex
}
