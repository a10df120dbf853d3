package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// testScope is a host, or a cluster of so many.
type testScope struct {
	name string
	size int
}

func (p *testScope) Name() string { return p.name }

func (*testScope) ResponseDiscarded(*protocol.Exchange) {}
func (p *testScope) EligibleHosts() int                 { return p.size }

// hedgeScript is hosts that answer each try as it is written: "200 at 30ms", "reset at 5ms",
// "never". The first try goes to a, the next to b, and so on.
type hedgeScript struct {
	script  []string
	cluster testScope

	mu         sync.Mutex
	began      time.Time
	log        []string // guarded by mu; what happened, by the clock
	sent       []string // guarded by mu; contents
	closed     int      // guarded by mu; answers that were closed
	responded  int      // guarded by mu
	tried      int      // guarded by mu
	discarded  int      // guarded by mu; answers that hosts were told are dropped
	unobserved int      // guarded by mu; tries of which nobody will observe the end
}

// scriptHost is where a try goes.
type scriptHost struct {
	testScope
	scene *hedgeScript
}

func (h *scriptHost) ResponseDiscarded(*protocol.Exchange) {
	h.scene.mu.Lock()
	defer h.scene.mu.Unlock()
	h.scene.discarded++
}

func (s *hedgeScript) logEvent(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%v ", time.Since(s.began))+fmt.Sprintf(format, args...))
}

// sortedLog is the log by the clock; what happened at one time, by its words.
func (s *hedgeScript) sortedLog() []string {
	slices.SortFunc(s.log, func(a, b string) int {
		at := func(line string) time.Duration {
			text, _, _ := strings.Cut(line, " ")
			d, _ := time.ParseDuration(text) // as time.Duration wrote it
			return d
		}
		return cmp.Or(cmp.Compare(at(a), at(b)), strings.Compare(a, b))
	})
	return s.log
}

// sharedBudget is a purse that tries on several goroutines share.
type sharedBudget struct {
	mu sync.Mutex
	testBudget
}

func (p *sharedBudget) BeginRetry() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.testBudget.BeginRetry()
}

func (p *sharedBudget) EndRetry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.testBudget.EndRetry()
}

func (s *hedgeScript) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, s)
}

// Serve is a cluster's: it honours deadlines, callers that leave, and ctx.
func (s *hedgeScript) Serve(ctx context.Context, x *protocol.Exchange) error {
	s.mu.Lock()
	n := s.tried
	s.tried++
	if x.Record.Listener == nil {
		s.unobserved++
	}
	s.mu.Unlock()
	name := string(rune('a' + n))
	h := &scriptHost{testScope{name: name}, s}
	x.Record.Cluster = &s.cluster
	x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{Host: h})
	if a, ok := x.Downstream.(*attempt); ok {
		a.recordHost(h, &s.cluster)
	}
	s.logEvent("to %s", name)
	if x.Request.Body != nil {
		content, err := io.ReadAll(x.Request.Body)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.sent = append(s.sent, string(content))
		s.mu.Unlock()
	}
	what, at, _ := strings.Cut(s.script[min(n, len(s.script)-1)], " at ")
	answer := make(<-chan time.Time)
	if at != "" {
		d, err := time.ParseDuration(at)
		if err != nil {
			panic(err)
		}
		answer = time.After(d)
	}
	gone := make(chan struct{})
	if x.Downstream != nil {
		defer x.Downstream.OnDisconnect(func() { close(gone) })()
	}
	var late <-chan time.Time
	if until := x.EffectiveDeadline(); !until.IsZero() {
		late = time.After(time.Until(until))
	}
	select {
	case <-answer:
	case <-late:
		return protocol.NewFault(protocol.UpstreamTimeout, nil)
	case <-gone:
		s.logEvent("%s is left", name)
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil)
	case <-ctx.Done():
		s.logEvent("%s is left", name)
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil)
	}
	var status int
	if _, err := fmt.Sscan(what, &status); err != nil {
		reason := map[string]protocol.Reason{"reset": protocol.UpstreamReset, "full": protocol.Overflow, "refused": protocol.ConnectFailure}[what]
		return protocol.NewFault(reason, errors.New(name))
	}
	x.Record.UpstreamFirstByte = time.Now()
	x.LocalReply(status, "text/plain", "of "+name)
	s.mu.Lock()
	s.responded++
	s.mu.Unlock()
	x.Response.Body = &scriptBody{x.Response.Body, s, &x.Response.Trailer, name}
	return nil
}

// scriptBody is an answer with a trailer.
type scriptBody struct {
	protocol.Body
	scene   *hedgeScript
	trailer *protocol.Header
	name    string
}

func (b *scriptBody) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	if err == io.EOF {
		b.trailer.Set("x-host", b.name)
	}
	return n, err
}

func (b *scriptBody) Close() error {
	b.scene.mu.Lock()
	defer b.scene.mu.Unlock()
	b.scene.closed++
	return nil
}

// disconnectAfter is a caller that leaves.
type disconnectAfter struct{ after time.Duration }

func (disconnectAfter) SendInterim(int, *protocol.Header) error { return nil }
func (l disconnectAfter) OnDisconnect(gone func()) func() {
	t := time.AfterFunc(l.after-disconnectWatchDelay, gone) // it is watched from then on
	return func() { t.Stop() }
}

// newHedge is the service, and how many of what it runs beside has not ended.
func (s *hedgeScript) newHedge(t *testing.T, f config.Forward, budget RetryBudget) (service protocol.Service, beside *sync.WaitGroup) {
	t.Helper()
	beside = new(sync.WaitGroup)
	route := routeOf(t, f)
	b := func(*protocol.Exchange) RetryBudget { return budget }
	h := Hedge(s, route, b, func(f func(context.Context)) { beside.Go(func() { f(context.Background()) }) }).(*hedge)
	h.jitter = func(bound time.Duration) time.Duration { return bound }
	h.random = func(uint32) uint32 { return 499_999 }
	s.began = time.Now()
	return Timeout(h, route), beside
}

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
				s := &hedgeScript{script: test.script, cluster: testScope{"app", max(test.size, 0)}}
				if test.size == 0 {
					s.cluster.size = 9
				}
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
