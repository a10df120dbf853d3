package mirror

import (
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// fakeCluster is a cluster that records the copies that it gets as text.
type fakeCluster struct {
	fails error // error of Serve; nil: a 200 response

	mu    sync.Mutex
	got   []string
	hosts []string // for each copy, the hosts of earlier attempts
}

type namedScope string

func (p namedScope) Name() string { return string(p) }

func (p namedScope) ResponseDiscarded(*protocol.Exchange) {}

func (s *fakeCluster) Start(_ context.Context, x *protocol.Exchange) error {
	var b strings.Builder
	b.WriteString(x.Request.Method + " " + x.Request.Authority + x.Request.Path)
	for name, value := range x.Request.Header.All() {
		b.WriteString(" " + name + ":" + value)
	}
	if x.Request.Body != nil {
		content, err := io.ReadAll(x.Request.Body)
		if err != nil {
			return err
		}
		b.WriteString(" [" + string(content) + "]")
	}
	for name, value := range x.Request.Trailer.All() {
		b.WriteString(" " + name + ":" + value)
	}
	if left := time.Until(x.Deadline); left <= 0 || left > time.Minute {
		return errors.New("the copy has no deadline")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, b.String())
	var before []string
	for _, a := range x.Record.Attempts {
		before = append(before, a.Host.Name())
	}
	s.hosts = append(s.hosts, strings.Join(before, ","))
	x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{Host: namedScope(string(rune('a' + len(before))))})
	if s.fails != nil {
		return s.fails
	}
	x.LocalReply(200, "text/plain", "forgotten")
	return nil
}

// newPOST returns an HTTP request with a body, with or without a declared length.
func newPOST(content string, declared bool) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Protocol = "Http1"
	x.Request.Method, x.Request.Authority, x.Request.Path = "POST", "shop.test", "/buy?n=1"
	x.Request.Header.Add("X-A", "1")
	x.Request.Body = protocol.NewStringBody(content)
	if declared {
		x.Request.ContentLength = int64(len(content))
	}
	return x
}

// serveAndWait serves x with an application that reads the body, waits for all copies, and returns
// the counts of the filter.
func serveAndWait(t *testing.T, s filtertest.Settings, to *fakeCluster, hosts int, x *protocol.Exchange) *filtertest.Counts {
	t.Helper()
	calls := &filtertest.ClusterClient{
		Clusters:   map[string]protocol.Service{"shadow": to, "canary": to},
		HostCounts: map[string]int{"shadow": hosts, "canary": hosts},
	}
	made, counts := filtertest.BuildWith(t, Factory(), s, calls)
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if x.Request.Body != nil {
			if left := x.Request.ContentLength; left >= 0 { // as an engine reads it
				_, err := io.CopyN(io.Discard, x.Request.Body, left)
				if err != nil {
					return err
				}
			} else if _, err := io.Copy(io.Discard, x.Request.Body); err != nil {
				return err
			}
		}
		x.LocalReply(200, "text/plain", "from the application")
		return nil
	})
	if err := x.Serve(t.Context(), made(app)); err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(x.Response.Body); err != nil || string(body) != "from the application" {
		t.Errorf("the client got %q, %v", body, err)
	}
	x.Reset() // copies must not refer to x
	calls.Wait()
	return counts
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	for i, want := range []int{2, 3, 0} {
		to := new(fakeCluster)
		serveAndWait(t, examples[i], to, 3, newPOST("x", true))
		if len(to.got) != want {
			t.Errorf("of %s %d copies were sent, want %d", examples[i], len(to.got), want)
		}
	}
}

func TestRequestsAreCopied(t *testing.T) {
	const whole = "POST shop.test/buy?n=1 X-A:1"
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		x        *protocol.Exchange
		change   func(*protocol.Request)
		want     string // copies, joined with ";"
	}{
		{"with content", `{"cluster": "shadow"}`, newPOST("book", true), nil, whole + " [book]"},
		{"of unknown length", `{"cluster": "shadow"}`, newPOST("book", false), nil, whole + " [book]"},
		{"with trailers", `{"cluster": "shadow"}`, newPOST("book", false), func(r *protocol.Request) { r.Trailer.Add("Sum", "4") }, whole + " [book] Sum:4"},
		{"without content", `{"cluster": "shadow"}`, newPOST("", false), func(r *protocol.Request) { r.Body = nil }, whole},
		{"of no length", `{"cluster": "shadow"}`, newPOST("", true), nil, whole},
		{"as large as may be", `{"cluster": "shadow", "max_body_size": 4}`, newPOST("book", true), nil, whole + " [book]"},
		{"several times", `{"cluster": "shadow", "amplification": 3}`, newPOST("x", true), nil, whole + " [x];" + whole + " [x];" + whole + " [x]"},
		{"no cluster", `{}`, newPOST("book", true), nil, ""},
		{"of none of them", `{"cluster": "shadow", "percent": 0}`, newPOST("book", true), nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change != nil {
				test.change(&test.x.Request)
			}
			to := new(fakeCluster)
			counts := serveAndWait(t, test.settings, to, 1, test.x)
			if got := strings.Join(to.got, ";"); got != test.want {
				t.Errorf("the shadow got %q, want %q", got, test.want)
			}
			if n := counts.Value(copiesMetric()); n != float64(len(to.got)) {
				t.Errorf("%v copies are counted", n)
			}
		})
	}
}

// TestCopiesGoToSeveralClusters verifies that each cluster gets its fraction of the requests,
// independently of the copies to other clusters.
func TestCopiesGoToSeveralClusters(t *testing.T) {
	const whole = "POST shop.test/buy?n=1 X-A:1 [book]"
	for _, test := range []struct {
		name, settings string
		declared       bool
		want           string // copies to shadow, "|", copies to canary
	}{
		{"both", `{"cluster": "shadow", "more": [{"cluster": "canary"}]}`, false, whole + "|" + whole},
		{"both, of a length", `{"cluster": "shadow", "more": [{"cluster": "canary"}]}`, true, whole + "|" + whole},
		{"one twice", `{"cluster": "canary", "more": [{"cluster": "canary"}]}`, true, "|" + whole + ";" + whole},
		{"one by more alone", `{"more": [{"cluster": "canary"}]}`, true, "|" + whole},
		{"one of them of nothing", `{"cluster": "shadow", "percent": 0, "more": [{"cluster": "canary"}, {"cluster": "shadow", "percent": 0}]}`, true, "|" + whole},
		{"one that fails before the other", `{"cluster": "missing", "more": [{"cluster": "canary"}]}`, true, "|" + whole},
		{"several copies each", `{"cluster": "shadow", "amplification": 2, "more": [{"cluster": "canary"}]}`, true, whole + ";" + whole + "|" + whole + ";" + whole},
	} {
		t.Run(test.name, func(t *testing.T) {
			first, second := new(fakeCluster), new(fakeCluster)
			calls := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": first, "canary": second}}
			made, _ := filtertest.BuildWith(t, Factory(), filtertest.Settings(test.settings), calls)
			app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				_, err := io.Copy(io.Discard, x.Request.Body)
				return err
			})
			x := newPOST("book", test.declared)
			if err := x.Serve(t.Context(), made(app)); err != nil {
				t.Fatal(err)
			}
			x.Reset()
			calls.Wait()
			if got := strings.Join(first.got, ";") + "|" + strings.Join(second.got, ";"); got != test.want {
				t.Errorf("the clusters got %q, want %q", got, test.want)
			}
		})
	}
}

// TestSlowClusterDoesNotBlockOthers verifies that only the slow cluster reaches
// max_in_flight.
func TestSlowClusterDoesNotBlockOthers(t *testing.T) {
	let := make(chan struct{})
	slow := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		<-let
		x.LocalReply(200, "", "")
		return nil
	})
	arrived := make(chan struct{})
	fast := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "", "")
		arrived <- struct{}{}
		return nil
	})
	calls := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"slow": slow, "fast": fast}}
	made, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "slow", "max_in_flight": 2, "more": [{"cluster": "fast"}]}`, calls)
	s := made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	for range 5 {
		if err := newPOST("", true).Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		<-arrived
	}
	if n := counts.Value(skippedMetric()); n < 3 {
		t.Errorf("%v copies were not made, want 3 of the slow cluster's", n)
	}
	close(let)
	calls.Wait()
}

func TestSkippedRequestsAreCounted(t *testing.T) {
	for _, test := range []struct {
		name   string
		x      *protocol.Exchange
		change func(*protocol.Request)
	}{
		{"too large by its length", newPOST("books", true), nil},
		{"too large, as is found", newPOST("books", false), nil},
		{"a tunnel", newPOST("", true), func(r *protocol.Request) { r.Method = "CONNECT" }},
		{"an upgrade", newPOST("", true), func(r *protocol.Request) { r.Upgrade = "websocket" }},
		{"a call without a frame", newPOST("", true), func(r *protocol.Request) { r.Method = "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change != nil {
				test.change(&test.x.Request)
			}
			to := new(fakeCluster)
			counts := serveAndWait(t, `{"cluster": "shadow", "max_body_size": 4}`, to, 1, test.x)
			if n := counts.Value(skippedMetric()); n != 1 || len(to.got) != 0 {
				t.Errorf("%v are counted, and %d were copied", n, len(to.got))
			}
		})
	}
}

// TestBroadcastsGoToEachHost verifies that each copy knows the hosts of the copies before it.
func TestBroadcastsGoToEachHost(t *testing.T) {
	to := new(fakeCluster)
	serveAndWait(t, `{"cluster": "shadow", "broadcast": true}`, to, 3, newPOST("x", true))
	if want := []string{"", "a", "a,b"}; !slices.Equal(to.hosts, want) {
		t.Errorf("before the copies these hosts had one: %q, want %q", to.hosts, want)
	}
}

func TestFailedCopiesAreCounted(t *testing.T) {
	to := &fakeCluster{fails: protocol.NewFault(protocol.UpstreamReset, errors.New("broken"))}
	for _, s := range []filtertest.Settings{`{"cluster": "shadow"}`, `{"cluster": "missing"}`, `{"cluster": "missing", "broadcast": true}`} {
		if n := serveAndWait(t, s, to, 1, newPOST("x", true)).Value(copiesMetric()); n != 1 {
			t.Errorf("%s: %v failed, want 1", s, n)
		}
	}
}

// TestPercent verifies percent. For 1000 requests at 50 percent, the bounds 400 and 600 are
// six standard deviations from the mean.
func TestPercent(t *testing.T) {
	to := new(fakeCluster)
	calls := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": to}}
	made, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow", "percent": 50, "max_in_flight": 1000}`, calls)
	s := made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	for range 1000 {
		if err := newPOST("", true).Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	calls.Wait()
	if n := counts.Value(copiesMetric()); n < 400 || n > 600 {
		t.Errorf("%v of 1000 requests were copied at 50 percent", n)
	}
}

// TestSlowShadowDoesNotDelayRequests verifies that requests do not wait for their copies, and that
// requests beyond max_in_flight are not copied.
func TestSlowShadowDoesNotDelayRequests(t *testing.T) {
	arrived, let := make(chan struct{}, 10), make(chan struct{})
	slow := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		arrived <- struct{}{}
		<-let
		x.LocalReply(200, "", "")
		return nil
	})
	calls := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": slow}}
	made, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow", "max_in_flight": 2}`, calls)
	s := made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	for range 5 {
		if err := newPOST("", true).Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		<-arrived
	}
	if n := counts.Value(skippedMetric()); n != 3 {
		t.Errorf("%v requests were not copied, want 3", n)
	}
	close(let)
	calls.Wait()
	if err := newPOST("", true).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	if n := counts.Value(copiesMetric()); n != 3 {
		t.Errorf("%v copies were sent, want 3", n)
	}
}

// cancelingClient is a ClusterClient whose Go cancels the context with the first copy.
type cancelingClient struct{ filtertest.ClusterClient }

func (e *cancelingClient) Go(f func(ctx context.Context)) {
	ctx, end := context.WithCancel(context.Background())
	e.Clusters = map[string]protocol.Service{"shadow": protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		end()
		x.LocalReply(200, "", "")
		return nil
	})}
	f(ctx)
}

func TestCopiesStopWhenContextEnds(t *testing.T) {
	made, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow", "amplification": 1000}`, new(cancelingClient))
	s := made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	if err := newPOST("", true).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := counts.Value(copiesMetric()); n != 1 {
		t.Errorf("%v copies were sent, want 1", n)
	}
}

// TestRewoundBodyIsCopiedOnce verifies that a rewound body is copied once and complete.
func TestRewoundBodyIsCopiedOnce(t *testing.T) {
	to := new(fakeCluster)
	calls := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": to}}
	made, _ := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow"}`, calls)
	s := made(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		body := x.Request.Body
		_, _ = body.Read(make([]byte, 2)) // an attempt that fails in the middle of the body
		for range 2 {
			if r, ok := body.(protocol.Rewinder); !ok || !r.Rewind() {
				t.Fatal("the content cannot be read again")
			}
			if got, err := io.ReadAll(body); err != nil || string(got) != "book" {
				t.Errorf("the application got %q, %v", got, err)
			}
		}
		return nil
	}))
	if err := newPOST("book", false).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	if len(to.got) != 1 || !strings.HasSuffix(to.got[0], "[book]") {
		t.Errorf("the shadow got %q", to.got)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"a share above all":            {`{"cluster": "a", "percent": 101}`, "percent"},
		"no copies":                    {`{"cluster": "a", "amplification": 0}`, "amplification"},
		"both ways to have several":    {`{"cluster": "a", "amplification": 2, "broadcast": true}`, "broadcast"},
		"a protocol that has no name":  {`{"cluster": "a", "upstream_protocol": "Http3"}`, "upstream_protocol"},
		"a further one without a name": {`{"more": [{"percent": 1}]}`, "cluster"},
		"no time":                      {`{"cluster": "a", "timeout": "0s"}`, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestRequestsThatAreNotCopiedDoNotAllocate(t *testing.T) {
	made, _ := filtertest.Build(t, Factory(), `{"cluster": "shadow", "max_body_size": 1}`)
	s := made(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	x := newPOST("large", true)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = x.Serve(ctx, s) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}
