// Package proxy owns the way of an exchange between the engines: answering what
// fails, routing, timeouts, retries, access logs; and Server, which applies one
// configuration after the other to the running process.
package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Respond turns errors and panics of next into replies. It is the outermost
// service of every chain and never returns an error.
func Respond(next protocol.Service, panics *metrics.Counter, log *slog.Logger) protocol.Service {
	return &respond{next, panics, log}
}

type respond struct {
	next   protocol.Service
	panics *metrics.Counter
	log    *slog.Logger
}

func (r *respond) Serve(ctx context.Context, x *protocol.Exchange) error {
	if err := r.contain(ctx, x); err != nil {
		x.Fail(err)
	}
	return nil
}

// contain keeps a panic to the exchange that it happened in.
func (r *respond) contain(ctx context.Context, x *protocol.Exchange) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.panics.Add(1)
			err = protocol.NewFault(protocol.Internal, fmt.Errorf("panic: %v", p))
			r.log.Error("panic while serving a request: it was answered with 500; this is a defect, please report it",
				"panic", p, "stack", string(debug.Stack()))
		}
	}()
	return r.next.Serve(ctx, x)
}
