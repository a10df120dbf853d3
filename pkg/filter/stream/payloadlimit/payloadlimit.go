// Package payloadlimit owns the payload_limit filter: it refuses requests whose
// content is larger than a limit, before or while it is read.
package payloadlimit

import (
	"context"
	"errors"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	MaxEntitySize int64 `key:"max_entity_size" doc:"Largest request content that is let through; 0: no limit." unit:"bytes" min:"0" default:"0" example:"1048576"`
	Status        int   `key:"http_status" doc:"HTTP status of the refusal." min:"400" max:"599" default:"413" example:"413"`
}

// Kind is the filter's entry for the registry.
func Kind() filter.Stream {
	return filter.Stream{
		Name:   "payload_limit",
		Stage:  filter.AfterRoute,
		Config: func() any { return &Config{Status: 413} },
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			c := *cfg.(*Config) //nolint:forcetypeassert // what Config returned
			if c.MaxEntitySize == 0 {
				return func(next protocol.Service) protocol.Service { return next }, nil
			}
			return func(next protocol.Service) protocol.Service { return &payloadLimit{c, next} }, nil
		},
	}
}

type payloadLimit struct {
	config Config
	next   protocol.Service
}

func (p *payloadLimit) Serve(ctx context.Context, x *protocol.Exchange) error {
	body := x.Request.Body
	if body == nil {
		return p.next.Serve(ctx, x)
	}
	if x.Request.ContentLength > p.config.MaxEntitySize {
		return p.refuse(x, protocol.Faultf(protocol.BodyTooLarge, "content-length %d exceeds max_entity_size %d", x.Request.ContentLength, p.config.MaxEntitySize))
	}
	if x.Request.ContentLength >= 0 {
		return p.next.Serve(ctx, x) // the engine holds the sender to its word
	}
	x.Request.Body = &limitedBody{Body: body, left: p.config.MaxEntitySize}
	err := p.next.Serve(ctx, x)
	if errors.Is(err, errTooLarge) {
		return p.refuse(x, err)
	}
	return err
}

func (p *payloadLimit) refuse(x *protocol.Exchange, err error) error {
	x.Fail(err)
	x.Response.Status = p.config.Status
	return nil
}

var errTooLarge = errors.New("content exceeds max_entity_size")

// limitedBody is content of unknown length that fails once it is too long.
type limitedBody struct {
	protocol.Body
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, protocol.NewFault(protocol.BodyTooLarge, errTooLarge)
	}
	return n, err
}
