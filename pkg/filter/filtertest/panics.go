package filtertest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Moment says when an application panics.
type Moment string

// An application whose response body panics has already sent its head.
const (
	InStart   Moment = "Start"
	InFinish  Moment = "Finish of a pending request"
	InRead    Moment = "Read of the response body"
	InClose   Moment = "Close of the response body"
	LaterRead Moment = "Read of the response body of a pending request"
	InWhole   Moment = "Whole of the request body, after the response"
	InContent Moment = "Read of the request body"
)

// Moments returns all moments.
func Moments() []Moment {
	return []Moment{InStart, InFinish, InRead, InClose, LaterRead, InWhole, InContent}
}

// Panicking returns an application that panics at a moment. Unless it panics in Start, it has
// read the request body first. It is a protocol.AsyncService. For InContent, the request must
// have the body that Content returns.
func Panicking(at Moment) protocol.Service { return &panicking{at} }

type panicking struct{ at Moment }

// Content returns a request body whose Read panics.
func Content() protocol.Body { return &trap{inRead: true} }

// panicked is the value that the application panics with.
const panicked = "filtertest: the application panics"

// Serve implements protocol.Service.
func (p *panicking) Serve(ctx context.Context, x *protocol.Exchange) error {
	if p.at == InStart {
		panic(panicked)
	}
	return p.Finish(ctx, x, nil)
}

// Start implements protocol.AsyncService.
func (p *panicking) Start(ctx context.Context, x *protocol.Exchange) error {
	if p.at == InFinish || p.at == LaterRead {
		x.PushFinisher(p)
		return protocol.ErrPending
	}
	return p.Serve(ctx, x)
}

// Finish implements protocol.Finisher.
func (p *panicking) Finish(_ context.Context, x *protocol.Exchange, _ error) error {
	if p.at == InFinish {
		panic(panicked)
	}
	if body := x.Request.Body; body != nil {
		if _, err := io.Copy(io.Discard, body); err != nil {
			return err
		}
	}
	x.LocalReply(200, "text/plain", "from the application")
	x.Response.Header.Add("grpc-status", "0")
	switch p.at {
	case InRead, LaterRead:
		x.Response.Body, x.Response.ContentLength = &trap{inRead: true}, -1
	case InClose:
		x.Response.Body, x.Response.ContentLength = &trap{}, -1
	case InWhole:
		x.Request.Body = &trap{inWhole: true}
	default:
	}
	return nil
}

// trap is a body, one of whose methods panics.
type trap struct{ inRead, inWhole bool }

// Read implements protocol.Body.
func (b *trap) Read([]byte) (int, error) {
	if b.inRead {
		panic(panicked)
	}
	return 0, io.EOF
}

// Buffered implements protocol.Body.
func (b *trap) Buffered() int { return 0 }

// Close implements protocol.Body.
func (b *trap) Close() error {
	if !b.inRead && !b.inWhole {
		panic(panicked)
	}
	return nil
}

// Complete implements protocol.CompleteBody.
func (b *trap) Complete() (whole, empty bool) {
	if b.inWhole {
		panic(panicked)
	}
	return true, true
}

// Play serves x with f in front of app, like an engine that recovers panics. It resumes x if that
// is pending, reads the response to its end, closes it, and calls the observers of the filter. It
// returns the first of these errors.
func Play(t testing.TB, f filter.Filter, app protocol.Service, x *protocol.Exchange, counts *Counts) error {
	t.Helper()
	ctx := t.Context()
	err := x.StartAsync(ctx, protocol.Async(f(app)))
	if errors.Is(err, protocol.ErrPending) {
		err = x.Resume(ctx, nil)
	}
	if body := x.Response.Body; err == nil && body != nil {
		err = contained(func() error { _, err := io.Copy(io.Discard, body); return err })
	}
	if body := x.Response.Body; body != nil {
		if closed := contained(body.Close); err == nil {
			err = closed
		}
	}
	if body := x.Request.Body; body != nil {
		_ = contained(body.Close) // the exchange has ended: its error is ignored
	}
	counts.Finish(x)
	return err
}

// contained calls f and returns its error. A panic becomes an error.
func contained(f func() error) (err error) {
	defer protocol.RecoverPanic(&err)
	return f()
}
