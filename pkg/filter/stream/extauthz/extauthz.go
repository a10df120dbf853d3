// Package extauthz owns the ext_authz filter, which asks an authorization service whether to allow
// a request.
//
// A request passes through:
//
//	tell        the part of the body that the service receives  content.go
//	ask         the call, and the meaning of the response       http.go; grpc.go with message.go
//	changes     changes of the request and of the response      changes.go
package extauthz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Kind returns the filter factory.
func Kind() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "ext_authz",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		Inherit: inherit,
		New:     build,
		Metrics: []metrics.Metric{requests()},
	}
}

func requests() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_ext_authz_requests_total", Help: "Requests that the ext_authz filter checked, by result: allowed, denied, error (the service failed, the request was rejected), failure_mode_allowed (the service failed, the request passed).", Kind: metrics.KindCounter, Labels: []string{"result"}}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // what Config returned
	r, err := c.compile()
	if err != nil {
		return nil, err
	}
	a := authz{
		config: *c, rules: r,
		allowed: env.Metrics.Counter(requests(), "allowed"), denied: env.Metrics.Counter(requests(), "denied"),
		failed: env.Metrics.Counter(requests(), "error"), passed: env.Metrics.Counter(requests(), "failure_mode_allowed"),
	}
	switch {
	case c.HTTP != nil:
		a.service = newHTTPService(c.HTTP, r, env.ClusterClient)
	case c.GRPC != nil:
		a.service = newGRPCService(c, r, env.ClusterClient)
	case !c.Disabled:
		return nil, errors.New("ext_authz: expected http_service or grpc_service, on the listener or on the route")
	}
	return a.before, nil
}

// service asks the authorization service.
type service interface {
	// ask returns the verdict of the service about x. It returns an error if the service is
	// unavailable or its response is invalid; the reason is ReasonDownstreamDisconnect if the
	// client has disconnected.
	ask(ctx context.Context, x *protocol.Exchange, told []byte, partial bool) (verdict, error)
}

// verdict is the decision of the service. It keeps no reference to the exchange with the service.
type verdict struct {
	allowed bool
	status  int    // of a rejection
	body    string // of a rejection

	request  changes // of the headers of an allowed request
	response changes // of the headers of the response to the client
	data     []datum
}

// authz is immutable except for its counters.
type authz struct {
	config                          Config
	rules                           *rules
	service                         service // nil: allow every request
	allowed, denied, failed, passed *metrics.Counter
	next                            protocol.AsyncService
	whole                           protocol.Service // a.judge
}

// before returns a copy of a in front of next.
func (a authz) before(next protocol.Service) protocol.Service {
	a.next = protocol.Async(next)
	a.whole = protocol.ServiceFunc(a.judge)
	return &a
}

// Serve implements protocol.Service.
func (a *authz) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, a, x)
}

// Start implements protocol.AsyncService.
func (a *authz) Start(ctx context.Context, x *protocol.Exchange) error {
	dropFailureClaim(x)
	if a.config.Disabled || a.service == nil {
		a.removeReservedHeaders(x)
		return a.next.Start(ctx, x)
	}
	return x.RunBlocking(ctx, a.whole)
}

// errHidden is the reason to reject an RPC request whose called method is uncertain; see
// match.HidesCall.
var errHidden = errors.New("ext_authz: the RPC request does not identify its method, or a provider may read it as another")

// errConnect is the reason to reject CONNECT with an HTTP service, which would receive a CONNECT
// itself.
var errConnect = errors.New("ext_authz: an HTTP service cannot check a CONNECT request")

// judge serves x on a goroutine that may block.
func (a *authz) judge(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	why := error(nil)
	switch {
	case match.HidesCall(x):
		why = errHidden
	case x.Request.Method == "CONNECT" && a.config.HTTP != nil:
		why = errConnect
	}
	if why != nil {
		a.denied.Add(1)
		x.Record.Flags |= protocol.ExternallyDenied
		return protocol.NewFault(protocol.ReasonDenied, why)
	}
	told, partial, err := tell(x, a.rules.body)
	if err != nil {
		return err
	}
	v, err := a.service.ask(ctx, x, told, partial)
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonDownstreamDisconnect:
		return err
	case err != nil:
		return a.fail(ctx, x, err)
	case !v.allowed:
		a.denied.Add(1)
		refuse(x, &v)
		return nil
	}
	a.allowed.Add(1)
	a.removeReservedHeaders(x)
	v.request.apply(&x.Request.Header)
	for _, d := range v.data {
		x.Metadata.Add(namespace, protocol.MetadataKey(d.path...), d.value)
	}
	if err = a.next.Serve(ctx, x); err == nil {
		v.response.apply(&x.Response.Header)
	}
	return err
}

// namespace is the namespace of the service's metadata, named as in Envoy.
const namespace = "envoy.filters.http.ext_authz"

// failureHeader tells the application that a request passed without a decision of the service.
const failureHeader = "X-Envoy-Auth-Failure-Mode-Allowed"

// keyNotJudged is the metadata key that marks a request whose failureHeader an ext_authz filter
// set.
const keyNotJudged = "failure_mode_allowed"

// dropFailureClaim removes failureHeader, in every spelling, unless an earlier ext_authz filter set
// it. Neither the service nor the application receives a client's failureHeader.
func dropFailureClaim(x *protocol.Exchange) {
	h := &x.Request.Header
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		name := h.At(i).Name
		if !protocol.EqualFoldUnderscore(name, failureHeader) {
			continue
		}
		if _, ours := x.Metadata.Lookup(namespace, keyNotJudged); ours {
			return
		}
		h.Del(name)
	}
}

// fail handles the failure err of the service: it rejects x, or forwards it if the filter fails
// open.
func (a *authz) fail(ctx context.Context, x *protocol.Exchange, err error) error {
	a.removeReservedHeaders(x)
	if !a.config.open() {
		a.failed.Add(1)
		x.Record.Flags |= protocol.ExternallyDenied
		x.LocalReplyError(protocol.NewFault(protocol.ReasonDenied, fmt.Errorf("ext_authz: the service failed: %w", err)))
		x.Response.Status = a.config.onError()
		return nil
	}
	a.passed.Add(1)
	if a.config.AllowHeader {
		x.Request.Header.Set(failureHeader, "true")
		x.Metadata.Set(namespace, keyNotJudged, "true")
	}
	return a.next.Serve(ctx, x)
}

// removeReservedHeaders removes the headers of x that only the service may set.
func (a *authz) removeReservedHeaders(x *protocol.Exchange) {
	h := &x.Request.Header
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if name := h.At(i).Name; a.rules.replace.hold(name) {
			h.Del(name)
		}
	}
}

// refuse sends the local reply of a rejection by the service.
func refuse(x *protocol.Exchange, v *verdict) {
	reason := protocol.ReasonDenied
	switch v.status {
	case 401:
		reason = protocol.Unauthenticated
	case 429:
		reason = protocol.RateLimited
	}
	x.Record.Flags |= protocol.ExternallyDenied
	x.LocalReplyError(protocol.Faultf(reason, "ext_authz: the service responded with status %d", v.status))
	x.LocalReply(v.status, "text/plain; charset=utf-8", v.body)
	v.response.apply(&x.Response.Header)
}

// until returns the end of timeout, or x's deadline if that is earlier.
func until(x *protocol.Exchange, timeout time.Duration) time.Time {
	end := time.Now().Add(timeout)
	if d := x.EffectiveDeadline(); !d.IsZero() && d.Before(end) {
		return d
	}
	return end
}
