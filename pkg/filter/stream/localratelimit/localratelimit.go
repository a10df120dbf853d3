// Package localratelimit owns the local_ratelimit filter, which limits the rate of requests with
// token buckets, for all clients together or for each.
//
//	Config     configuration                       config.go
//	plan       compiled configuration              compile.go
//	values     values that select the buckets      descriptor.go
//	limiter    buckets, which outlive a reload     limiter.go, pool.go, bucket.go
package localratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.compile()
	return err
}

// Kind returns the filter factory. The filters that one factory builds keep their buckets across
// reloads.
func Kind() filter.StreamFilterFactory {
	s := &builder{start: time.Now()}
	return filter.StreamFilterFactory{
		Name:    name,
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     s.build,
		Metrics: []metrics.Metric{ok(), limited(), enforced(), dropped()},
	}
}

const name = "local_ratelimit"

func ok() metrics.Metric {
	return filter.Counter(name, "ok", "Requests within the limits of the local_ratelimit filter.")
}

func limited() metrics.Metric {
	return filter.Counter(name, "limited", "Requests beyond a limit, whether rejected or not.")
}

func enforced() metrics.Metric {
	return filter.Counter(name, "enforced", "Requests beyond a limit that were rejected.")
}

func dropped() metrics.Metric {
	return filter.Counter(name, "dropped_buckets", "Buckets that were evicted before they were full, to make room for others; their clients get full buckets.")
}

// builder builds the filters of one factory.
type builder struct {
	start    time.Time // immutable; instants are relative to it
	limiters filter.WeakCache[limiter]
}

func (s *builder) build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // what Config returned
	p, err := c.compile()
	if err != nil {
		return nil, err
	}
	if p.shared == nil && len(p.steps) == 0 || p.enabled.None() {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	said, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f := rateLimit{
		plan: p,
		limiter: s.limiters.GetOrCreate(env.Key+" "+string(said), func() *limiter {
			return newLimiter(p, s.start, env.Metrics.Counter(dropped(), c.Prefix))
		}),
		ok:       env.Metrics.Counter(ok(), c.Prefix),
		limited:  env.Metrics.Counter(limited(), c.Prefix),
		enforced: env.Metrics.Counter(enforced(), c.Prefix),
	}
	return f.before, nil
}

// rateLimit is immutable except for its counters and its limiter.
type rateLimit struct {
	plan                  *plan
	limiter               *limiter
	ok, limited, enforced *metrics.Counter
	next                  protocol.AsyncService
}

// before returns a service that runs f and then next.
func (f rateLimit) before(next protocol.Service) protocol.Service {
	f.next = protocol.Async(next)
	return &f
}

// Serve implements protocol.Service.
func (f *rateLimit) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, f, x)
}

// Start implements protocol.AsyncService.
func (f *rateLimit) Start(ctx context.Context, x *protocol.Exchange) error {
	p := f.plan
	if !p.enabled.Hits() {
		return f.next.Start(ctx, x)
	}
	var q quota
	if f.limiter.take(p, x, &q) {
		f.ok.Add(1)
	} else {
		f.limited.Add(1)
		if p.enforced.Hits() {
			f.enforced.Add(1)
			f.refuse(x, &q)
			return nil
		}
		p.request.Apply(x, &x.Request.Header)
	}
	if q.counted && x.Request.Method != "" {
		keep(&x.Metadata, &q)
		x.PushFinisher(f)
	}
	return f.next.Start(ctx, x)
}

var errLimited = errors.New("local_ratelimit: no token available")

// refuse rejects x, which is over a limit, with a local reply. The engine translates it for RPC and
// gRPC clients.
func (f *rateLimit) refuse(x *protocol.Exchange, q *quota) {
	x.LocalReplyError(protocol.NewFault(protocol.RateLimited, errLimited))
	x.Response.Status = f.plan.status
	if f.plan.exhausted && protocol.IsGRPC(&x.Request.Header) {
		x.Response.Header.Set("grpc-status", "8") // RESOURCE_EXHAUSTED; the engine does not change it
	}
	if q.counted {
		keep(&x.Metadata, q)
		tell(x)
	}
	f.plan.response.Apply(x, &x.Response.Header)
}

// Finish implements protocol.Finisher. It adds the x-ratelimit headers that keep stored.
func (f *rateLimit) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil {
		tell(x)
	}
	return err
}

// namespace is the metadata namespace of the x-ratelimit headers until Finish adds them.
const namespace = "local_ratelimit"

// fields returns the names of the x-ratelimit headers.
func fields() [3]string {
	return [...]string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
}

// keep stores q in m, unless an earlier filter stored as few tokens or fewer.
func keep(m *protocol.Metadata, q *quota) {
	if text, ok := m.Lookup(namespace, fields()[1]); ok {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n <= q.left {
			return
		}
	}
	seconds := (q.full + time.Second - 1) / time.Second
	for i, n := range [...]int64{q.limit, q.left, int64(seconds)} {
		m.Set(namespace, fields()[i], strconv.FormatInt(n, 10))
	}
}

// tell adds the values that keep stored to the response headers.
func tell(x *protocol.Exchange) {
	for _, name := range fields() {
		if text, ok := x.Metadata.Lookup(namespace, name); ok {
			x.Response.Header.Set(name, text)
		}
	}
}
