// Package localratelimit implements the local_ratelimit filter, which limits the rate of requests
// with token buckets. Buckets are shared by all requests or separate for each descriptor or
// connection.
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

// Factory returns the filter factory. Filters that one factory builds, such as those before and
// after a reload, share their buckets if their configuration and env.Key are the same.
func Factory() filter.StreamFilterFactory {
	b := &builder{start: time.Now()}
	return filter.StreamFilterFactory{
		Name:    name,
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     b.build,
		Metrics: []metrics.Metric{okMetric(), limitedMetric(), enforcedMetric(), droppedMetric()},
	}
}

const name = "local_ratelimit"

func okMetric() metrics.Metric {
	return filter.Counter(name, "ok", "Requests within the limits of the local_ratelimit filter.")
}

func limitedMetric() metrics.Metric {
	return filter.Counter(name, "limited", "Requests beyond a limit, whether rejected or not.")
}

func enforcedMetric() metrics.Metric {
	return filter.Counter(name, "enforced", "Requests beyond a limit that were rejected.")
}

func droppedMetric() metrics.Metric {
	return filter.Counter(name, "dropped_buckets", "Buckets that were evicted before they were full, to make room for others; their clients get full buckets.")
}

// builder builds the filters of one factory.
type builder struct {
	start    time.Time // immutable; times are relative to it
	limiters filter.WeakCache[limiter]
}

func (b *builder) build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	p, err := c.compile()
	if err != nil {
		return nil, err
	}
	if p.defaultRate == nil && len(p.limits) == 0 || p.enabled.IsZero() {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	settings, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	f := rateLimit{
		plan: p,
		limiter: b.limiters.GetOrCreate(env.Key+" "+string(settings), func() *limiter {
			return newLimiter(p, b.start, env.Metrics.Counter(droppedMetric(), c.Prefix))
		}),
		ok:       env.Metrics.Counter(okMetric(), c.Prefix),
		limited:  env.Metrics.Counter(limitedMetric(), c.Prefix),
		enforced: env.Metrics.Counter(enforcedMetric(), c.Prefix),
	}
	return f.wrap, nil
}

// rateLimit is immutable; only its counters and its limiter change.
type rateLimit struct {
	plan                  *plan
	limiter               *limiter
	ok, limited, enforced *metrics.Counter
	next                  protocol.Service
}

// wrap returns a service that runs f and then next.
func (f rateLimit) wrap(next protocol.Service) protocol.Service {
	f.next = next
	return &f
}

// Start implements protocol.Service.
func (f *rateLimit) Start(ctx context.Context, x *protocol.Exchange) error {
	p := f.plan
	if !p.enabled.Sample() {
		return f.next.Start(ctx, x)
	}
	var q quota
	if f.limiter.take(p, x, &q) {
		f.ok.Add(1)
	} else {
		f.limited.Add(1)
		if p.enforced.Sample() {
			f.enforced.Add(1)
			f.reject(x, &q)
			return nil
		}
		p.request.Apply(x, &x.Request.Header)
	}
	if q.counted && x.Request.Method != "" {
		storeQuota(&x.Metadata, &q, p.resetsAtNextToken)
		x.PushFinisher(f)
	}
	return f.next.Start(ctx, x)
}

var errNoToken = errors.New("local_ratelimit: no token available")

// reject sends a local reply for x, which exceeds a limit. The engine converts the reply for RPC
// and gRPC clients.
func (f *rateLimit) reject(x *protocol.Exchange, q *quota) {
	x.LocalReplyError(protocol.NewFault(protocol.RateLimited, errNoToken))
	x.Response.Status = f.plan.status
	if f.plan.resourceExhausted && protocol.IsGRPC(&x.Request.Header) {
		x.Response.Header.Set("grpc-status", "8") // RESOURCE_EXHAUSTED; the engine does not change it
	}
	if q.counted {
		storeQuota(&x.Metadata, q, f.plan.resetsAtNextToken)
		addQuotaHeaders(x)
	}
	f.plan.response.Apply(x, &x.Response.Header)
}

// Finish implements protocol.Finisher. It adds the x-ratelimit headers that storeQuota stored.
func (f *rateLimit) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil {
		addQuotaHeaders(x)
	}
	return err
}

// namespace is the metadata namespace of the x-ratelimit headers until Finish adds them.
const namespace = "local_ratelimit"

// quotaHeaders returns the names of the x-ratelimit headers.
func quotaHeaders() [3]string {
	return [...]string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
}

// storeQuota stores q in m, unless an earlier filter stored as few tokens or fewer.
func storeQuota(m *protocol.Metadata, q *quota, resetsAtNextToken bool) {
	if text, ok := m.Lookup(namespace, quotaHeaders()[1]); ok {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n <= q.remaining {
			return
		}
	}
	reset := q.untilFull
	if resetsAtNextToken {
		reset = q.untilNext
	}
	seconds := (reset + time.Second - 1) / time.Second
	for i, n := range [...]int64{q.limit, q.remaining, int64(seconds)} {
		m.Set(namespace, quotaHeaders()[i], strconv.FormatInt(n, 10))
	}
}

// addQuotaHeaders adds the values that storeQuota stored to the response headers.
func addQuotaHeaders(x *protocol.Exchange) {
	for _, name := range quotaHeaders() {
		if text, ok := x.Metadata.Lookup(namespace, name); ok {
			x.Response.Header.Set(name, text)
		}
	}
}
