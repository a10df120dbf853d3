package service

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestHedging verifies the result for each order in which attempts can end.
func TestHedging(t *testing.T) {
	onTimeout := &config.HedgePolicy{OnPerTryTimeout: true}
	retries := func(n int) *config.RetryPolicy {
		return &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: n, PerTryTimeout: 20 * time.Millisecond}
	}
	for _, test := range []struct {
		name       string
		hedge      *config.HedgePolicy
		retry      *config.RetryPolicy
		timeout    time.Duration // timeout of the route
		size       int           // hosts of the cluster; 0: 9
		budget     int           // 0: a budget of 99 retries; negative: a budget without retries
		overflow   bool          // the flags contain RetryOverflow
		downstream protocol.Downstream
		script     []string
		want       string // the response, or the reason
		log        string // events at the hosts
		hosts      string // recorded hosts in order; "": any order
	}{
		{name: "first response in time", script: []string{"200 at 10ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "first attempt is late but wins", script: []string{"200 at 30ms", "200 at 15ms"},
			want: "200 of a", log: "0s to a, 20ms to b, 30ms b is canceled", hosts: "b a"},
		{name: "second attempt wins", script: []string{"200 at 90ms", "200 at 15ms"},
			want: "200 of b", log: "0s to a, 20ms to b, 35ms a is canceled", hosts: "a b"},
		{name: "third attempt wins", retry: retries(2), script: []string{"never", "never", "200 at 5ms"},
			want: "200 of c", log: "0s to a, 20ms to b, 40ms to c, 45ms a is canceled, 45ms b is canceled", hosts: "a b c"},
		{name: "num_retries limits the attempts", script: []string{"200 at 90ms", "never"},
			want: "200 of a", log: "0s to a, 20ms to b, 90ms b is canceled", hosts: "b a"},
		{name: "bad response waits for the other attempt", script: []string{"200 at 50ms", "503 at 5ms"},
			want: "200 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "failure waits for the other attempt", script: []string{"200 at 50ms", "reset at 5ms"},
			want: "200 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "failure without a retry waits for the other attempt", script: []string{"200 at 50ms", "full at 5ms"},
			want: "200 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "bad first response, good second response", script: []string{"503 at 30ms", "200 at 50ms"},
			want: "200 of b", log: "0s to a, 20ms to b", hosts: "a b"},
		{name: "status without a retry wins", script: []string{"404 at 30ms", "200 at 50ms"},
			want: "404 of a", log: "0s to a, 20ms to b, 30ms b is canceled", hosts: "b a"},
		{name: "two bad responses", script: []string{"503 at 30ms", "502 at 50ms"},
			want: "502 of b", log: "0s to a, 20ms to b", hosts: "a b"},
		{name: "two failures", script: []string{"reset at 30ms", "reset at 50ms"},
			want: "upstream_reset", log: "0s to a, 20ms to b", hosts: "a b"},
		{name: "bad response beats a failure", script: []string{"503 at 30ms", "reset at 50ms"},
			want: "503 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "retry after two failures", retry: retries(2), script: []string{"503 at 25ms", "reset at 5ms", "200 at 1ms"},
			want: "200 of c", log: "0s to a, 20ms to b, 25ms to c", hosts: "a b c"},
		{name: "retry waits for its backoff", script: []string{"503 at 10ms", "200 at 1ms"},
			retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond, Backoff: config.Backoff{Base: 30 * time.Millisecond, Max: time.Second}},
			want:  "200 of b", log: "0s to a, 40ms to b", hosts: "a b"},
		{name: "backoff longer than the remaining time", script: []string{"503 at 10ms"}, timeout: 30 * time.Millisecond,
			retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond, Backoff: config.Backoff{Base: 30 * time.Millisecond, Max: time.Second}},
			want:  "503 of a", log: "0s to a", hosts: "a"},
		{name: "route timeout", timeout: 50 * time.Millisecond, script: []string{"never"},
			want: "upstream_timeout", log: "0s to a, 20ms to b"},
		{name: "client disconnect", downstream: disconnectAfter{300 * time.Millisecond}, script: []string{"never"},
			want: "downstream_gone", log: "0s to a, 20ms to b, 300ms a is canceled, 300ms b is canceled", hosts: "a b"},
		{name: "no retry budget", budget: -1, script: []string{"200 at 50ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "no retry budget for a retry", budget: -1, script: []string{"503 at 5ms"}, overflow: true,
			want: "503 of a", log: "0s to a", hosts: "a"},
		{name: "single host", size: 1, script: []string{"200 at 50ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "per-try timeout without a retry", script: []string{"200 at 50ms"},
			retry: &config.RetryPolicy{On: config.RetryStatusCodes, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond},
			want:  "200 of a", log: "0s to a", hosts: "a"},
		{name: "two initial requests", hedge: &config.HedgePolicy{InitialRequests: 2}, script: []string{"never", "200 at 5ms"},
			want: "200 of b", log: "0s to a, 0s to b, 5ms a is canceled", hosts: "a b"},
		{name: "more initial requests than hosts", hedge: &config.HedgePolicy{InitialRequests: 5}, size: 2, script: []string{"200 at 5ms", "never"},
			want: "200 of a", log: "0s to a, 0s to b, 5ms b is canceled", hosts: "b a"},
		{name: "two initial requests, both time out", hedge: &config.HedgePolicy{InitialRequests: 2}, script: []string{"never", "never", "200 at 5ms"},
			want: "200 of c", log: "0s to a, 0s to b, 20ms to c", hosts: "a b c"},
		{name: "additional request sampled", hedge: &config.HedgePolicy{AdditionalRequestChance: 500_000}, script: []string{"never", "200 at 5ms"},
			want: "200 of b", log: "0s to a, 0s to b, 5ms a is canceled", hosts: "a b"},
		{name: "additional request not sampled", hedge: &config.HedgePolicy{AdditionalRequestChance: 499_999}, script: []string{"200 at 5ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "two initial requests and one after the timeout", hedge: &config.HedgePolicy{InitialRequests: 2, OnPerTryTimeout: true}, script: []string{"never", "never", "200 at 5ms"},
			want: "200 of c", log: "0s to a, 0s to b, 20ms to c, 25ms a is canceled, 25ms b is canceled", hosts: "a b c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHedgeScript(cmp.Or(test.size, 9), test.script...)
				f := config.Forward{Timeout: test.timeout, Retry: test.retry, Hedge: test.hedge}
				if f.Retry == nil {
					f.Retry = retries(1)
				}
				if f.Hedge == nil {
					f.Hedge = onTimeout
				}
				budget := &sharedBudget{testBudget: testBudget{remaining: 99}}
				if test.budget < 0 {
					budget.remaining = 0
				}
				service, background := s.newHedge(t, f, budget)
				x := newTestExchange()
				x.Meta.Start, x.Downstream, x.Record.Listener = time.Now(), test.downstream, &testScope{name: "front"}
				err := x.Serve(t.Context(), service)
				got := protocol.ReasonOf(err).String()
				if err == nil {
					got = fmt.Sprintf("%d %s", x.Response.Status, bodyOf(t, x))
					if name := x.Record.Host().Name(); x.Response.Trailer.Get("x-host") != name || !strings.HasSuffix(got, name) {
						t.Errorf("response %q has the trailer %q and the recorded host %s, want the same host in all three", got, x.Response.Trailer.Get("x-host"), name)
					}
					x.ResetResponse()
				}
				background.Wait() // waits for abandoned attempts
				if got != test.want {
					t.Errorf("result %q, want %q", got, test.want)
				}
				if got := strings.Join(s.sortedLog(), ", "); got != test.log {
					t.Errorf("events at the hosts: %q,\nwant %q", got, test.log)
				}
				var hosts []string
				for i := range x.Record.Attempts {
					hosts = append(hosts, x.Record.Attempts[i].Host.Name())
				}
				if got := strings.Join(hosts, " "); test.hosts != "" && got != test.hosts {
					t.Errorf("recorded hosts %q, want %q", got, test.hosts)
				}
				if overflow := x.Record.Flags&protocol.RetryOverflow != 0; overflow != test.overflow {
					t.Errorf("the flags contain RetryOverflow: %t, want %t", overflow, test.overflow)
				}
				if budget.inFlight != 0 {
					t.Errorf("%d permits of the budget were not released, want 0", budget.inFlight)
				}
				if err == nil {
					s.discarded++ // the engine does this when the exchange ends
				}
				if s.discarded != s.responded || s.unobserved > 0 {
					t.Errorf("%d responses, %d discarded or delivered; %d attempts without a listener; want %d, 0", s.responded, s.discarded, s.unobserved, s.responded)
				}
				if s.closed != s.responded {
					t.Errorf("%d of %d responses were closed, want all", s.closed, s.responded)
				}
			})
		})
	}
}
