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

// TestHedging is every order in which tries can end.
func TestHedging(t *testing.T) {
	onTimeout := &config.HedgePolicy{OnPerTryTimeout: true}
	retries := func(n int) *config.RetryPolicy {
		return &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: n, PerTryTimeout: 20 * time.Millisecond}
	}
	for _, test := range []struct {
		name   string
		hedge  *config.HedgePolicy
		retry  *config.RetryPolicy
		whole  time.Duration // of the route
		size   int           // of the cluster; 0: 9
		left   int           // of the budget; 0: 99
		caller protocol.Downstream
		script []string
		want   string // the answer, or the reason
		log    string // what the hosts saw
		hosts  string // of the record, in order; "": in any
	}{
		{name: "the first answers in time", script: []string{"200 at 10ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "the first answers late, and first", script: []string{"200 at 30ms", "200 at 15ms"},
			want: "200 of a", log: "0s to a, 20ms to b, 30ms b is left", hosts: "b a"},
		{name: "the second answers first", script: []string{"200 at 90ms", "200 at 15ms"},
			want: "200 of b", log: "0s to a, 20ms to b, 35ms a is left", hosts: "a b"},
		{name: "the third answers first", retry: retries(2), script: []string{"never", "never", "200 at 5ms"},
			want: "200 of c", log: "0s to a, 20ms to b, 40ms to c, 45ms a is left, 45ms b is left", hosts: "a b c"},
		{name: "there are no more than the retries", script: []string{"200 at 90ms", "never"},
			want: "200 of a", log: "0s to a, 20ms to b, 90ms b is left", hosts: "b a"},
		{name: "a bad one waits for the other", script: []string{"200 at 50ms", "503 at 5ms"},
			want: "200 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "a failure waits for the other", script: []string{"200 at 50ms", "reset at 5ms"},
			want: "200 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "a failure that is not tried again waits, too", script: []string{"200 at 50ms", "full at 5ms"},
			want: "200 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "the first is bad, the second good", script: []string{"503 at 30ms", "200 at 50ms"},
			want: "200 of b", log: "0s to a, 20ms to b", hosts: "a b"},
		{name: "a status that is not tried again is an answer", script: []string{"404 at 30ms", "200 at 50ms"},
			want: "404 of a", log: "0s to a, 20ms to b, 30ms b is left", hosts: "b a"},
		{name: "both are bad", script: []string{"503 at 30ms", "502 at 50ms"},
			want: "502 of b", log: "0s to a, 20ms to b", hosts: "a b"},
		{name: "both fail", script: []string{"reset at 30ms", "reset at 50ms"},
			want: "upstream_reset", log: "0s to a, 20ms to b", hosts: "a b"},
		{name: "a bad answer is better than none", script: []string{"503 at 30ms", "reset at 50ms"},
			want: "503 of a", log: "0s to a, 20ms to b", hosts: "b a"},
		{name: "when both have failed there is another", retry: retries(2), script: []string{"503 at 25ms", "reset at 5ms", "200 at 1ms"},
			want: "200 of c", log: "0s to a, 20ms to b, 25ms to c", hosts: "a b c"},
		{name: "a retry waits for its time", script: []string{"503 at 10ms", "200 at 1ms"},
			retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond, Backoff: config.Backoff{Base: 30 * time.Millisecond, Max: time.Second}},
			want:  "200 of b", log: "0s to a, 40ms to b", hosts: "a b"},
		{name: "a retry that would come too late", script: []string{"503 at 10ms"}, whole: 30 * time.Millisecond,
			retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond, Backoff: config.Backoff{Base: 30 * time.Millisecond, Max: time.Second}},
			want:  "503 of a", log: "0s to a", hosts: "a"},
		{name: "the whole time is up", whole: 50 * time.Millisecond, script: []string{"never"},
			want: "upstream_timeout", log: "0s to a, 20ms to b"},
		{name: "the caller leaves", caller: disconnectAfter{300 * time.Millisecond}, script: []string{"never"},
			want: "downstream_gone", log: "0s to a, 20ms to b, 300ms a is left, 300ms b is left", hosts: "a b"},
		{name: "no budget for another", left: -1, script: []string{"200 at 50ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "no host for another", size: 1, script: []string{"200 at 50ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "what takes too long is not tried again", script: []string{"200 at 50ms"},
			retry: &config.RetryPolicy{On: config.RetryStatusCodes, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond},
			want:  "200 of a", log: "0s to a", hosts: "a"},
		{name: "two at once", hedge: &config.HedgePolicy{InitialRequests: 2}, script: []string{"never", "200 at 5ms"},
			want: "200 of b", log: "0s to a, 0s to b, 5ms a is left", hosts: "a b"},
		{name: "more at once than there are hosts", hedge: &config.HedgePolicy{InitialRequests: 5}, size: 2, script: []string{"200 at 5ms", "never"},
			want: "200 of a", log: "0s to a, 0s to b, 5ms b is left", hosts: "b a"},
		{name: "two at once that end when their time is up", hedge: &config.HedgePolicy{InitialRequests: 2}, script: []string{"never", "never", "200 at 5ms"},
			want: "200 of c", log: "0s to a, 0s to b, 20ms to c", hosts: "a b c"},
		{name: "one more by chance", hedge: &config.HedgePolicy{AdditionalRequestChance: 500_000}, script: []string{"never", "200 at 5ms"},
			want: "200 of b", log: "0s to a, 0s to b, 5ms a is left", hosts: "a b"},
		{name: "none by chance", hedge: &config.HedgePolicy{AdditionalRequestChance: 499_999}, script: []string{"200 at 5ms"},
			want: "200 of a", log: "0s to a", hosts: "a"},
		{name: "two at once and one more later", hedge: &config.HedgePolicy{InitialRequests: 2, OnPerTryTimeout: true}, script: []string{"never", "never", "200 at 5ms"},
			want: "200 of c", log: "0s to a, 0s to b, 20ms to c, 25ms a is left, 25ms b is left", hosts: "a b c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHedgeScript(cmp.Or(test.size, 9), test.script...)
				f := config.Forward{Timeout: test.whole, Retry: test.retry, Hedge: test.hedge}
				if f.Retry == nil {
					f.Retry = retries(1)
				}
				if f.Hedge == nil {
					f.Hedge = onTimeout
				}
				budget := &sharedBudget{testBudget: testBudget{remaining: 99}}
				if test.left < 0 {
					budget.remaining = 0
				}
				service, beside := s.newHedge(t, f, budget)
				x := newTestExchange()
				x.Meta.Start, x.Downstream, x.Record.Listener = time.Now(), test.caller, &testScope{name: "front"}
				err := x.Serve(t.Context(), service)
				got := protocol.ReasonOf(err).String()
				if err == nil {
					got = fmt.Sprintf("%d %s", x.Response.Status, bodyOf(t, x))
					if name := x.Record.Host().Name(); x.Response.Trailer.Get("x-host") != name || !strings.HasSuffix(got, name) {
						t.Errorf("the answer %q has the trailer %q and is recorded as of %s", got, x.Response.Trailer.Get("x-host"), name)
					}
					x.ResetResponse()
				}
				beside.Wait() // for what was left
				if got != test.want {
					t.Errorf("the caller got %q, want %q", got, test.want)
				}
				if got := strings.Join(s.sortedLog(), ", "); got != test.log {
					t.Errorf("hosts saw %q,\nwant %q", got, test.log)
				}
				var hosts []string
				for i := range x.Record.Attempts {
					hosts = append(hosts, x.Record.Attempts[i].Host.Name())
				}
				if got := strings.Join(hosts, " "); test.hosts != "" && got != test.hosts {
					t.Errorf("recorded are %q, want %q", got, test.hosts)
				}
				if budget.inFlight != 0 {
					t.Errorf("%d of the budget were not given back", budget.inFlight)
				}
				if err == nil {
					s.discarded++ // when the exchange has ended
				}
				if s.discarded != s.responded || s.unobserved > 0 {
					t.Errorf("of %d answers %d are accounted for, and %d tries are nobody's", s.responded, s.discarded, s.unobserved)
				}
				if s.closed != s.responded {
					t.Errorf("%d answers were closed of %d", s.closed, s.responded)
				}
			})
		})
	}
}
