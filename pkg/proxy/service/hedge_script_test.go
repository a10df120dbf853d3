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
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// testScope is a host, or a cluster with size eligible hosts.
type testScope struct {
	name string
	size int
}

func (s *testScope) Name() string { return s.name }

func (*testScope) ResponseDiscarded(*protocol.Exchange) {}
func (s *testScope) EligibleHosts() int                 { return s.size }
func (*testScope) Count(upstream.Event)                 {}

// scriptCluster is a cluster that counts hedged attempts.
type scriptCluster struct {
	testScope
	hedged atomic.Int64
}

func (c *scriptCluster) Count(e upstream.Event) {
	if e == upstream.Hedged {
		c.hedged.Add(1)
	}
}

// hedgeScript simulates hosts. Each attempt gets its entry of script: "200 at 30ms", "reset at 5ms"
// or "never"; further attempts get the last entry. The first attempt goes to host a, the second to
// b, and so on.
type hedgeScript struct {
	script  []string
	cluster scriptCluster

	mu         sync.Mutex
	start      time.Time
	log        []string // guarded by mu; events with their time
	sent       []string // guarded by mu; request bodies
	closed     int      // guarded by mu; closed responses
	responded  int      // guarded by mu
	attempts   int      // guarded by mu
	discarded  int      // guarded by mu; calls of ResponseDiscarded
	unobserved int      // guarded by mu; attempts without a listener in the record
}

// scriptHost is the host of an attempt.
type scriptHost struct {
	testScope
	script *hedgeScript
}

func (h *scriptHost) ResponseDiscarded(*protocol.Exchange) {
	h.script.mu.Lock()
	defer h.script.mu.Unlock()
	h.script.discarded++
}

func (s *hedgeScript) logEvent(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%v ", time.Since(s.start))+fmt.Sprintf(format, args...))
}

// sortedLog returns the log sorted by time and then by text.
func (s *hedgeScript) sortedLog() []string {
	slices.SortFunc(s.log, func(a, b string) int {
		timeOf := func(line string) time.Duration {
			text, _, _ := strings.Cut(line, " ")
			d, _ := time.ParseDuration(text) // time.Duration printed it
			return d
		}
		return cmp.Or(cmp.Compare(timeOf(a), timeOf(b)), strings.Compare(a, b))
	})
	return s.log
}

// sharedBudget is a testBudget for concurrent use.
type sharedBudget struct {
	mu sync.Mutex
	testBudget
}

func (b *sharedBudget) BeginRetry() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.testBudget.BeginRetry()
}

func (b *sharedBudget) EndRetry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.testBudget.EndRetry()
}

func (s *hedgeScript) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, s)
}

// Serve simulates a cluster. It ends at deadlines, client disconnects and the end of ctx.
func (s *hedgeScript) Serve(ctx context.Context, x *protocol.Exchange) error {
	s.mu.Lock()
	n := s.attempts
	s.attempts++
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
		body, err := io.ReadAll(x.Request.Body)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.sent = append(s.sent, string(body))
		s.mu.Unlock()
	}
	outcome, delay, _ := strings.Cut(s.script[min(n, len(s.script)-1)], " at ")
	respond := make(<-chan time.Time)
	if delay != "" {
		d, err := time.ParseDuration(delay)
		if err != nil {
			panic(err)
		}
		respond = time.After(d)
	}
	disconnected := make(chan struct{})
	if x.Downstream != nil {
		defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
	}
	var timeout <-chan time.Time
	if deadline := x.EffectiveDeadline(); !deadline.IsZero() {
		timeout = time.After(time.Until(deadline))
	}
	select {
	case <-respond:
	case <-timeout:
		return protocol.NewFault(protocol.UpstreamTimeout, nil)
	case <-disconnected:
		s.logEvent("%s is canceled", name)
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil)
	case <-ctx.Done():
		s.logEvent("%s is canceled", name)
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil)
	}
	var status int
	if _, err := fmt.Sscan(outcome, &status); err != nil {
		reason := map[string]protocol.Reason{"reset": protocol.UpstreamReset, "full": protocol.Overflow, "refused": protocol.ConnectFailure}[outcome]
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

// scriptBody is a response body that sets a trailer at its end.
type scriptBody struct {
	protocol.Body
	script  *hedgeScript
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
	b.script.mu.Lock()
	defer b.script.mu.Unlock()
	b.script.closed++
	return nil
}

// disconnectAfter is a client that disconnects after a delay.
type disconnectAfter struct{ after time.Duration }

func (disconnectAfter) SendInterim(int, *protocol.Header) error { return nil }
func (d disconnectAfter) OnDisconnect(notify func()) func() {
	t := time.AfterFunc(d.after-disconnectWatchDelay, notify) // the hedge starts to watch after this delay
	return func() { t.Stop() }
}

// newHedgeScript returns a script for a cluster with size hosts.
func newHedgeScript(size int, script ...string) *hedgeScript {
	return &hedgeScript{script: script, cluster: scriptCluster{testScope: testScope{"app", size}}}
}

// newHedge returns the service of a route to the hosts, and the group of its background goroutines.
func (s *hedgeScript) newHedge(t *testing.T, f config.Forward, budget RetryBudget) (service protocol.Service, background *sync.WaitGroup) {
	t.Helper()
	return s.newHedgeTo(t, s, f, budget)
}

// newHedgeTo is newHedge with next between the hedge and the hosts.
func (s *hedgeScript) newHedgeTo(t *testing.T, next protocol.Service, f config.Forward, budget RetryBudget) (service protocol.Service, background *sync.WaitGroup) {
	t.Helper()
	background = new(sync.WaitGroup)
	route := routeOf(t, f)
	b := func(*protocol.Exchange) RetryBudget { return budget }
	h := Hedge(next, route, b, func(f func(context.Context)) { background.Go(func() { f(context.Background()) }) }).(*hedge)
	h.jitter = func(bound time.Duration) time.Duration { return bound }
	h.random = func(uint32) uint32 { return 499_999 }
	s.start = time.Now()
	return Timeout(h, route), background
}
