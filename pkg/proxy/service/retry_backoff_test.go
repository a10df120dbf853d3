package service

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// retryWithBackoff returns a Retry service with a backoff whose jitter is always the maximum.
func retryWithBackoff(t *testing.T, timeout time.Duration, n int, next protocol.Service, budget RetryBudget) protocol.Service {
	t.Helper()
	route := routeOf(t, config.Forward{Timeout: timeout, Retry: &config.RetryPolicy{
		On: config.RetryOnDefault, NumRetries: n, Backoff: config.Backoff{Base: 25 * time.Millisecond, Max: 250 * time.Millisecond},
	}})
	r := Retry(next, route, func(*protocol.Exchange) RetryBudget { return budget }).(*retry)
	r.jitter = func(bound time.Duration) time.Duration { return bound }
	return Timeout(r, route)
}

func TestRetryBackoffGrows(t *testing.T) {
	for name, test := range map[string]struct {
		timeout time.Duration
		retries int
		results []any
		want    []int // start times of the attempts, in ms
		status  int
	}{
		"no retry":                                {0, 5, []any{200}, []int{0}, 200},
		"up to the maximum backoff":               {0, 5, []any{503}, []int{0, 25, 100, 275, 525, 775}, 503},
		"after a failure":                         {0, 5, []any{protocol.NewFault(protocol.UpstreamReset, nil), 200}, []int{0, 25}, 200},
		"backoff reaches the deadline":            {275 * time.Millisecond, 5, []any{503}, []int{0, 25, 100}, 503},
		"backoff shorter than the remaining time": {276 * time.Millisecond, 5, []any{503}, []int{0, 25, 100, 275}, 503},
		"limited by num_retries":                  {0, 1, []any{503}, []int{0, 25}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var times []int
				next := &scriptedService{results: test.results, onAttempt: func(int, *protocol.Exchange) {
					times = append(times, int(time.Since(start)/time.Millisecond))
				}}
				x := newTestExchange()
				x.Meta.Start = start
				err := x.Serve(t.Context(), retryWithBackoff(t, test.timeout, test.retries, next, nil))
				if err != nil || x.Response.Status != test.status || !slices.Equal(times, test.want) {
					t.Errorf("attempts at %v, status %d, %v; want attempts at %v, status %d", times, x.Response.Status, err, test.want, test.status)
				}
			})
		})
	}
}

func TestRetryJitterIsBelowBound(t *testing.T) {
	r := Retry(&scriptedService{}, routeOf(t, config.Forward{}), unlimitedBudget).(*retry)
	const bound = time.Millisecond
	low, high := bound, time.Duration(0)
	for range 1000 {
		d := r.jitter(bound)
		low, high = min(low, d), max(high, d)
	}
	// All 1000 samples miss a given twentieth of the range with a probability of about 1 in 10^22.
	if low < 0 || low > bound/20 || high >= bound || high < bound-bound/20 {
		t.Errorf("1000 backoffs are from %v to %v, want values across the range below %v", low, high, bound)
	}
}

// disconnectingClient is a client that disconnects when the test closes disconnect.
type disconnectingClient struct {
	disconnect chan struct{}
	watched    int
	detached   int
}

func (c *disconnectingClient) SendInterim(int, *protocol.Header) error { return nil }

func (c *disconnectingClient) OnDisconnect(notify func()) (stop func()) {
	c.watched++
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.disconnect:
			notify()
		case <-stopped:
		}
	}()
	return func() { close(stopped); <-done }
}

func (c *disconnectingClient) Detach() { c.detached++ }

func TestDisconnectEndsBackoff(t *testing.T) {
	for name, test := range map[string]struct {
		body    protocol.Body
		length  int64
		act     func(c *disconnectingClient, cancel context.CancelFunc)
		want    protocol.Reason
		elapsed time.Duration
	}{
		"disconnected client":                {nil, -1, func(c *disconnectingClient, _ context.CancelFunc) { close(c.disconnect) }, protocol.ReasonDownstreamDisconnect, 10 * time.Millisecond},
		"disconnected client, body complete": {protocol.NewStringBody("x"), 1, func(c *disconnectingClient, _ context.CancelFunc) { close(c.disconnect) }, protocol.ReasonDownstreamDisconnect, 10 * time.Millisecond},
		"context canceled":                   {nil, -1, func(_ *disconnectingClient, cancel context.CancelFunc) { cancel() }, protocol.ReasonDownstreamDisconnect, 10 * time.Millisecond},
		"connected client":                   {nil, -1, func(*disconnectingClient, context.CancelFunc) {}, protocol.ReasonNone, 25 * time.Millisecond},
		"body incomplete":                    {protocol.NewStringBody("x"), 2, func(c *disconnectingClient, _ context.CancelFunc) { close(c.disconnect) }, protocol.ReasonNone, 25 * time.Millisecond},
		"body of unknown length":             {protocol.NewStringBody("x"), -1, func(c *disconnectingClient, _ context.CancelFunc) { close(c.disconnect) }, protocol.ReasonNone, 25 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				client := &disconnectingClient{disconnect: make(chan struct{})}
				time.AfterFunc(10*time.Millisecond, func() { test.act(client, cancel) })
				x := newTestExchange()
				x.Downstream, x.Request.Body, x.Request.ContentLength = client, test.body, test.length
				next := &scriptedService{results: []any{503, 200}}
				budget := &testBudget{remaining: 9}
				err := x.Serve(ctx, retryWithBackoff(t, 0, 1, next, budget))
				if got := protocol.ReasonOf(err); got != test.want || time.Since(start) != test.elapsed {
					t.Errorf("%v after %v, want %v after %v", got, time.Since(start), test.want, test.elapsed)
				}
				if (next.attempts == 2) != (test.want == protocol.ReasonNone) || budget.maxInFlight != 1 || budget.inFlight != 0 || client.detached != 1 {
					t.Errorf("%d attempts, at most %d permits acquired, %d not released, detached %d times; want a second attempt exactly after a full wait, 1, 0, 1", next.attempts, budget.maxInFlight, budget.inFlight, client.detached)
				}
			})
		})
	}
}

func TestFirstAttemptDoesNotWait(t *testing.T) {
	client := &disconnectingClient{}
	x := newTestExchange()
	x.Downstream = client
	s := retryWithBackoff(t, 0, 3, &scriptedService{results: []any{200}}, &testBudget{})
	if err := x.Serve(t.Context(), s); err != nil || client.watched != 0 || client.detached != 0 {
		t.Errorf("%v, watched %d times, detached %d times; want 0 of both", err, client.watched, client.detached)
	}
}

func TestFirstAttemptDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector adds allocations")
	}
	next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Response.Status, x.Response.Code = 200, 20
		return nil
	})
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{
		On: ^config.RetryOn(0), NumRetries: 3, StatusCodes: []int{429}, RPCCodes: []int{100}, Extras: &config.RetryExtras{Headers: []config.RetryHeader{{Name: "x-again"}}},
		Backoff: config.Backoff{Base: time.Second, Max: time.Minute},
	}})
	s := Retry(next, route, unlimitedBudget)
	x := newTestExchange()
	x.Request.Method = "" // of RPC
	var err error
	n := testing.AllocsPerRun(100, func() {
		x.ResetResponse()
		err = x.Start(t.Context(), s)
	})
	if err != nil || n != 0 {
		t.Errorf("%v allocations, %v; want 0", n, err)
	}
}
