package service

import (
	"context"
	"log/slog"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Respond turns errors and panics of next into local replies. It is the outermost service of every
// chain; its Finish never returns an error.
func Respond(next protocol.Service, panics *metrics.Counter, log *slog.Logger) protocol.Service {
	return &respond{next, panics, log}
}

type respond struct {
	next   protocol.Service
	panics *metrics.Counter
	log    *slog.Logger
}

// Start implements protocol.Service.
func (r *respond) Start(ctx context.Context, x *protocol.Exchange) error {
	x.PushFinisher(r)
	return r.next.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (r *respond) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil {
		return nil
	}
	if p := protocol.PanicIn(err); p != nil {
		r.panics.Add(1)
		r.log.Error("panic while serving a request, which gets a 500 response; this is a defect, please report it",
			"panic", p.Value, "stack", string(p.Stack))
	}
	x.LocalReplyError(err)
	return nil
}
