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

// newHedgeScript returns the hosts of a cluster of that size.
func newHedgeScript(size int, script ...string) *hedgeScript {
	return &hedgeScript{script: script, cluster: testScope{"app", size}}
}

// newHedge returns the service of a route to the hosts, and what waits for all that it runs beside.
func (s *hedgeScript) newHedge(t *testing.T, f config.Forward, budget RetryBudget) (service protocol.Service, beside *sync.WaitGroup) {
	t.Helper()
	return s.newHedgeTo(t, s, f, budget)
}

// newHedgeTo is newHedge with next in front of the hosts.
func (s *hedgeScript) newHedgeTo(t *testing.T, next protocol.Service, f config.Forward, budget RetryBudget) (service protocol.Service, beside *sync.WaitGroup) {
	t.Helper()
	beside = new(sync.WaitGroup)
	route := routeOf(t, f)
	b := func(*protocol.Exchange) RetryBudget { return budget }
	h := Hedge(next, route, b, func(f func(context.Context)) { beside.Go(func() { f(context.Background()) }) }).(*hedge)
	h.jitter = func(bound time.Duration) time.Duration { return bound }
	h.random = func(uint32) uint32 { return 499_999 }
	s.began = time.Now()
	return Timeout(h, route), beside
}
