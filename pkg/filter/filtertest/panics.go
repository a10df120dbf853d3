package filtertest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Moment is when an application panics.
type Moment string

// The moments. An application whose body panics has answered before.
const (
	InStart   Moment = "Start"
	InFinish  Moment = "Finish, after it was pending"
	InRead    Moment = "Read of the body"
	InClose   Moment = "Close of the body"
	LaterRead Moment = "Read of the body, after it was pending"
	InWhole   Moment = "Whole of the request's body, after the answer"
	InContent Moment = "Read of the request's body"
)

// Moments returns all of them.
func Moments() []Moment {
	return []Moment{InStart, InFinish, InRead, InClose, LaterRead, InWhole, InContent}
}

// Panicking returns an application that panics at a moment, having read the request's
// content unless it panics in Start. It is a protocol.AsyncService. For InContent, the request
// must have the body that Content returns.
func Panicking(at Moment) protocol.Service { return &panicking{at} }

type panicking struct{ at Moment }

// Content returns a request's content of which Read panics.
func Content() protocol.Body { return &trap{inRead: true} }

// panicked is the value of its panics.
const panicked = "filtertest: the application panics"

// Serve is protocol.Service's.
func (p *panicking) Serve(ctx context.Context, x *protocol.Exchange) error {
	if p.at == InStart {
		panic(panicked)
	}
	return p.Finish(ctx, x, nil)
}

// Start is protocol.AsyncService's.
func (p *panicking) Start(ctx context.Context, x *protocol.Exchange) error {
	if p.at == InFinish || p.at == LaterRead {
		x.PushFinisher(p)
		return protocol.ErrPending
	}
	return p.Serve(ctx, x)
}

// Finish is protocol.Finisher's.
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

// trap is a body that panics in one of its methods.
type trap struct{ inRead, inWhole bool }

// Read is protocol.Body's.
func (b *trap) Read([]byte) (int, error) {
	if b.inRead {
		panic(panicked)
	}
	return 0, io.EOF
}

// Buffered is protocol.Body's.
func (b *trap) Buffered() int { return 0 }

// Close is protocol.Body's.
func (b *trap) Close() error {
	if !b.inRead && !b.inWhole {
		panic(panicked)
	}
	return nil
}

// Complete is protocol.CompleteBody's.
func (b *trap) Complete() (whole, empty bool) {
	if b.inWhole {
		panic(panicked)
	}
	return true, true
}

// Play has a filter before an application serve x as an engine does that contains
// panics: it resumes x if that is pending, reads the answer to its end, closes it, and
// tells the filter that x has ended. It returns the first error of those.
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
		_ = contained(body.Close) // the exchange is over: its error is ignored
	}
	counts.Finish(x)
	return err
}

// contained calls f, whose panic becomes an error.
func contained(f func() error) (err error) {
	defer protocol.RecoverPanic(&err)
	return f()
}
