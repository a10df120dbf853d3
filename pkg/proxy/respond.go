// Package proxy owns the way of an exchange between the engines: answering what
// fails, routing, timeouts, retries, access logs; and Server, which applies one
// configuration after the other to the running process.
package proxy

import (
	"context"
	"log/slog"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Respond turns errors and panics of next into replies. It is the outermost
// service of every chain and never returns an error.
func Respond(next protocol.Service, panics *metrics.Counter, log *slog.Logger) protocol.AsyncService {
	return &respond{protocol.Async(next), panics, log}
}

type respond struct {
	next   protocol.AsyncService
	panics *metrics.Counter
	log    *slog.Logger
}

// Serve is protocol.Service's.
func (r *respond) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, r, x)
}

// Start is protocol.AsyncService's.
func (r *respond) Start(ctx context.Context, x *protocol.Exchange) error {
	x.PushFinisher(r)
	return r.next.Start(ctx, x)
}

// Finish is protocol.Finisher's.
func (r *respond) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil {
		return nil
	}
	if p := protocol.PanicIn(err); p != nil {
		r.panics.Add(1)
		r.log.Error("panic while serving a request: it was answered with 500; this is a defect, please report it",
			"panic", p.Value, "stack", string(p.Stack))
	}
	x.LocalReplyError(err)
	return nil
}
