package filtertest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// finishFunc is a function that implements protocol.Finisher.
type finishFunc func(x *protocol.Exchange, err error) error

func (f finishFunc) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	return f(x, err)
}

// TestServeInModeAcceptsCorrectFilters verifies that a filter that follows the contract gives the
// same result in each mode, as an asynchronous service and as a blocking function.
func TestServeInModeAcceptsCorrectFilters(t *testing.T) {
	for name, f := range map[string]filter.Filter{
		"asynchronous": func(next protocol.Service) protocol.Service {
			return protocol.ServiceFunc(func(ctx context.Context, x *protocol.Exchange) error {
				x.Request.Header.Add("a", "1")
				x.PushFinisher(finishFunc(func(x *protocol.Exchange, err error) error {
					if err == nil {
						x.Response.Header.Add("b", "2")
					}
					return err
				}))
				return next.Start(ctx, x)
			})
		},
		"blocking": filter.Blocking(func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error {
			x.Request.Header.Add("a", "1")
			err := x.Serve(ctx, next)
			if err == nil {
				x.Response.Header.Add("b", "2")
			}
			return err
		}),
	} {
		for _, mode := range Modes() {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				want := Result{
					Status:   200,
					Request:  "GET shop.test/a a: 1",
					Response: "Content-Type: text/plain, grpc-status: 0, b: 2\nresponse",
				}
				if mode == Canceled {
					want = Result{Reason: protocol.ReasonDownstreamDisconnect}
				}
				synctest.Test(t, func(t *testing.T) {
					if got, err := ServeInMode(t.Context(), mode, f, NewRequest("/a"), nil); err != nil || got != want {
						t.Errorf("ServeInMode = %+v, %v; want %+v", got, err, want)
					}
				})
			})
		}
	}
}

// blockingFinisher replaces the response after it has waited.
type blockingFinisher struct{ next protocol.Service }

func (b *blockingFinisher) Start(ctx context.Context, x *protocol.Exchange) error {
	x.PushFinisher(b)
	return b.next.Start(ctx, x)
}

func (b *blockingFinisher) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		return err
	}
	x.ResetResponse()
	return x.RunBlocking(ctx, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/plain", "replaced")
		return nil
	}))
}

// TestServeInModeAcceptsBlockingFinishers verifies that a filter may make the exchange pending
// again in Finish.
func TestServeInModeAcceptsBlockingFinishers(t *testing.T) {
	for _, mode := range Modes() {
		t.Run(string(mode), func(t *testing.T) {
			want := Result{Status: 200, Request: "GET shop.test/a ", Response: "Content-Type: text/plain\nreplaced"}
			if mode == Canceled {
				want = Result{Reason: protocol.ReasonDownstreamDisconnect}
			}
			f := func(next protocol.Service) protocol.Service { return &blockingFinisher{next} }
			synctest.Test(t, func(t *testing.T) {
				if got, err := ServeInMode(t.Context(), mode, f, NewRequest("/a"), nil); err != nil || got != want {
					t.Errorf("ServeInMode = %+v, %v; want %+v", got, err, want)
				}
			})
		})
	}
}

// waitOneSecond returns a filter that waits for a second before it serves a request. If
// watchesClient and endsOnDisconnect are true, a disconnect ends the wait.
func waitOneSecond(watchesClient, endsOnDisconnect bool) filter.Filter {
	return filter.Blocking(func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error {
		disconnected := make(chan struct{})
		if watchesClient {
			defer x.Downstream.OnDisconnect(func() {
				if endsOnDisconnect {
					close(disconnected)
				}
			})()
		}
		select {
		case <-disconnected:
			return newDisconnectFault()
		case <-time.After(time.Second):
			return x.Serve(ctx, next)
		}
	})
}

// TestServeInModeDisconnectsWaitingFilter verifies that DisconnectedWhileWaiting disconnects the
// client of a filter that waits, and reports a filter that continues to wait.
func TestServeInModeDisconnectsWaitingFilter(t *testing.T) {
	for name, test := range map[string]struct {
		watchesClient, endsOnDisconnect bool
		violation                       string // "": none
	}{
		"ends":                      {true, true, ""},
		"does not watch the client": {false, false, "waits without a callback"},
		"ignores the disconnect":    {true, false, "continues to wait"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := waitOneSecond(test.watchesClient, test.endsOnDisconnect)
				got, err := ServeInMode(t.Context(), DisconnectedWhileWaiting, f, NewRequest("/a"), nil)
				if test.violation != "" {
					if err == nil || !strings.Contains(err.Error(), test.violation) {
						t.Errorf("ServeInMode error = %v, want %q", err, test.violation)
					}
					return
				}
				if want := (Result{Reason: protocol.ReasonDownstreamDisconnect}); err != nil || got != want {
					t.Errorf("ServeInMode = %+v, %v; want %+v", got, err, want)
				}
			})
		})
	}
}

// TestServeInModeReportsViolations verifies that each violation of the contract is reported in one
// mode.
func TestServeInModeReportsViolations(t *testing.T) {
	for name, test := range map[string]struct {
		mode  Mode
		start func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error
		want  string
	}{
		"changes the exchange after ErrPending": {Pending, func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error {
			err := next.Start(ctx, x)
			x.Response.Header.Add("b", "2")
			return err
		}, "changed after ErrPending"},
		"does not return ErrPending": {Pending, func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error {
			_ = next.Start(ctx, x)
			return nil
		}, "did not return ErrPending"},
		"does not stop its callback": {Sync, func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error {
			x.Downstream.OnDisconnect(func() {})
			return next.Start(ctx, x)
		}, "were not stopped"},
		"serves twice": {Sync, func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error {
			_ = next.Start(ctx, x)
			return next.Start(ctx, x)
		}, "called 2 times"},
		"is pending without reason": {Sync, func(context.Context, *protocol.Exchange, protocol.Service) error {
			return protocol.ErrPending
		}, "nothing is pending"},
	} {
		t.Run(name, func(t *testing.T) {
			f := func(next protocol.Service) protocol.Service {
				return protocol.ServiceFunc(func(ctx context.Context, x *protocol.Exchange) error { return test.start(ctx, x, next) })
			}
			if _, err := ServeInMode(t.Context(), test.mode, f, NewRequest("/a"), nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ServeInMode error = %v, want %q", err, test.want)
			}
		})
	}
}
