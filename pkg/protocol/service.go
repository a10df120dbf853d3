package protocol

import "context"

// Service answers an exchange. Router, filters, retry, timeout, cluster and
// upstream stream are all Services, nested.
//
// On nil, x.Response is set. On an error nothing is, and the error is turned
// into a reply in one place (proxy.Respond); wrap it in a Fault to say why.
// ctx lives as long as the connection: a request's deadline is x.Deadline.
type Service interface {
	Serve(ctx context.Context, x *Exchange) error
}

// ServiceFunc makes a function a Service.
type ServiceFunc func(ctx context.Context, x *Exchange) error

// Serve calls f.
func (f ServiceFunc) Serve(ctx context.Context, x *Exchange) error { return f(ctx, x) }
