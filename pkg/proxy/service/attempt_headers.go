package service

import (
	"context"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Headers that describe an attempt to the host.
const (
	expectedTimeoutHeader = "x-envoy-expected-rq-timeout-ms"
	attemptCountHeader    = "x-envoy-attempt-count"
	timeoutRetryHeader    = "x-envoy-is-timeout-retry"
)

// AttemptHeaders sets the headers that tell a host the timeout of an attempt and its number, as
// Envoy's router does. It runs for each attempt of Retry and Hedge. c is the configuration of the
// proxy.
func AttemptHeaders(next protocol.Service, route *router.Route, c *config.RouterHeaders) protocol.Service {
	f := route.Config.Forward
	a := &attemptHeaders{next: next, route: route, config: f.Attempts, hidesTimeout: f.HideTimeout}
	// The mutations of the route have run before. In Envoy they run after the router has set the
	// headers, so they may remove them.
	a.setsTimeout = !c.Suppress && !route.ChangesRequestHeader(expectedTimeoutHeader)
	a.config.CountInRequest = a.config.CountInRequest && !route.ChangesRequestHeader(attemptCountHeader)
	a.sharesTimeout = f.Hedge != nil && f.Hedge.OnPerTryTimeout
	a.timeout, a.grpc = f.Timeout, f.GRPCTimeout != (config.GRPCTimeout{})
	a.timeoutText = milliseconds(f.Timeout)
	return a
}

// attemptHeaders is immutable.
type attemptHeaders struct {
	next          protocol.Service
	route         *router.Route
	config        config.AttemptHeaders
	setsTimeout   bool
	hidesTimeout  bool // the timeout of the route is not sent
	sharesTimeout bool // an attempt continues after the per-try timeout
	grpc          bool // the timeout of gRPC calls depends on the request
	timeout       time.Duration
	timeoutText   string // timeout in milliseconds
}

// Start implements protocol.Service.
func (a *attemptHeaders) Start(ctx context.Context, x *protocol.Exchange) error {
	h := &x.Request.Header
	if a.setsTimeout {
		if text := a.expectedTimeout(x); text != "" {
			h.Set(expectedTimeoutHeader, text)
		}
	}
	retries := int(x.Record.Retries)
	if a.config.CountInRequest {
		h.Set(attemptCountHeader, strconv.Itoa(retries+1))
	}
	if a.config.TimeoutRetry && retries > 0 {
		h.Set(timeoutRetryHeader, strconv.FormatBool(lastAttemptTimedOut(&x.Record)))
	}
	return a.next.Start(ctx, x)
}

// expectedTimeout returns the time that the host has, in milliseconds; "": there is no limit.
func (a *attemptHeaders) expectedTimeout(x *protocol.Exchange) string {
	global, perTry := a.route.Timeouts(x)
	if a.hidesTimeout {
		global = 0
	} else if !x.Deadline.IsZero() {
		if a.grpc && IsGRPC(x) {
			global = x.Deadline.Sub(x.Meta.Start)
		}
		if x.Record.Retries > 0 && global > 0 {
			global = max(min(global, time.Until(x.Deadline)), time.Millisecond) // 0 means no limit
		}
	}
	switch {
	case perTry > 0 && !a.sharesTimeout && (global == 0 || perTry < global):
		return milliseconds(perTry)
	case global == 0:
		return ""
	case global == a.timeout:
		return a.timeoutText
	}
	return milliseconds(global)
}

// lastAttemptTimedOut reports whether the last attempt failed because of its timeout.
func lastAttemptTimedOut(r *protocol.Record) bool {
	n := len(r.Attempts)
	return n > 0 && (r.Attempts[n-1].Reason == protocol.UpstreamTimeout || r.Attempts[n-1].Reason == protocol.ReasonPerTryTimeout)
}

// milliseconds returns d in milliseconds.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
