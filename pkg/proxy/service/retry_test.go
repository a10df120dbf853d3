package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// routeOf compiles a route with the forwarding action f.
func routeOf(t testing.TB, f config.Forward) *router.Route {
	t.Helper()
	if f.Cluster == "" {
		f.Cluster = "app"
	}
	table, err := router.Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*config.Route{{Name: "r", Forward: &f}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return table.Routes()[0]
}

// scriptedService gives each attempt its entry of results, which is an error or a status. Attempts
// beyond the last entry get that entry.
type scriptedService struct {
	results  []any
	attempts int
	// onAttempt, if not nil, is called before the result of an attempt.
	onAttempt func(n int, x *protocol.Exchange)
}

func (s *scriptedService) Start(_ context.Context, x *protocol.Exchange) error {
	n := s.attempts
	s.attempts++
	if s.onAttempt != nil {
		s.onAttempt(n, x)
	}
	switch r := s.results[min(n, len(s.results)-1)].(type) {
	case error:
		return r
	case int:
		x.LocalReply(r, "text/plain", fmt.Sprintf("try %d", n+1))
	}
	return nil
}

func unlimitedBudget(*protocol.Exchange) RetryBudget { return nil }

// unrewindableBody is a body whose Rewind fails.
type unrewindableBody struct{ *protocol.StringBody }

func (unrewindableBody) Rewind() bool { return false }

// plainBody is a body without a Rewind method.
type plainBody struct{ io.Reader }

func (plainBody) Buffered() int { return 0 }
func (plainBody) Close() error  { return nil }

// TestRetryableFailures verifies the retry decision for every combination of reason, method and
// body.
func TestRetryableFailures(t *testing.T) {
	const (
		never  = iota // not a failure of the upstream, or a retry would fail too
		ifSafe        // the request may have reached an application
		always        // the request cannot have reached an application
	)
	want := map[protocol.Reason]int{
		protocol.MalformedRequest: never, protocol.TargetTooLong: never, protocol.HeaderTooLarge: never,
		protocol.BodyTooLarge: never, protocol.RequestTimeout: never, protocol.RequestIdle: never, protocol.VersionNotSupported: never,
		protocol.NotImplemented: never, protocol.ExpectationFailed: never,
		protocol.ReasonNoRoute: never, protocol.NoCluster: never,
		protocol.NoDestination: never, protocol.MalformedDestination: never, protocol.ReasonLoop: never,
		protocol.ReasonDenied: never, protocol.Unauthenticated: never, protocol.RateLimited: never, protocol.Overloaded: never, protocol.FaultInjected: never,
		protocol.NoHealthyHost: never, protocol.ReasonOnDemandTimeout: never, protocol.Overflow: never,
		protocol.ConnectFailure: always, protocol.ConnectTimeout: always,
		protocol.UpstreamReset: ifSafe, protocol.UpstreamClosed: ifSafe, protocol.UpstreamMalformed: ifSafe, protocol.ReasonPerTryTimeout: ifSafe,
		protocol.UpstreamTimeout: never, protocol.StreamIdle: never, // the exchange has no time left
		protocol.ReasonDownstreamDisconnect: never, protocol.Draining: never, protocol.Dropped: never, protocol.Internal: never,
	}
	methods := map[string]bool{ // whether the request may be sent twice (RFC 9110 9.2.2)
		"":    true, // RPC: the policy permits retries
		"GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true,
		"POST": false, "PATCH": false, "CONNECT": false, "get": false, "PURGE": false,
	}
	bodies := map[string]struct {
		body     func() protocol.Body
		possible bool
	}{
		"no body":             {func() protocol.Body { return nil }, true},
		"rewindable body":     {func() protocol.Body { return protocol.NewStringBody("x") }, true},
		"unrewindable body":   {func() protocol.Body { return unrewindableBody{protocol.NewStringBody("x")} }, false},
		"body without Rewind": {func() protocol.Body { return plainBody{nil} }, false},
	}
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}})
	for reason := range protocol.Reasons() {
		class, ok := want[reason]
		if !ok {
			t.Errorf("no expectation for reason %v", reason)
		}
		for method, safe := range methods {
			for name, b := range bodies {
				next := &scriptedService{results: []any{protocol.NewFault(reason, nil), 200}}
				x := newTestExchange()
				x.Request.Method, x.Request.Body = method, b.body()
				err := x.Serve(t.Context(), Retry(next, route, unlimitedBudget))
				wantRetry := b.possible && (class == always || class == ifSafe && safe)
				if (next.attempts == 2) != wantRetry || (err == nil) != wantRetry {
					t.Errorf("%v, %s, %s: %d attempts, %v; want a retry: %t", reason, method, name, next.attempts, err, wantRetry)
				}
			}
		}
	}
}

// TestGRPCRetries verifies the number of attempts for gRPC responses and failures.
func TestGRPCRetries(t *testing.T) {
	unavailable := func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "14") }
	for name, test := range map[string]struct {
		noPolicy    bool
		contentType string // "": application/grpc
		body        protocol.Body
		respond     func(x *protocol.Exchange)
		err         error
		want        int // attempts
	}{
		"unavailable":                    {respond: unavailable, want: 2},
		"unavailable, rewindable body":   {respond: unavailable, body: protocol.NewStringBody("x"), want: 2},
		"unavailable, unrewindable body": {respond: unavailable, body: unrewindableBody{protocol.NewStringBody("x")}, want: 1},
		"unavailable, no policy":         {respond: unavailable, noPolicy: true, want: 1},
		"unavailable, not gRPC":          {respond: unavailable, contentType: "application/json", want: 1},
		"OK":                             {respond: func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "0") }, want: 1},
		"another failure":                {respond: func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "13") }, want: 1},
		"status in the trailers":         {respond: func(*protocol.Exchange) {}, want: 1},
		"HTTP status":                    {respond: func(x *protocol.Exchange) { x.Response.Status = 503 }, want: 2},
		"reset":                          {err: protocol.Faultf(protocol.UpstreamReset, "reset"), want: 2},
		"client disconnect":              {err: protocol.Faultf(protocol.ReasonDownstreamDisconnect, "disconnected"), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				if attempts++; test.err != nil && attempts == 1 {
					return test.err
				}
				x.LocalReply(200, "", "")
				if attempts == 1 {
					test.respond(x)
				}
				return nil
			})
			x := newTestExchange()
			x.Meta.Protocol = string(config.HTTP2)
			x.Request.Method, x.Request.Body = "POST", test.body
			x.Request.Header.Add("content-type", cmp.Or(test.contentType, "application/grpc"))
			policy := config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}
			if test.noPolicy {
				policy.On = 0
			}
			route := routeOf(t, config.Forward{Retry: &policy})
			err := x.Serve(t.Context(), Retry(next, route, unlimitedBudget))
			if attempts != test.want || err != nil && test.want > 1 {
				t.Errorf("%d attempts, %v; want %d", attempts, err, test.want)
			}
		})
	}
}

// discardCounter is a host that records the status of each discarded response.
type discardCounter struct{ discarded []string }

func (h *discardCounter) Name() string { return "a" }
func (h *discardCounter) ResponseDiscarded(x *protocol.Exchange) {
	h.discarded = append(h.discarded, fmt.Sprintf("%d %s", x.Response.Status, x.Response.Header.Get("grpc-status")))
}

// TestHostsObserveDiscardedResponses verifies that a host observes its discarded response before
// the response is reset, and that failures are not observed.
func TestHostsObserveDiscardedResponses(t *testing.T) {
	host := new(discardCounter)
	attempts := 0
	next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{Host: host})
		if attempts++; attempts == 2 {
			return protocol.Faultf(protocol.UpstreamReset, "reset")
		}
		x.LocalReply(200, "", "")
		if attempts == 1 {
			x.Response.Header.Add("grpc-status", "14")
		}
		return nil
	})
	x := newTestExchange()
	x.Meta.Protocol, x.Request.Method = string(config.HTTP2), "POST"
	x.Request.Header.Add("content-type", "application/grpc")
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 3}})
	if err := x.Serve(t.Context(), Retry(next, route, unlimitedBudget)); err != nil || attempts != 3 {
		t.Fatalf("%d attempts, %v; want 3", attempts, err)
	}
	if want := []string{"200 14"}; !slices.Equal(host.discarded, want) {
		t.Errorf("discarded responses %q, want %q", host.discarded, want)
	}
}

func TestRetryableResponses(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy config.RetryPolicy
		method string
		status int
		want   int // attempts
	}{
		{"500", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 500, 2},
		{"599", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 599, 2},
		{"404", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 404, 1},
		{"status in the list", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, StatusCodes: []int{409, 429}}, "GET", 429, 2},
		{"503 next to the list", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, StatusCodes: []int{429}}, "GET", 503, 2},
		{"RPC", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "", 500, 2},
		{"RPC, retry_on off", config.RetryPolicy{NumRetries: 1}, "", 500, 1},
		{"POST", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "POST", 503, 1},
		{"200", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 200, 1},
		{"num_retries 4", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 4}, "GET", 503, 5},
		{"retry_on off", config.RetryPolicy{NumRetries: 4, StatusCodes: []int{503}}, "GET", 503, 1},
		{"num_retries 0", config.RetryPolicy{On: config.RetryOnDefault}, "GET", 503, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			next := &scriptedService{results: []any{test.status}}
			x := newTestExchange()
			x.Request.Method = test.method
			err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &test.policy}), unlimitedBudget))
			if err != nil || next.attempts != test.want {
				t.Errorf("%d attempts, %v; want %d", next.attempts, err, test.want)
			}
			// The client gets the last response.
			if got, want := bodyOf(t, x), fmt.Sprintf("try %d", test.want); x.Response.Status != test.status || got != want {
				t.Errorf("response %d %q, want %d %q", x.Response.Status, got, test.status, want)
			}
		})
	}
}

func TestNoPolicyMeansOneAttempt(t *testing.T) {
	next := &scriptedService{results: []any{protocol.NewFault(protocol.ConnectFailure, nil)}}
	err := newTestExchange().Serve(t.Context(), Retry(next, routeOf(t, config.Forward{}), unlimitedBudget))
	if next.attempts != 1 || protocol.ReasonOf(err) != protocol.ConnectFailure {
		t.Errorf("%d attempts, %v; want 1", next.attempts, err)
	}
}

// closeCountingBody is a response body that counts its Close calls.
type closeCountingBody struct {
	*protocol.StringBody
	closed *int
}

func (c closeCountingBody) Close() error { *c.closed++; return nil }

func TestRetryReleasesDiscardedResponses(t *testing.T) {
	closed := 0
	next := &scriptedService{results: []any{"as set below"}, onAttempt: func(n int, x *protocol.Exchange) {
		if closed != n {
			t.Errorf("before attempt %d, %d responses were released; want %d", n+1, closed, n)
		}
		if x.Response.Header.Len() != 0 || x.Response.Trailer.Len() != 0 {
			t.Errorf("attempt %d starts with headers of the previous response, want none", n+1)
		}
		x.Response.Status = 503
		x.Response.Header.Add("X-Try", "1")
		x.Response.Body = closeCountingBody{protocol.NewStringBody("x"), &closed}
	}}
	x := newTestExchange()
	if err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 2}}), unlimitedBudget)); err != nil {
		t.Fatal(err)
	}
	if next.attempts != 3 || closed != 2 || x.Response.Header.Len() != 1 {
		t.Errorf("%d attempts, %d responses released, headers %q; want 3, 2 and one header", next.attempts, closed, headerLines(&x.Response.Header))
	}
}

func TestRetryRewindsBody(t *testing.T) {
	next := &scriptedService{results: []any{503, 503, 200}, onAttempt: func(n int, x *protocol.Exchange) {
		if got, err := io.ReadAll(x.Request.Body); string(got) != "content" || err != nil {
			t.Errorf("attempt %d sent %q, %v; want \"content\"", n+1, got, err)
		}
	}}
	x := newTestExchange()
	x.Request.Method, x.Request.Body = "PUT", protocol.NewStringBody("content")
	if err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 2}}), unlimitedBudget)); err != nil || next.attempts != 3 {
		t.Errorf("%d attempts, %v; want 3", next.attempts, err)
	}
}

// testBudget is a budget with a number of remaining retries.
type testBudget struct{ remaining, inFlight, maxInFlight int }

func (b *testBudget) BeginRetry() bool {
	if b.remaining == 0 {
		return false
	}
	b.remaining--
	b.inFlight++
	b.maxInFlight = max(b.maxInFlight, b.inFlight)
	return true
}

func (b *testBudget) EndRetry() { b.inFlight-- }

func TestBudgetLimitsRetries(t *testing.T) {
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 10}})
	for name, test := range map[string]struct {
		remaining, want int
		flags           protocol.Flags
	}{
		"no retry left":          {0, 1, protocol.RetryOverflow},
		"fewer than num_retries": {3, 4, protocol.RetryOverflow},
		"more than num_retries":  {100, 11, protocol.RetryLimitExceeded},
	} {
		budget := &testBudget{remaining: test.remaining}
		next := &scriptedService{results: []any{503}}
		x := newTestExchange()
		if err := x.Serve(t.Context(), Retry(next, route, func(*protocol.Exchange) RetryBudget { return budget })); err != nil {
			t.Fatal(err)
		}
		if x.Record.Flags != test.flags {
			t.Errorf("%s: flags %b, want %b", name, x.Record.Flags, test.flags)
		}
		// Without a remaining retry, the client gets the last response.
		if next.attempts != test.want || budget.inFlight != 0 || budget.maxInFlight > 1 || x.Response.Status != 503 {
			t.Errorf("%s: %d attempts, %d permits not released, at most %d in flight, status %d; want %d attempts", name, next.attempts, budget.inFlight, budget.maxInFlight, x.Response.Status, test.want)
		}
	}
}

func TestPanicReleasesRetryBudget(t *testing.T) {
	budget := &testBudget{remaining: 1}
	next := &scriptedService{results: []any{503}, onAttempt: func(n int, _ *protocol.Exchange) {
		if n == 1 {
			panic("in the second attempt")
		}
	}}
	s := Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}}), func(*protocol.Exchange) RetryBudget { return budget })
	var panicErr *protocol.PanicError
	if err := newTestExchange().Serve(t.Context(), s); !errors.As(err, &panicErr) || budget.inFlight != 0 {
		t.Errorf("Serve = %v, %d permits not released; want a panic error and 0", err, budget.inFlight)
	}
}

// waitForDeadline fails an attempt at its deadline, as an upstream does.
//
//arch:clock in the bubbles of TestPerTryAndRouteTimeouts
func waitForDeadline(_ int, x *protocol.Exchange) {
	if deadline := x.EffectiveDeadline(); !deadline.IsZero() {
		time.Sleep(time.Until(deadline))
	}
}

func TestPerTryAndRouteTimeouts(t *testing.T) {
	results := []any{protocol.NewFault(protocol.UpstreamTimeout, nil)}
	retries := func(perTry time.Duration, n int) *config.RetryPolicy {
		return &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: n, PerTryTimeout: perTry}
	}
	for _, test := range []struct {
		name     string
		f        config.Forward
		headers  []string
		attempts int
		elapsed  time.Duration
		want     protocol.Reason
	}{
		{"per-try timeout ends the attempt", config.Forward{Timeout: time.Minute, Retry: retries(time.Second, 2)}, nil, 3, 3 * time.Second, protocol.ReasonPerTryTimeout},
		{"route timeout ends all attempts", config.Forward{Timeout: 2500 * time.Millisecond, Retry: retries(time.Second, 9)}, nil, 3, 2500 * time.Millisecond, protocol.UpstreamTimeout},
		{"no attempt without time left", config.Forward{Timeout: 2 * time.Second, Retry: retries(time.Second, 9)}, nil, 2, 2 * time.Second, protocol.UpstreamTimeout},
		{"no per-try timeout", config.Forward{Timeout: 2 * time.Second, Retry: retries(0, 9)}, nil, 1, 2 * time.Second, protocol.UpstreamTimeout},
		{"per-try timeout longer than the route timeout", config.Forward{Timeout: 2 * time.Second, Retry: retries(3*time.Second, 9)}, nil, 1, 2 * time.Second, protocol.UpstreamTimeout},
		{"per-try timeout without retries", config.Forward{Timeout: time.Minute, Retry: retries(time.Second, 0)}, nil, 1, time.Second, protocol.ReasonPerTryTimeout},
		{"request overrides the route timeout", config.Forward{Timeout: time.Minute}, []string{"x-mosn-global-timeout: 1500"}, 1, 1500 * time.Millisecond, protocol.UpstreamTimeout},
		{"request extends the route timeout", config.Forward{Timeout: time.Second}, []string{"x-mosn-global-timeout: 3000"}, 1, 3 * time.Second, protocol.UpstreamTimeout},
		{"request overrides the per-try timeout", config.Forward{Timeout: time.Minute, Retry: retries(time.Second, 1)}, []string{"X-Mosn-Try-Timeout: 250"}, 2, 500 * time.Millisecond, protocol.ReasonPerTryTimeout},
		{"request sets the per-try timeout without a policy", config.Forward{Timeout: time.Minute}, []string{"x-mosn-try-timeout: 250"}, 1, 250 * time.Millisecond, protocol.ReasonPerTryTimeout},
		{"invalid header values", config.Forward{Timeout: time.Second}, []string{"x-mosn-global-timeout: soon", "x-mosn-try-timeout: -1"}, 1, time.Second, protocol.UpstreamTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				route := routeOf(t, test.f).WithTimeoutHeaders()
				next := &scriptedService{results: results, onAttempt: waitForDeadline}
				x := newTestExchange(test.headers...)
				x.Meta.Start = time.Now()
				err := x.Serve(t.Context(), Timeout(Retry(next, route, unlimitedBudget), route))
				if got := protocol.ReasonOf(err); got != test.want || next.attempts != test.attempts || time.Since(x.Meta.Start) != test.elapsed {
					t.Errorf("%v after %d attempts and %v; want %v after %d and %v",
						got, next.attempts, time.Since(x.Meta.Start), test.want, test.attempts, test.elapsed)
				}
			})
		})
	}
}

func TestPerTryTimeoutEndsAtResponseHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route := routeOf(t, config.Forward{Timeout: time.Minute, Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, PerTryTimeout: time.Second}})
		x := newTestExchange()
		x.Meta.Start = time.Now()
		next := &scriptedService{results: []any{200}, onAttempt: func(_ int, x *protocol.Exchange) {
			if got := time.Until(x.EffectiveDeadline()); got != time.Second {
				t.Errorf("time left for the attempt: %v, want 1s", got)
			}
		}}
		if err := x.Serve(t.Context(), Timeout(Retry(next, route, unlimitedBudget), route)); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(x.Deadline); got != time.Minute {
			t.Errorf("time left for the body: %v, want 1m", got)
		}
	})
}

func TestTimeoutOnlyShortensDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, test := range []struct {
			name     string
			timeout  time.Duration
			start    time.Time
			deadline time.Time
			want     time.Time
		}{
			{"from the first byte", time.Minute, now.Add(-10 * time.Second), time.Time{}, now.Add(50 * time.Second)},
			{"an earlier deadline stays", time.Minute, now, now.Add(time.Second), now.Add(time.Second)},
			{"a later deadline is replaced", time.Second, now, now.Add(time.Minute), now.Add(time.Second)},
			{"no timeout, no deadline", 0, now, time.Time{}, time.Time{}},
			{"no timeout keeps the deadline", 0, now, now.Add(time.Minute), now.Add(time.Minute)},
		} {
			x := newTestExchange()
			x.Meta.Start, x.Deadline = test.start, test.deadline
			next := &scriptedService{results: []any{200}}
			if err := x.Serve(t.Context(), Timeout(next, routeOf(t, config.Forward{Timeout: test.timeout}))); err != nil {
				t.Fatal(err)
			}
			if !x.Deadline.Equal(test.want) {
				t.Errorf("%s: the deadline is %v, want %v", test.name, x.Deadline, test.want)
			}
		}
	})
}

func TestLastAttemptErrorIsReturned(t *testing.T) {
	last := protocol.NewFault(protocol.UpstreamClosed, errors.New("last"))
	next := &scriptedService{results: []any{protocol.NewFault(protocol.UpstreamReset, nil), 503, last}}
	err := newTestExchange().Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 2}}), unlimitedBudget))
	if !errors.Is(err, last) || next.attempts != 3 {
		t.Errorf("%d attempts, %v; want 3, %v", next.attempts, err, last)
	}
}
