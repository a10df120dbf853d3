// Package fault implements the fault filter, which delays or aborts a fraction of the requests, to
// test how clients handle faults.
package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration. If both faults are set, the delay comes first.
type Config struct {
	Delay           Delay         `key:"delay" doc:"Delays requests."`
	Abort           Abort         `key:"abort" doc:"Aborts requests with a local reply."`
	UpstreamCluster string        `key:"upstream_cluster" doc:"Affects only requests to this cluster; empty: to any cluster." refers:"cluster,warn" example:"\"reviews\""`
	DownstreamNodes []string      `key:"downstream_nodes" doc:"Affects only requests whose header x-envoy-downstream-service-node has one of these values; empty: all requests." example:"[\"edge-1\"]"`
	Headers         []HeaderMatch `key:"headers" doc:"Affects only requests that match all of these header conditions."`
	MaxActive       *int64        `key:"max_active_faults" doc:"Maximum number of requests in flight with a fault; a delayed request counts until its response arrives. Further requests are not affected. Absent: no limit." unit:"requests" min:"0" example:"100"`
}

// Delay configures the delay of requests.
type Delay struct {
	Fixed   time.Duration `key:"fixed_delay" doc:"Duration of the delay." example:"\"2s\""`
	Header  *struct{}     `key:"header_delay" doc:"Delays requests by the milliseconds in their header x-envoy-fault-delay-request. x-envoy-fault-delay-request-percentage lowers the percentage. Any client can set these headers." example:"{}"`
	Percent float64       `key:"percentage" doc:"Fraction of requests to delay, in steps of 0.0001." unit:"percent" min:"0" max:"100" default:"0" example:"10"`
}

// Abort configures the local reply to aborted requests.
type Abort struct {
	Status  int       `key:"status" doc:"HTTP status of the response; gRPC clients get the corresponding gRPC status." min:"200" max:"599" default:"503" example:"503"`
	GRPC    *int      `key:"grpc_status" doc:"Replaces status: gRPC clients get this gRPC status, other clients the HTTP status that Envoy maps it to." min:"0" max:"16" example:"14"`
	Header  *struct{} `key:"header_abort" doc:"Aborts requests with the HTTP status in their header x-envoy-fault-abort-request, or else with the gRPC status in x-envoy-fault-abort-grpc-request. x-envoy-fault-abort-request-percentage lowers the percentage. Any client can set these headers." example:"{}"`
	Percent float64   `key:"percentage" doc:"Fraction of requests to abort, in steps of 0.0001." unit:"percent" min:"0" max:"100" default:"0" example:"5"`
}

// HeaderMatch matches one header, with Value or with an Envoy condition.
type HeaderMatch struct {
	match.HeaderMatcherConfig
	Value string `key:"value" doc:"The required header value, if no other condition is set." example:"\"jason\""`
	Regex bool   `key:"regex" doc:"true: value is a regular expression that must match the whole header value." default:"false" example:"false"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if c.Delay.Percent > 0 && c.Delay.Fixed <= 0 && c.Delay.Header == nil {
		return errors.New("delay.percentage is set, but delay.fixed_delay is not")
	}
	if _, _, err := c.fractions(); err != nil {
		return err
	}
	_, err := compileHeaders(c.Headers)
	return err
}

// fractions returns the fractions of the requests that are delayed and aborted.
func (c *Config) fractions() (delayed, aborted match.Fraction, err error) {
	if delayed, err = match.FractionFromPercent(c.Delay.Percent); err != nil {
		return delayed, aborted, fmt.Errorf("delay.percentage: %w", err)
	}
	if aborted, err = match.FractionFromPercent(c.Abort.Percent); err != nil {
		return delayed, aborted, fmt.Errorf("abort.percentage: %w", err)
	}
	return delayed, aborted, nil
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "fault",
		Stage:   filter.AfterRoute,
		Config:  func() any { return &Config{Abort: Abort{Status: 503}} },
		New:     build,
		Metrics: []metrics.Metric{delaysMetric(), abortsMetric(), overflowsMetric()},
	}
}

func delaysMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_fault_delays_total", Help: "Requests that the fault filter delayed.", Kind: metrics.KindCounter}
}

func abortsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_fault_aborts_total", Help: "Requests that the fault filter aborted.", Kind: metrics.KindCounter}
}

func overflowsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_fault_overflow_total", Help: "Requests that the fault filter did not affect because max_active_faults was reached.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	headers, err := compileHeaders(c.Headers)
	if err != nil {
		return nil, err
	}
	delayed, aborted, err := c.fractions()
	if err != nil {
		return nil, err
	}
	f := fault{
		config:    *c,
		delayed:   delayed,
		aborted:   aborted,
		headers:   headers,
		random:    func() uint32 { return rand.Uint32N(match.Million) },
		delays:    env.Metrics.Counter(delaysMetric()),
		aborts:    env.Metrics.Counter(abortsMetric()),
		overflows: env.Metrics.Counter(overflowsMetric()),
		active:    new(atomic.Int64),
	}
	return f.wrap, nil
}

// fault is immutable; only its counters change.
type fault struct {
	config    Config
	delayed   match.Fraction
	aborted   match.Fraction
	headers   []match.HeaderMatcher
	next      protocol.Service
	random    func() uint32 // returns a uniform random number below match.Million
	delays    *metrics.Counter
	aborts    *metrics.Counter
	overflows *metrics.Counter
	active    *atomic.Int64 // requests in flight that were delayed, and aborts that are being sent
}

// wrap returns a copy of f in front of next.
func (f fault) wrap(next protocol.Service) protocol.Service {
	f.next = next
	return &f
}

// Start implements protocol.Service.
func (f *fault) Start(ctx context.Context, x *protocol.Exchange) error {
	if !f.applies(x) {
		return f.next.Start(ctx, x)
	}
	if d := f.delayFor(x); d > 0 {
		if !f.acquire() {
			return f.next.Start(ctx, x)
		}
		f.delays.Add(1)
		x.Record.Flags |= protocol.DelayInjected
		return x.RunBlocking(ctx, protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			return f.serveAfterDelay(ctx, x, d)
		}))
	}
	if status, ok := f.abortFor(x); ok && f.acquire() {
		defer f.release()
		f.abort(x, status)
		return nil
	}
	return f.next.Start(ctx, x)
}

// acquire adds an active fault. It returns false if max_active_faults is reached.
func (f *fault) acquire() bool {
	if n := f.active.Add(1); f.config.MaxActive == nil || n <= *f.config.MaxActive {
		return true
	}
	f.release()
	f.overflows.Add(1)
	return false
}

func (f *fault) release() { f.active.Add(-1) }

// serveAfterDelay serves x after the delay, or aborts it.
func (f *fault) serveAfterDelay(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	defer f.release()
	if err := waitDelay(ctx, x, d); err != nil {
		return err
	}
	if status, ok := f.abortFor(x); ok {
		f.abort(x, status)
		return nil
	}
	return x.Serve(ctx, f.next)
}

// abort sends the local reply.
func (f *fault) abort(x *protocol.Exchange, status abortStatus) {
	f.aborts.Add(1)
	x.LocalReplyError(protocol.Faultf(protocol.FaultInjected, "aborted by the configuration"))
	code := protocol.GRPCCodeOf(status.http)
	x.Response.Status = status.http
	if status.hasGRPC {
		code = status.grpc
		x.Response.Status = httpStatus(code)
	}
	if !protocol.IsGRPC(&x.Request.Header) {
		return
	}
	if x.EnvoyReplies != nil {
		x.Response.Header.Add("grpc-status", strconv.Itoa(code)) // the engine adds the message
		return
	}
	x.LocalReply(200, "", "")
	x.Response.Header.Add("Content-Type", "application/grpc")
	x.Response.Header.Add("grpc-status", strconv.Itoa(code))
	x.Response.Header.Add("grpc-message", protocol.FaultInjected.Text())
}

// httpStatus returns the HTTP status that Envoy uses for a gRPC status.
func httpStatus(code int) int {
	statuses := [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}
	return statuses[code]
}

func (f *fault) applies(x *protocol.Exchange) bool {
	if want := f.config.UpstreamCluster; want != "" && x.Record.TargetCluster != want {
		return false
	}
	if nodes := f.config.DownstreamNodes; len(nodes) > 0 && !slices.Contains(nodes, x.Request.Header.Get("x-envoy-downstream-service-node")) {
		return false
	}
	for i := range f.headers {
		if !f.headers[i].Matches(x) {
			return false
		}
	}
	return true
}

// waitDelay returns nil after d, or a Fault: ReasonDownstreamDisconnect when the client
// disconnects, Draining when ctx ends. See filter.Wait.
func waitDelay(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	err := filter.Wait(ctx, x, d)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, filter.ErrClientDisconnected):
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, errors.New("the client disconnected during an injected delay"))
	}
	return protocol.NewFault(protocol.Draining, err)
}

func compileHeaders(headers []HeaderMatch) ([]match.HeaderMatcher, error) {
	matchers := make([]match.HeaderMatcher, len(headers))
	for i, h := range headers {
		c := h.HeaderMatcherConfig
		switch hasCondition := c != (match.HeaderMatcherConfig{Name: h.Name}); {
		case hasCondition && (h.Value != "" || h.Regex):
			return nil, fmt.Errorf("headers[%d]: value and regex are mutually exclusive with the other conditions", i)
		case hasCondition:
		case h.Regex:
			c.SafeRegex = &match.Regex{Regex: h.Value}
		default:
			c.Exact = &h.Value
		}
		suffix := ""
		if h.Regex {
			suffix = ".value"
		}
		var err error
		if matchers[i], err = c.Compile(); err != nil {
			return nil, fmt.Errorf("headers[%d]%s: %w", i, suffix, err)
		}
	}
	return matchers, nil
}
