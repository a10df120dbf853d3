package service

import (
	"context"
	"strconv"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// forceTrace is a request header that forces a trace; the response to it has the request ID.
const forceTrace = "x-envoy-force-trace"

// overloadedHeader is a response header that LocalReplyError sets.
const overloadedHeader = "x-envoy-overloaded"

// ResponseHeaders sets the headers of responses for which Envoy's HTTP connection manager is
// responsible: Server and x-request-id. It changes local replies too, so next must contain Respond.
// Without rules of Envoy in p it returns next.
func ResponseHeaders(next protocol.Service, p *config.Proxy) protocol.Service {
	e := p.ClientHeaders.Envoy
	if e == nil {
		return next
	}
	return &responseHeaders{
		next: next, serverMode: e.Server, server: p.HTTP1.ServerName, setsRequestID: e.RequestID.InResponse,
		suppresses: p.RouterHeaders != nil && p.RouterHeaders.Suppress,
	}
}

// responseHeaders is immutable.
type responseHeaders struct {
	next          protocol.Service
	serverMode    config.ServerHeaderMode
	server        string
	setsRequestID bool
	suppresses    bool // local replies have no headers of the router
}

// Start implements protocol.Service.
func (r *responseHeaders) Start(ctx context.Context, x *protocol.Exchange) error {
	x.PushFinisher(r)
	return r.next.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (r *responseHeaders) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err != nil || x.Request.Method == "" { // RPC
		return err
	}
	h := &x.Response.Header
	switch r.serverMode {
	case config.ServerKeep:
	case config.ServerOverwrite:
		h.Set("server", r.server)
	case config.ServerAdd:
		if _, ok := h.Lookup("server"); !ok {
			h.Add("server", r.server)
		}
	}
	if r.returnsRequestID(&x.Request.Header) {
		if id, ok := x.Request.Header.Lookup(requestID); ok {
			h.Set(requestID, id)
		}
	}
	if r.suppresses && x.Response.Source == protocol.LocalReply {
		h.Del(overloadedHeader)
	}
	setAttemptCount(x)
	return nil
}

func (r *responseHeaders) returnsRequestID(h *protocol.Header) bool {
	if r.setsRequestID {
		return true
	}
	_, forced := h.Lookup(forceTrace)
	return forced
}

// setAttemptCount tells the client the number of attempts, if there was one and its route requires
// it. In Envoy, the mutations of the route cannot remove it.
func setAttemptCount(x *protocol.Exchange) {
	scope, ok := x.Record.Route.(*routeScope)
	if !ok || len(x.Record.Attempts) == 0 {
		return
	}
	if f := scope.route.Config.Forward; f != nil && f.Attempts.CountInResponse {
		x.Response.Header.Set(attemptCountHeader, strconv.Itoa(int(x.Record.Retries)+1))
	}
}
