package filtertest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// PanicPoint says when an application panics.
type PanicPoint string

// The panic points. A response body panics after the service has returned the response.
const (
	PanicInStart               PanicPoint = "Start"
	PanicInFinish              PanicPoint = "Finish of a pending request"
	PanicInResponseRead        PanicPoint = "Read of the response body"
	PanicInResponseClose       PanicPoint = "Close of the response body"
	PanicInPendingResponseRead PanicPoint = "Read of the response body of a pending request"
	PanicInRequestComplete     PanicPoint = "Complete of the request body, after the response"
	PanicInRequestRead         PanicPoint = "Read of the request body"
)

// PanicPoints returns all panic points.
func PanicPoints() []PanicPoint {
	return []PanicPoint{PanicInStart, PanicInFinish, PanicInResponseRead, PanicInResponseClose, PanicInPendingResponseRead, PanicInRequestComplete, PanicInRequestRead}
}

// PanickingApplication returns an application that panics at point. Unless it panics in Start or
// Finish, it reads the request body first. For PanicInRequestRead, the request must have a
// PanickingBody.
func PanickingApplication(point PanicPoint) protocol.Service { return &panickingApplication{point} }

type panickingApplication struct{ point PanicPoint }

// PanickingBody returns a request body whose Read panics.
func PanickingBody() protocol.Body { return &panickingBody{panicsInRead: true} }

// panicMessage is the value that the application panics with.
const panicMessage = "filtertest: the application panics"

// Start implements protocol.Service.
func (p *panickingApplication) Start(ctx context.Context, x *protocol.Exchange) error {
	switch p.point {
	case PanicInStart:
		panic(panicMessage)
	case PanicInFinish, PanicInPendingResponseRead:
		x.PushFinisher(p)
		return protocol.ErrPending
	default:
		return p.Finish(ctx, x, nil)
	}
}

// Finish implements protocol.Finisher.
func (p *panickingApplication) Finish(_ context.Context, x *protocol.Exchange, _ error) error {
	if p.point == PanicInFinish {
		panic(panicMessage)
	}
	if body := x.Request.Body; body != nil {
		if _, err := io.Copy(io.Discard, body); err != nil {
			return err
		}
	}
	x.LocalReply(200, "text/plain", "from the application")
	x.Response.Header.Add("grpc-status", "0")
	switch p.point {
	case PanicInResponseRead, PanicInPendingResponseRead:
		x.Response.Body, x.Response.ContentLength = &panickingBody{panicsInRead: true}, -1
	case PanicInResponseClose:
		x.Response.Body, x.Response.ContentLength = &panickingBody{}, -1
	case PanicInRequestComplete:
		x.Request.Body = &panickingBody{panicsInComplete: true}
	default:
	}
	return nil
}

// panickingBody is a body with one method that panics: Close, unless a field selects another one.
type panickingBody struct{ panicsInRead, panicsInComplete bool }

// Read implements protocol.Body.
func (b *panickingBody) Read([]byte) (int, error) {
	if b.panicsInRead {
		panic(panicMessage)
	}
	return 0, io.EOF
}

// Buffered implements protocol.Body.
func (b *panickingBody) Buffered() int { return 0 }

// Close implements protocol.Body.
func (b *panickingBody) Close() error {
	if !b.panicsInRead && !b.panicsInComplete {
		panic(panicMessage)
	}
	return nil
}

// Complete implements protocol.CompleteBody.
func (b *panickingBody) Complete() (complete, empty bool) {
	if b.panicsInComplete {
		panic(panicMessage)
	}
	return true, true
}

// ServeLikeEngine serves x with f in front of app, like an engine that recovers panics. It resumes
// x if it is pending, reads the response to its end, closes it, and calls the observers of the
// filter. It returns the first error.
func ServeLikeEngine(t testing.TB, f filter.Filter, app protocol.Service, x *protocol.Exchange, probe *Probe) error {
	t.Helper()
	ctx := t.Context()
	err := x.Start(ctx, f(app))
	if errors.Is(err, protocol.ErrPending) {
		err = x.Resume(ctx, nil)
	}
	if body := x.Response.Body; err == nil && body != nil {
		err = recoverPanic(func() error { _, err := io.Copy(io.Discard, body); return err })
	}
	if body := x.Response.Body; body != nil {
		if closeErr := recoverPanic(body.Close); err == nil {
			err = closeErr
		}
	}
	if body := x.Request.Body; body != nil {
		_ = recoverPanic(body.Close) // the exchange has ended: ignore the error
	}
	probe.CallObservers(x)
	return err
}

// recoverPanic calls f and returns its error. A panic becomes an error.
func recoverPanic(f func() error) (err error) {
	defer protocol.RecoverPanic(&err)
	return f()
}
