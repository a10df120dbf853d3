package protocol

import "context"

// Service produces the response of an exchange. Router, filters, retry, timeout, cluster and
// upstream stream are all Services, nested.
//
// If Serve returns nil, x.Response is set. If it returns an error, x.Response is not set, and
// proxy.Respond turns the error into a local reply; wrap the error in a Fault to set the reason.
// ctx lives as long as the connection: the deadline of a request is x.Deadline.
type Service interface {
	Serve(ctx context.Context, x *Exchange) error
}

// ServiceFunc makes a function a Service.
type ServiceFunc func(ctx context.Context, x *Exchange) error

// Serve calls f.
func (f ServiceFunc) Serve(ctx context.Context, x *Exchange) error { return f(ctx, x) }
