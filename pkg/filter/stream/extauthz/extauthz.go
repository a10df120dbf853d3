// Package extauthz implements the ext_authz filter, which asks an authorization service whether to
// allow a request.
//
// A request passes through:
//
//	bufferBody  the part of the body that the service receives    body.go
//	authClient  the call of the service, and the decision         http.go; grpc.go with message.go
//	changes     header changes of the request and the response    changes.go
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

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "ext_authz",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		Inherit: inherit,
		New:     build,
		Metrics: []metrics.Metric{requestsMetric()},
	}
}

func requestsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_ext_authz_requests_total", Help: "Requests that the ext_authz filter checked, by result: allowed, denied, error (the service failed, the request was rejected), failure_mode_allowed (the service failed, the request passed).", Kind: metrics.KindCounter, Labels: []string{"result"}}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	r, err := c.compile()
	if err != nil {
		return nil, err
	}
	enabledMetadata, err := c.EnabledMetadata.compile()
	if err != nil {
		return nil, err
	}
	a := authz{
		config: *c, rules: r, enabledMetadata: enabledMetadata,
		allowed: env.Metrics.Counter(requestsMetric(), "allowed"), denied: env.Metrics.Counter(requestsMetric(), "denied"),
		errored: env.Metrics.Counter(requestsMetric(), "error"), failedOpen: env.Metrics.Counter(requestsMetric(), "failure_mode_allowed"),
	}
	switch {
	case c.HTTP != nil:
		a.client = newHTTPClient(c.HTTP, r, env.ClusterClient)
	case c.GRPC != nil:
		a.client = newGRPCClient(c, r, env.ClusterClient)
	case !c.Disabled:
		return nil, errors.New("ext_authz: expected http_service or grpc_service, on the listener or on the route")
	}
	return a.wrap, nil
}

// authClient sends checks to the authorization service.
type authClient interface {
	// check returns the decision of the service about x. sentBody is the body for the service;
	// partial reports that sentBody is only the beginning of the request body. check returns an
	// error if the service is unavailable or its response is invalid; the reason is
	// ReasonDownstreamDisconnect if the client has disconnected.
	check(ctx context.Context, x *protocol.Exchange, sentBody []byte, partial bool) (decision, error)
}

// decision is the decision of the service. It does not borrow from the exchange with the service.
type decision struct {
	allowed bool
	status  int    // response status of a rejection
	body    string // response body of a rejection

	request  changes // changes of the headers of an allowed request
	response changes // changes of the headers of the response to the client
	metadata []metadataValue
}

// authz is immutable; only its counters change.
type authz struct {
	config                               Config
	rules                                *rules
	enabledMetadata                      *metadataCondition // of requests to check; nil: all requests
	client                               authClient         // nil: allow every request
	allowed, denied, errored, failedOpen *metrics.Counter
	next                                 protocol.Service
	blocking                             protocol.BlockingService // a.evaluate
}

// wrap returns a copy of a in front of next.
func (a authz) wrap(next protocol.Service) protocol.Service {
	a.next = next
	a.blocking = protocol.BlockingFunc(a.evaluate)
	return &a
}

// Start implements protocol.Service.
func (a *authz) Start(ctx context.Context, x *protocol.Exchange) error {
	removeClientFailureHeader(x)
	if a.config.Disabled || a.client == nil || !a.enabledMetadata.matches(&x.Metadata) {
		a.removeReservedHeaders(x)
		return a.next.Start(ctx, x)
	}
	return x.RunBlocking(ctx, a.blocking)
}

// errUnidentifiedCall is the reason to reject an RPC request whose called method is uncertain; see
// match.IsUnidentifiedCall.
var errUnidentifiedCall = errors.New("ext_authz: the RPC request does not identify its method, or a provider may read it as another")

// errConnect is the reason to reject CONNECT: the request to an HTTP service would be a CONNECT
// request itself.
var errConnect = errors.New("ext_authz: an HTTP service cannot check a CONNECT request")

// evaluate asks the service about x and serves x if it is allowed. It runs on a goroutine that may
// wait.
func (a *authz) evaluate(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	rejectErr := error(nil)
	switch {
	case match.IsUnidentifiedCall(x):
		rejectErr = errUnidentifiedCall
	case x.Request.Method == "CONNECT" && a.config.HTTP != nil:
		rejectErr = errConnect
	}
	if rejectErr != nil {
		a.denied.Add(1)
		x.Record.Flags |= protocol.ExternallyDenied
		return protocol.NewFault(protocol.ReasonDenied, rejectErr).WithEnvoyReply(authzDenied)
	}
	sentBody, partial, err := bufferBody(x, a.rules.body)
	if err != nil {
		return err
	}
	d, err := a.client.check(ctx, x, sentBody, partial)
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonDownstreamDisconnect:
		return err
	case err != nil:
		return a.handleFailure(ctx, x, err)
	case !d.allowed:
		a.denied.Add(1)
		reject(x, &d)
		return nil
	}
	a.allowed.Add(1)
	a.removeReservedHeaders(x)
	d.request.apply(&x.Request.Header)
	for _, m := range d.metadata {
		x.Metadata.Add(namespace, protocol.MetadataKey(m.path...), m.value)
	}
	if err = x.Serve(ctx, a.next); err == nil {
		d.response.apply(&x.Response.Header)
	}
	return err
}

// namespace is the namespace of the service's metadata, named as in Envoy.
const namespace = "envoy.filters.http.ext_authz"

// failureHeader tells the application that a request passed without a decision of the service.
const failureHeader = "X-Envoy-Auth-Failure-Mode-Allowed"

// keyFailureModeAllowed is the metadata key that marks a request whose failureHeader an ext_authz
// filter set.
const keyFailureModeAllowed = "failure_mode_allowed"

// removeClientFailureHeader removes failureHeader, in every spelling, unless an earlier ext_authz
// filter set it. Neither the service nor the application receives a client's failureHeader.
func removeClientFailureHeader(x *protocol.Exchange) {
	h := &x.Request.Header
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		name := h.At(i).Name
		if !protocol.EqualFoldUnderscore(name, failureHeader) {
			continue
		}
		if _, setByFilter := x.Metadata.Lookup(namespace, keyFailureModeAllowed); setByFilter {
			return
		}
		h.Del(name)
	}
}

// handleFailure rejects x because the service failed with err, or forwards x if the filter fails
// open.
func (a *authz) handleFailure(ctx context.Context, x *protocol.Exchange, err error) error {
	a.removeReservedHeaders(x)
	if !a.config.failsOpen() {
		a.errored.Add(1)
		x.Record.Flags |= protocol.ExternallyDenied
		x.LocalReplyError(protocol.NewFault(protocol.ReasonDenied, fmt.Errorf("ext_authz: the service failed: %w", err)).WithEnvoyReply(authzError))
		x.Response.Status = a.config.errorStatus()
		return nil
	}
	a.failedOpen.Add(1)
	if a.config.FailureModeAllowHeader {
		x.Request.Header.Set(failureHeader, "true")
		x.Metadata.Set(namespace, keyFailureModeAllowed, "true")
	}
	return x.Serve(ctx, a.next)
}

// removeReservedHeaders removes the headers of x that only the service may set.
func (a *authz) removeReservedHeaders(x *protocol.Exchange) {
	h := &x.Request.Header
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if name := h.At(i).Name; a.rules.upstreamHeaders.matchesAnySpelling(name) {
			h.Del(name)
		}
	}
}

//nolint:gochecknoglobals // constants
var (
	authzDenied = protocol.EnvoyReply{Details: "ext_authz_denied", Flag: protocol.NoEnvoyFlag}
	authzError  = protocol.EnvoyReply{Details: "ext_authz_error", Flag: protocol.NoEnvoyFlag}
)

// reject sends the local reply of a rejection by the service.
func reject(x *protocol.Exchange, d *decision) {
	reason := protocol.ReasonDenied
	switch d.status {
	case 401:
		reason = protocol.Unauthenticated
	case 429:
		reason = protocol.RateLimited
	}
	x.Record.Flags |= protocol.ExternallyDenied
	x.LocalReplyError(protocol.Faultf(reason, "ext_authz: the service responded with status %d", d.status).WithEnvoyReply(authzDenied))
	x.LocalReply(d.status, "text/plain; charset=utf-8", d.body)
	d.response.apply(&x.Response.Header)
}

// deadlineFor returns the end of timeout, or x's deadline if that is earlier.
func deadlineFor(x *protocol.Exchange, timeout time.Duration) time.Time {
	end := time.Now().Add(timeout)
	if d := x.EffectiveDeadline(); !d.IsZero() && d.Before(end) {
		return d
	}
	return end
}
