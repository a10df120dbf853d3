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

// routeOf compiles a route that forwards.
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

// scriptedService answers one try after the other: with an error, or with a status.
type scriptedService struct {
	results  []any
	attempts int
	// each, if not nil, is called before each try's result.
	each func(n int, x *protocol.Exchange)
}

func (s *scriptedService) Start(_ context.Context, x *protocol.Exchange) error {
	n := s.attempts
	s.attempts++
	if s.each != nil {
		s.each(n, x)
	}
	switch r := s.results[min(n, len(s.results)-1)].(type) {
	case error:
		return r
	case int:
		x.LocalReply(r, "text/plain", fmt.Sprintf("try %d", n+1))
	}
	return nil
}

func unlimited(*protocol.Exchange) RetryBudget { return nil }

// unrewindableBody is content that cannot be read again.
type unrewindableBody struct{ *protocol.StringBody }

func (unrewindableBody) Rewind() bool { return false }

// plain is content that knows nothing of reading again.
type plain struct{ io.Reader }

func (plain) Buffered() int { return 0 }
func (plain) Close() error  { return nil }

// TestRetryableFailures is every reason, with every kind of method and content.
func TestRetryableFailures(t *testing.T) {
	const (
		never  = iota // it is not the upstream's fault, or would not change
		ifSafe        // the request may have reached an application
		always        // it cannot have
	)
	want := map[protocol.Reason]int{
		protocol.MalformedRequest: never, protocol.TargetTooLong: never, protocol.HeaderTooLarge: never,
		protocol.BodyTooLarge: never, protocol.RequestTimeout: never, protocol.RequestIdle: never, protocol.VersionNotSupported: never,
		protocol.NotImplemented: never, protocol.ExpectationFailed: never,
		protocol.ReasonNoRoute: never, protocol.NoCluster: never,
		protocol.NoDestination: never, protocol.MalformedDestination: never, protocol.ReasonLoop: never,
		protocol.ReasonDenied: never, protocol.Unauthenticated: never, protocol.RateLimited: never, protocol.Overloaded: never, protocol.FaultInjected: never,
		protocol.NoHealthyHost: never, protocol.ReasonOnDemandTimeout: never, protocol.Overflow: never, protocol.RetryOverflow: never,
		protocol.ConnectFailure: always, protocol.ConnectTimeout: always,
		protocol.UpstreamReset: ifSafe, protocol.UpstreamClosed: ifSafe, protocol.UpstreamMalformed: ifSafe, protocol.ReasonPerTryTimeout: ifSafe,
		protocol.UpstreamTimeout: never, protocol.StreamIdle: never, // the time of the whole exchange has passed
		protocol.ReasonDownstreamDisconnect: never, protocol.Draining: never, protocol.Dropped: never, protocol.Internal: never,
	}
	methods := map[string]bool{ // whether it may reach an application twice (RFC 9110 9.2.2)
		"":    true, // RPC: the policy says so
		"GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true,
		"POST": false, "PATCH": false, "CONNECT": false, "get": false, "PURGE": false,
	}
	bodies := map[string]struct {
		body     func() protocol.Body
		possible bool
	}{
		"none":                  {func() protocol.Body { return nil }, true},
		"content that is held":  {func() protocol.Body { return protocol.NewStringBody("x") }, true},
		"content that is gone":  {func() protocol.Body { return unrewindableBody{protocol.NewStringBody("x")} }, false},
		"content that streamed": {func() protocol.Body { return plain{nil} }, false},
	}
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}})
	for reason := range protocol.Reasons() {
		class, listed := want[reason]
		if !listed {
			t.Errorf("the test does not know %v", reason)
		}
		for method, safe := range methods {
			for name, b := range bodies {
				next := &scriptedService{results: []any{protocol.NewFault(reason, nil), 200}}
				x := newTestExchange()
				x.Request.Method, x.Request.Body = method, b.body()
				err := x.Serve(t.Context(), Retry(next, route, unlimited))
				again := b.possible && (class == always || class == ifSafe && safe)
				if (next.attempts == 2) != again || (err == nil) != again {
					t.Errorf("%v, %s, %s: %d tries, %v; want another try: %t", reason, method, name, next.attempts, err, again)
				}
			}
		}
	}
}

// TestGRPCRetries is what gRPC's answers and failures lead to under a policy.
func TestGRPCRetries(t *testing.T) {
	unavailable := func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "14") }
	for name, test := range map[string]struct {
		off    bool
		kind   string // "": application/grpc
		body   protocol.Body
		answer func(x *protocol.Exchange)
		err    error
		want   int // tries
	}{
		"unavailable":                        {answer: unavailable, want: 2},
		"unavailable, with content at hand":  {answer: unavailable, body: protocol.NewStringBody("x"), want: 2},
		"unavailable, with content gone":     {answer: unavailable, body: unrewindableBody{protocol.NewStringBody("x")}, want: 1},
		"unavailable, without a policy":      {answer: unavailable, off: true, want: 1},
		"unavailable, but no gRPC":           {answer: unavailable, kind: "application/json", want: 1},
		"fine":                               {answer: func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "0") }, want: 1},
		"another failure":                    {answer: func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "13") }, want: 1},
		"not known before the trailers":      {answer: func(*protocol.Exchange) {}, want: 1},
		"an HTTP status":                     {answer: func(x *protocol.Exchange) { x.Response.Status = 503 }, want: 2},
		"a reset, which RPC's policy covers": {err: protocol.Faultf(protocol.UpstreamReset, "reset"), want: 2},
		"a caller that left":                 {err: protocol.Faultf(protocol.ReasonDownstreamDisconnect, "left"), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			made := 0
			next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				if made++; test.err != nil && made == 1 {
					return test.err
				}
				x.LocalReply(200, "", "")
				if made == 1 {
					test.answer(x)
				}
				return nil
			})
			x := newTestExchange()
			x.Meta.Protocol = string(config.HTTP2)
			x.Request.Method, x.Request.Body = "POST", test.body
			x.Request.Header.Add("content-type", cmp.Or(test.kind, "application/grpc"))
			policy := config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}
			if test.off {
				policy.On = 0
			}
			route := routeOf(t, config.Forward{Retry: &policy})
			err := x.Serve(t.Context(), Retry(next, route, unlimited))
			if made != test.want || err != nil && test.want > 1 {
				t.Errorf("%d tries, %v; want %d", made, err, test.want)
			}
		})
	}
}

// discardCounter is a host that is told of the answers that are dropped.
type discardCounter struct{ discarded []string }

func (h *discardCounter) Name() string { return "a" }
func (h *discardCounter) ResponseDiscarded(x *protocol.Exchange) {
	h.discarded = append(h.discarded, fmt.Sprintf("%d %s", x.Response.Status, x.Response.Header.Get("grpc-status")))
}

// A host is told of an answer that is dropped while it is there, and not of failures.
func TestHostsObserveDiscardedResponses(t *testing.T) {
	host := new(discardCounter)
	made := 0
	next := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{Host: host})
		if made++; made == 2 {
			return protocol.Faultf(protocol.UpstreamReset, "reset")
		}
		x.LocalReply(200, "", "")
		if made == 1 {
			x.Response.Header.Add("grpc-status", "14")
		}
		return nil
	})
	x := newTestExchange()
	x.Meta.Protocol, x.Request.Method = string(config.HTTP2), "POST"
	x.Request.Header.Add("content-type", "application/grpc")
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 3}})
	if err := x.Serve(t.Context(), Retry(next, route, unlimited)); err != nil || made != 3 {
		t.Fatalf("%d tries, %v; want 3", made, err)
	}
	if want := []string{"200 14"}; !slices.Equal(host.discarded, want) {
		t.Errorf("the host was told of %q, want %q", host.discarded, want)
	}
}

func TestRetryableResponses(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy config.RetryPolicy
		method string
		status int
		want   int // tries
	}{
		{"a 5xx", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 500, 2},
		{"any 5xx", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 599, 2},
		{"not a 4xx", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 404, 1},
		{"a status of the list", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, StatusCodes: []int{409, 429}}, "GET", 429, 2},
		{"a 5xx beside the list", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, StatusCodes: []int{429}}, "GET", 503, 2},
		{"of RPC", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "", 500, 2},
		{"not of RPC when switched off", config.RetryPolicy{NumRetries: 1}, "", 500, 1},
		{"not to POST", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "POST", 503, 1},
		{"not a good one", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}, "GET", 200, 1},
		{"as often as configured", config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 4}, "GET", 503, 5},
		{"not when switched off", config.RetryPolicy{NumRetries: 4, StatusCodes: []int{503}}, "GET", 503, 1},
		{"not with 0 retries", config.RetryPolicy{On: config.RetryOnDefault}, "GET", 503, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			next := &scriptedService{results: []any{test.status}}
			x := newTestExchange()
			x.Request.Method = test.method
			err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &test.policy}), unlimited))
			if err != nil || next.attempts != test.want {
				t.Errorf("%d tries, %v; want %d", next.attempts, err, test.want)
			}
			// The last answer is the caller's.
			if got, want := bodyOf(t, x), fmt.Sprintf("try %d", test.want); x.Response.Status != test.status || got != want {
				t.Errorf("answered with %d %q, want %d %q", x.Response.Status, got, test.status, want)
			}
		})
	}
}

func TestNoPolicyMeansOneAttempt(t *testing.T) {
	next := &scriptedService{results: []any{protocol.NewFault(protocol.ConnectFailure, nil)}}
	err := newTestExchange().Serve(t.Context(), Retry(next, routeOf(t, config.Forward{}), unlimited))
	if next.attempts != 1 || protocol.ReasonOf(err) != protocol.ConnectFailure {
		t.Errorf("%d tries, %v", next.attempts, err)
	}
}

// closeCountingBody is an answer's content that says when it is released.
type closeCountingBody struct {
	*protocol.StringBody
	closed *int
}

func (c closeCountingBody) Close() error { *c.closed++; return nil }

func TestRetryReleasesDiscardedResponses(t *testing.T) {
	closed := 0
	next := &scriptedService{results: []any{"as set below"}, each: func(n int, x *protocol.Exchange) {
		if closed != n {
			t.Errorf("before try %d %d answers were released", n+1, closed)
		}
		if x.Response.Header.Len() != 0 || x.Response.Trailer.Len() != 0 {
			t.Errorf("try %d begins with fields of the one before", n+1)
		}
		x.Response.Status = 503
		x.Response.Header.Add("X-Try", "1")
		x.Response.Body = closeCountingBody{protocol.NewStringBody("x"), &closed}
	}}
	x := newTestExchange()
	if err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 2}}), unlimited)); err != nil {
		t.Fatal(err)
	}
	if next.attempts != 3 || closed != 2 || x.Response.Header.Len() != 1 {
		t.Errorf("%d tries, %d released, fields %q", next.attempts, closed, fieldsOf(&x.Response.Header))
	}
}

func TestRetryRewindsBody(t *testing.T) {
	next := &scriptedService{results: []any{503, 503, 200}, each: func(n int, x *protocol.Exchange) {
		if got, err := io.ReadAll(x.Request.Body); string(got) != "content" || err != nil {
			t.Errorf("try %d sent %q, %v", n+1, got, err)
		}
	}}
	x := newTestExchange()
	x.Request.Method, x.Request.Body = "PUT", protocol.NewStringBody("content")
	if err := x.Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 2}}), unlimited)); err != nil || next.attempts != 3 {
		t.Errorf("%d tries, %v", next.attempts, err)
	}
}

// testBudget is a budget of so many retries.
type testBudget struct{ remaining, inFlight, maxInFlight int }

func (p *testBudget) BeginRetry() bool {
	if p.remaining == 0 {
		return false
	}
	p.remaining--
	p.inFlight++
	p.maxInFlight = max(p.maxInFlight, p.inFlight)
	return true
}

func (p *testBudget) EndRetry() { p.inFlight-- }

func TestTheBudgetBoundsRetries(t *testing.T) {
	route := routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 10}})
	for name, test := range map[string]struct{ left, want int }{"none left": {0, 1}, "some left": {3, 4}, "enough": {100, 11}} {
		p := &testBudget{remaining: test.left}
		next := &scriptedService{results: []any{503}}
		x := newTestExchange()
		if err := x.Serve(t.Context(), Retry(next, route, func(*protocol.Exchange) RetryBudget { return p })); err != nil {
			t.Fatal(err)
		}
		// What was answered stays the answer when there is no more to spend.
		if next.attempts != test.want || p.inFlight != 0 || p.maxInFlight > 1 || x.Response.Status != 503 {
			t.Errorf("%s: %d tries, %d not given back, %d at once, status %d; want %d tries", name, next.attempts, p.inFlight, p.maxInFlight, x.Response.Status, test.want)
		}
	}
}

func TestPanicReleasesRetryBudget(t *testing.T) {
	p := &testBudget{remaining: 1}
	next := &scriptedService{results: []any{503}, each: func(n int, _ *protocol.Exchange) {
		if n == 1 {
			panic("in the second try")
		}
	}}
	s := Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1}}), func(*protocol.Exchange) RetryBudget { return p })
	var panicked *protocol.PanicError
	if err := newTestExchange().Serve(t.Context(), s); !errors.As(err, &panicked) || p.inFlight != 0 {
		t.Errorf("%v, and %d of the budget were not given back", err, p.inFlight)
	}
}

// waitForDeadline fails a try when its time is over, as an upstream does.
func waitForDeadline(_ int, x *protocol.Exchange) {
	if until := x.EffectiveDeadline(); !until.IsZero() {
		<-time.After(time.Until(until))
	}
}

func TestPerTryAndRouteTimeouts(t *testing.T) {
	slow := []any{protocol.NewFault(protocol.UpstreamTimeout, nil)}
	retries := func(try time.Duration, n int) *config.RetryPolicy {
		return &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: n, PerTryTimeout: try}
	}
	for _, test := range []struct {
		name   string
		f      config.Forward
		fields []string
		tries  int
		took   time.Duration
		want   protocol.Reason
	}{
		{"a try's time ends the try", config.Forward{Timeout: time.Minute, Retry: retries(time.Second, 2)}, nil, 3, 3 * time.Second, protocol.ReasonPerTryTimeout},
		{"the whole time ends all", config.Forward{Timeout: 2500 * time.Millisecond, Retry: retries(time.Second, 9)}, nil, 3, 2500 * time.Millisecond, protocol.UpstreamTimeout},
		{"no try without time left", config.Forward{Timeout: 2 * time.Second, Retry: retries(time.Second, 9)}, nil, 2, 2 * time.Second, protocol.UpstreamTimeout},
		{"a try may take all the time", config.Forward{Timeout: 2 * time.Second, Retry: retries(0, 9)}, nil, 1, 2 * time.Second, protocol.UpstreamTimeout},
		{"a longer try has no time of its own", config.Forward{Timeout: 2 * time.Second, Retry: retries(3*time.Second, 9)}, nil, 1, 2 * time.Second, protocol.UpstreamTimeout},
		{"without retries a try's time holds as well", config.Forward{Timeout: time.Minute, Retry: retries(time.Second, 0)}, nil, 1, time.Second, protocol.ReasonPerTryTimeout},
		{"the request's whole time", config.Forward{Timeout: time.Minute}, []string{"x-mosn-global-timeout: 1500"}, 1, 1500 * time.Millisecond, protocol.UpstreamTimeout},
		{"the request's whole time may be longer", config.Forward{Timeout: time.Second}, []string{"x-mosn-global-timeout: 3000"}, 1, 3 * time.Second, protocol.UpstreamTimeout},
		{"the request's time for a try", config.Forward{Timeout: time.Minute, Retry: retries(time.Second, 1)}, []string{"X-Mosn-Try-Timeout: 250"}, 2, 500 * time.Millisecond, protocol.ReasonPerTryTimeout},
		{"the request's time for a try, without a policy", config.Forward{Timeout: time.Minute}, []string{"x-mosn-try-timeout: 250"}, 1, 250 * time.Millisecond, protocol.ReasonPerTryTimeout},
		{"a field that is no number", config.Forward{Timeout: time.Second}, []string{"x-mosn-global-timeout: soon", "x-mosn-try-timeout: -1"}, 1, time.Second, protocol.UpstreamTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				route := routeOf(t, test.f).WithTimeoutFields()
				next := &scriptedService{results: slow, each: waitForDeadline}
				x := newTestExchange(test.fields...)
				x.Meta.Start = time.Now()
				err := x.Serve(t.Context(), Timeout(Retry(next, route, unlimited), route))
				if got := protocol.ReasonOf(err); got != test.want || next.attempts != test.tries || time.Since(x.Meta.Start) != test.took {
					t.Errorf("%v after %d tries and %v; want %v after %d and %v",
						got, next.attempts, time.Since(x.Meta.Start), test.want, test.tries, test.took)
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
		next := &scriptedService{results: []any{200}, each: func(_ int, x *protocol.Exchange) {
			if got := time.Until(x.EffectiveDeadline()); got != time.Second {
				t.Errorf("a try has %v, want 1s", got)
			}
		}}
		if err := x.Serve(t.Context(), Timeout(Retry(next, route, unlimited), route)); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(x.Deadline); got != time.Minute {
			t.Errorf("the content has %v, want 1m", got)
		}
	})
}

func TestTimeoutOnlyShortensDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, test := range []struct {
			name    string
			timeout time.Duration
			start   time.Time
			before  time.Time
			want    time.Time
		}{
			{"from the first byte", time.Minute, now.Add(-10 * time.Second), time.Time{}, now.Add(50 * time.Second)},
			{"a nearer deadline stays", time.Minute, now, now.Add(time.Second), now.Add(time.Second)},
			{"a later deadline does not", time.Second, now, now.Add(time.Minute), now.Add(time.Second)},
			{"none", 0, now, time.Time{}, time.Time{}},
			{"none leaves what was there", 0, now, now.Add(time.Minute), now.Add(time.Minute)},
		} {
			x := newTestExchange()
			x.Meta.Start, x.Deadline = test.start, test.before
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
	err := newTestExchange().Serve(t.Context(), Retry(next, routeOf(t, config.Forward{Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 2}}), unlimited))
	if !errors.Is(err, last) || next.attempts != 3 {
		t.Errorf("%d tries, %v", next.attempts, err)
	}
}
