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

// fakeCluster is a cluster that records the copies that it receives as text.
type fakeCluster struct {
	err error // error of Start; nil: a 200 response

	mu     sync.Mutex
	copies []string
	hosts  []string // for each copy, the hosts of earlier attempts
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
	if remaining := time.Until(x.Deadline); remaining <= 0 || remaining > time.Minute {
		return errors.New("the copy has no deadline")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies = append(s.copies, b.String())
	var hosts []string
	for _, a := range x.Record.Attempts {
		hosts = append(hosts, a.Host.Name())
	}
	s.hosts = append(s.hosts, strings.Join(hosts, ","))
	x.Record.Attempts = append(x.Record.Attempts, protocol.Attempt{Host: namedScope(string(rune('a' + len(hosts))))})
	if s.err != nil {
		return s.err
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
func serveAndWait(t *testing.T, s filtertest.Settings, cluster *fakeCluster, hosts int, x *protocol.Exchange) *filtertest.Probe {
	t.Helper()
	clusters := &filtertest.ClusterClient{
		Clusters:   map[string]protocol.Service{"shadow": cluster, "canary": cluster},
		HostCounts: map[string]int{"shadow": hosts, "canary": hosts},
	}
	f, counts := filtertest.BuildWith(t, Factory(), s, clusters)
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if x.Request.Body != nil {
			if length := x.Request.ContentLength; length >= 0 { // as an engine reads it
				_, err := io.CopyN(io.Discard, x.Request.Body, length)
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
	if err := x.Serve(t.Context(), f(app)); err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(x.Response.Body); err != nil || string(body) != "from the application" {
		t.Errorf("the client received %q, %v; want %q", body, err, "from the application")
	}
	x.Reset() // copies must not refer to x
	clusters.Wait()
	return counts
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	for i, want := range []int{2, 3, 0} {
		cluster := new(fakeCluster)
		serveAndWait(t, examples[i], cluster, 3, newPOST("x", true))
		if len(cluster.copies) != want {
			t.Errorf("%s: %d copies were sent, want %d", examples[i], len(cluster.copies), want)
		}
	}
}

func TestRequestsAreCopied(t *testing.T) {
	const wantCopy = "POST shop.test/buy?n=1 X-A:1"
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		x        *protocol.Exchange
		change   func(*protocol.Request)
		want     string // copies, joined with ";"
	}{
		{"body", `{"cluster": "shadow"}`, newPOST("book", true), nil, wantCopy + " [book]"},
		{"unknown length", `{"cluster": "shadow"}`, newPOST("book", false), nil, wantCopy + " [book]"},
		{"trailers", `{"cluster": "shadow"}`, newPOST("book", false), func(r *protocol.Request) { r.Trailer.Add("Sum", "4") }, wantCopy + " [book] Sum:4"},
		{"no body", `{"cluster": "shadow"}`, newPOST("", false), func(r *protocol.Request) { r.Body = nil }, wantCopy},
		{"empty body", `{"cluster": "shadow"}`, newPOST("", true), nil, wantCopy},
		{"at max_body_size", `{"cluster": "shadow", "max_body_size": 4}`, newPOST("book", true), nil, wantCopy + " [book]"},
		{"amplification", `{"cluster": "shadow", "amplification": 3}`, newPOST("x", true), nil, wantCopy + " [x];" + wantCopy + " [x];" + wantCopy + " [x]"},
		{"no cluster", `{}`, newPOST("book", true), nil, ""},
		{"0 percent", `{"cluster": "shadow", "percent": 0}`, newPOST("book", true), nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change != nil {
				test.change(&test.x.Request)
			}
			cluster := new(fakeCluster)
			counts := serveAndWait(t, test.settings, cluster, 1, test.x)
			if got := strings.Join(cluster.copies, ";"); got != test.want {
				t.Errorf("the cluster received %q, want %q", got, test.want)
			}
			if n := counts.Value(copiesMetric()); n != float64(len(cluster.copies)) {
				t.Errorf("counter = %v, want %v", n, float64(len(cluster.copies)))
			}
		})
	}
}

// TestCopiesGoToSeveralClusters verifies that each cluster gets its fraction of the requests,
// independently of the copies to other clusters.
func TestCopiesGoToSeveralClusters(t *testing.T) {
	const wantCopy = "POST shop.test/buy?n=1 X-A:1 [book]"
	for _, test := range []struct {
		name, settings string
		declared       bool
		want           string // copies to shadow, "|", copies to canary
	}{
		{"both", `{"cluster": "shadow", "more": [{"cluster": "canary"}]}`, false, wantCopy + "|" + wantCopy},
		{"both, declared length", `{"cluster": "shadow", "more": [{"cluster": "canary"}]}`, true, wantCopy + "|" + wantCopy},
		{"same cluster twice", `{"cluster": "canary", "more": [{"cluster": "canary"}]}`, true, "|" + wantCopy + ";" + wantCopy},
		{"only in more", `{"more": [{"cluster": "canary"}]}`, true, "|" + wantCopy},
		{"some with 0 percent", `{"cluster": "shadow", "percent": 0, "more": [{"cluster": "canary"}, {"cluster": "shadow", "percent": 0}]}`, true, "|" + wantCopy},
		{"first fails", `{"cluster": "missing", "more": [{"cluster": "canary"}]}`, true, "|" + wantCopy},
		{"several copies each", `{"cluster": "shadow", "amplification": 2, "more": [{"cluster": "canary"}]}`, true, wantCopy + ";" + wantCopy + "|" + wantCopy + ";" + wantCopy},
	} {
		t.Run(test.name, func(t *testing.T) {
			first, second := new(fakeCluster), new(fakeCluster)
			clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": first, "canary": second}}
			f, _ := filtertest.BuildWith(t, Factory(), filtertest.Settings(test.settings), clusters)
			app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				_, err := io.Copy(io.Discard, x.Request.Body)
				return err
			})
			x := newPOST("book", test.declared)
			if err := x.Serve(t.Context(), f(app)); err != nil {
				t.Fatal(err)
			}
			x.Reset()
			clusters.Wait()
			if got := strings.Join(first.copies, ";") + "|" + strings.Join(second.copies, ";"); got != test.want {
				t.Errorf("the clusters received %q, want %q", got, test.want)
			}
		})
	}
}

// TestSlowClusterDoesNotBlockOthers verifies that only the slow cluster reaches
// max_in_flight.
func TestSlowClusterDoesNotBlockOthers(t *testing.T) {
	unblock := make(chan struct{})
	slow := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		<-unblock
		x.LocalReply(200, "", "")
		return nil
	})
	arrived := make(chan struct{})
	fast := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "", "")
		arrived <- struct{}{}
		return nil
	})
	clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"slow": slow, "fast": fast}}
	f, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "slow", "max_in_flight": 2, "more": [{"cluster": "fast"}]}`, clusters)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	for range 5 {
		if err := newPOST("", true).Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		<-arrived
	}
	if n := counts.Value(skippedMetric()); n < 3 {
		t.Errorf("%v requests were not copied to the slow cluster, want at least 3", n)
	}
	close(unblock)
	clusters.Wait()
}

func TestSkippedRequestsAreCounted(t *testing.T) {
	for _, test := range []struct {
		name   string
		x      *protocol.Exchange
		change func(*protocol.Request)
	}{
		{"declared length too large", newPOST("books", true), nil},
		{"body too large", newPOST("books", false), nil},
		{"tunnel", newPOST("", true), func(r *protocol.Request) { r.Method = "CONNECT" }},
		{"upgrade", newPOST("", true), func(r *protocol.Request) { r.Upgrade = "websocket" }},
		{"call without a frame", newPOST("", true), func(r *protocol.Request) { r.Method = "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change != nil {
				test.change(&test.x.Request)
			}
			cluster := new(fakeCluster)
			counts := serveAndWait(t, `{"cluster": "shadow", "max_body_size": 4}`, cluster, 1, test.x)
			if n := counts.Value(skippedMetric()); n != 1 || len(cluster.copies) != 0 {
				t.Errorf("counter = %v, %d copies; want 1 and 0", n, len(cluster.copies))
			}
		})
	}
}

// TestBroadcastsGoToEachHost verifies that each copy has the hosts of the earlier copies in its
// record.
func TestBroadcastsGoToEachHost(t *testing.T) {
	cluster := new(fakeCluster)
	serveAndWait(t, `{"cluster": "shadow", "broadcast": true}`, cluster, 3, newPOST("x", true))
	if want := []string{"", "a", "a,b"}; !slices.Equal(cluster.hosts, want) {
		t.Errorf("hosts of earlier attempts: %q, want %q", cluster.hosts, want)
	}
}

func TestFailedCopiesAreCounted(t *testing.T) {
	cluster := &fakeCluster{err: protocol.NewFault(protocol.UpstreamReset, errors.New("broken"))}
	for _, s := range []filtertest.Settings{`{"cluster": "shadow"}`, `{"cluster": "missing"}`, `{"cluster": "missing", "broadcast": true}`} {
		if n := serveAndWait(t, s, cluster, 1, newPOST("x", true)).Value(copiesMetric()); n != 1 {
			t.Errorf("%s: %v failed, want 1", s, n)
		}
	}
}

// TestPercent verifies that the filter copies about half of the requests at 50 percent. For 1000
// requests, the bounds 400 and 600 are six standard deviations from the mean.
func TestPercent(t *testing.T) {
	cluster := new(fakeCluster)
	clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": cluster}}
	f, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow", "percent": 50, "max_in_flight": 1000}`, clusters)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	for range 1000 {
		if err := newPOST("", true).Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	clusters.Wait()
	if n := counts.Value(copiesMetric()); n < 400 || n > 600 {
		t.Errorf("%v of 1000 requests were copied, want 400 to 600", n)
	}
}

// TestSlowShadowDoesNotDelayRequests verifies that requests do not wait for their copies, and that
// requests beyond max_in_flight are not copied.
func TestSlowShadowDoesNotDelayRequests(t *testing.T) {
	arrived, unblock := make(chan struct{}, 10), make(chan struct{})
	slow := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		arrived <- struct{}{}
		<-unblock
		x.LocalReply(200, "", "")
		return nil
	})
	clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": slow}}
	f, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow", "max_in_flight": 2}`, clusters)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
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
	close(unblock)
	clusters.Wait()
	if err := newPOST("", true).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	clusters.Wait()
	if n := counts.Value(copiesMetric()); n != 3 {
		t.Errorf("%v copies were sent, want 3", n)
	}
}

// cancelingClient is a ClusterClient whose Go cancels the context with the first copy.
type cancelingClient struct{ filtertest.ClusterClient }

func (e *cancelingClient) Go(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	e.Clusters = map[string]protocol.Service{"shadow": protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		cancel()
		x.LocalReply(200, "", "")
		return nil
	})}
	f(ctx)
}

func TestCopiesStopWhenContextEnds(t *testing.T) {
	f, counts := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow", "amplification": 1000}`, new(cancelingClient))
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	if err := newPOST("", true).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := counts.Value(copiesMetric()); n != 1 {
		t.Errorf("%v copies were sent, want 1", n)
	}
}

// TestRewoundBodyIsCopiedOnce verifies that a rewound body is copied once and complete.
func TestRewoundBodyIsCopiedOnce(t *testing.T) {
	cluster := new(fakeCluster)
	clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"shadow": cluster}}
	f, _ := filtertest.BuildWith(t, Factory(), `{"cluster": "shadow"}`, clusters)
	s := f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		body := x.Request.Body
		_, _ = body.Read(make([]byte, 2)) // an attempt that fails in the middle of the body
		for range 2 {
			if r, ok := body.(protocol.Rewinder); !ok || !r.Rewind() {
				t.Fatal("Rewind failed")
			}
			if got, err := io.ReadAll(body); err != nil || string(got) != "book" {
				t.Errorf("the application received %q, %v; want %q", got, err, "book")
			}
		}
		return nil
	}))
	if err := newPOST("book", false).Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	clusters.Wait()
	if len(cluster.copies) != 1 || !strings.HasSuffix(cluster.copies[0], "[book]") {
		t.Errorf("the cluster received %q, want one request that ends with [book]", cluster.copies)
	}
}

// TestPolicyInheritsCopies verifies that request_mirror_policies without broadcast and
// amplification has those of the listener's filter, and that per_filter_config replaces them.
func TestPolicyInheritsCopies(t *testing.T) {
	factory := Factory()
	listener := filtertest.Decode(t, factory, `{"broadcast": true, "percent": 5}`)
	policy := func() *Config {
		return filtertest.Decode(t, factory, `{"cluster": "shadow", "percent": 100}`).(*Config)
	}
	if got := factory.Inherit(listener, policy()).(*Config); got.Broadcast || got.Cluster != "shadow" {
		t.Errorf("settings of per_filter_config: %+v, want those of the route only", got)
	}
	c := policy()
	c.InheritCopies()
	if got := factory.Inherit(listener, c).(*Config); !got.Broadcast || got.Cluster != "shadow" || got.Percent != 100 || c.Broadcast {
		t.Errorf("settings of request_mirror_policies: %+v, want those of the route with broadcast", got)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"percent too large":           {`{"cluster": "a", "percent": 101}`, "percent"},
		"no copies":                   {`{"cluster": "a", "amplification": 0}`, "amplification"},
		"amplification and broadcast": {`{"cluster": "a", "amplification": 2, "broadcast": true}`, "warning: amplification: amplification has no effect together with broadcast"},
		"unknown protocol":            {`{"cluster": "a", "upstream_protocol": "Http3"}`, "upstream_protocol"},
		"no cluster in more":          {`{"more": [{"percent": 1}]}`, "cluster"},
		"no timeout":                  {`{"cluster": "a", "timeout": "0s"}`, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestRequestsThatAreNotCopiedDoNotAllocate(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"cluster": "shadow", "max_body_size": 1}`)
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	x := newPOST("large", true)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = x.Serve(ctx, s) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}
