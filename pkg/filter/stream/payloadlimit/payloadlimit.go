// Package payloadlimit implements the payload_limit filter, which rejects requests whose body is
// larger than a limit, before or while the body is read.
package payloadlimit

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	MaxEntitySize int64 `key:"max_entity_size" doc:"Maximum size of a request body; 0: no limit." unit:"bytes" min:"0" default:"0" example:"1048576"`
	Status        int   `key:"http_status" doc:"HTTP status of the response to rejected requests." min:"400" max:"599" default:"413" example:"413"`
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "payload_limit",
		Stage:   filter.AfterRoute,
		Config:  func() any { return &Config{Status: 413} },
		New:     build,
		Metrics: []metrics.Metric{rejectedMetric()},
	}
}

func rejectedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_payload_limit_refused_total", Help: "Requests rejected because their body is larger than max_entity_size.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := *cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	if c.MaxEntitySize == 0 {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	rejected := env.Metrics.Counter(rejectedMetric())
	return func(next protocol.Service) protocol.Service { return &payloadLimit{c, rejected, next} }, nil
}

// payloadLimit is immutable; only its counter changes.
type payloadLimit struct {
	config   Config
	rejected *metrics.Counter
	next     protocol.Service
}

// Start implements protocol.Service.
func (p *payloadLimit) Start(ctx context.Context, x *protocol.Exchange) error {
	body := x.Request.Body
	if body == nil {
		return p.next.Start(ctx, x)
	}
	if n := x.Request.ContentLength; n > p.config.MaxEntitySize {
		return p.reject(x, protocol.Faultf(protocol.BodyTooLarge, "content-length %d exceeds max_entity_size %d", n, p.config.MaxEntitySize))
	} else if n >= 0 {
		return p.next.Start(ctx, x) // the engine enforces the declared length
	}
	x.Request.Body = &limitedBody{Body: body, limit: p.config.MaxEntitySize, remaining: p.config.MaxEntitySize}
	x.PushFinisher(p)
	return p.next.Start(ctx, x)
}

// Finish implements protocol.Finisher. It rejects a request whose body, of unknown length, was too
// large.
func (p *payloadLimit) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if errors.Is(err, errTooLarge) {
		return p.reject(x, err)
	}
	return err
}

func (p *payloadLimit) reject(x *protocol.Exchange, err error) error {
	p.rejected.Add(1)
	x.LocalReplyError(err)
	x.Response.Status = p.config.Status
	return nil
}

var errTooLarge = errors.New("the body exceeds max_entity_size")

// limitedBody is a body of unknown length. Read fails once the body exceeds limit.
type limitedBody struct {
	protocol.Body
	limit, remaining int64
}

// Read implements protocol.Body. The Read that exceeds the limit returns no bytes and a Fault.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	b.remaining -= int64(n)
	if b.remaining < 0 {
		return 0, protocol.NewFault(protocol.BodyTooLarge, errTooLarge)
	}
	return n, err
}

// Rewind implements protocol.Rewinder. Each attempt has the full limit.
func (b *limitedBody) Rewind() bool {
	if !protocol.RewindBody(b.Body) {
		return false
	}
	b.remaining = b.limit
	return true
}
