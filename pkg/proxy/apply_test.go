//arch:long tests of Apply share fixtures and are read together

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// directRoute returns a route that responds with a text.
func directRoute(text string) string {
	return `{"direct_response": {"status": 200, "body": "` + text + `"}}`
}

// freeAddress returns an address on which no socket listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// openFiles returns the number of open descriptors of this process for the file.
func openFiles(t *testing.T, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == path {
			n++
		}
	}
	return n
}

func TestFailedBindRollsBack(t *testing.T) {
	blocker, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	r, address := setup{routes: directRoute("old")}.run(t)
	conn := dialClient(t, address)
	conn.roundTrip(get("/"))
	previous := r.server.Running()

	log, other := filepath.Join(t.TempDir(), "access.log"), freeAddress(t)
	proxies := func(table string) string {
		return `"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "` + table + `"}}]}]`
	}
	err = r.server.Apply(t.Context(), config.FullDelta(parse(t, `{"servers": [{
		"listeners": [
			{"name": "front", "address": "127.0.0.1:0", "access_logs": [{"log_path": "`+log+`"}], `+proxies("new")+`},
			{"name": "other", "address": "`+other+`", "access_logs": [{"log_path": "`+log+`"}], `+proxies("new")+`},
			{"name": "taken", "address": "`+blocker.Addr().String()+`", `+proxies("new")+`},
			{"name": "bytes", "address": "`+freeAddress(t)+`", "filter_chains": [{"filters": [{"type": "tcp_proxy", "config": {"cluster": "app"}}]}]}],
		"routers": [{"router_config_name": "new", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [`+directRoute("new")+`]}]}]
	}], "cluster_manager": {"clusters": [`+cluster("app", "127.0.0.1:1")+`]}}`)))
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "taken") {
		t.Fatalf("Apply = %v, want %v for the listener taken", err, syscall.EADDRINUSE)
	}

	if got := conn.roundTrip(get("/")); got.body != "old" || got.Close {
		t.Errorf("existing connection: response %q, Close %t; want %q, false", got.body, got.Close, "old")
	}
	if got := roundTrip(t, address, get("/")); got.body != "old" {
		t.Errorf("new connection: response %q, want %q", got.body, "old")
	}
	if r.server.Running() != previous || len(r.server.Describe()) != 1 {
		t.Errorf("listeners: %v; want one, and the previous configuration", r.server.Describe())
	}
	if got := r.server.Clusters().Describe(); len(got) != 0 {
		t.Errorf("clusters: %v, want none", got)
	}
	if ln, err := net.Listen("tcp", other); err != nil {
		t.Errorf("the address of the other new listener was not released: %v", err)
	} else {
		_ = ln.Close()
	}
	if n := openFiles(t, log); n != 0 {
		t.Errorf("the new access log has %d open descriptors, want 0", n)
	}
	for _, name := range []string{"other", "taken", "bytes", "new"} {
		if r.exports(name) {
			t.Errorf("metrics of %q exist after the rollback", name)
		}
	}
	if err := r.server.Apply(t.Context(), config.FullDelta(setup{routes: directRoute("newer")}.snapshot(t))); err != nil {
		t.Errorf("the next Apply = %v", err)
	} else if got := conn.roundTrip(get("/")); got.body != "newer" {
		t.Errorf("after the next Apply: response %q, want %q", got.body, "newer")
	}
}

// exports reports whether a series of Weft has a label with that value.
func (r *rig) exports(value string) bool {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, pair := range m.GetLabel() {
				if pair.GetValue() == value && strings.HasPrefix(f.GetName(), "weft_") {
					return true
				}
			}
		}
	}
	return false
}

func TestApplyRejectsInvalidConfig(t *testing.T) {
	validConfig := func() *config.Snapshot { return setup{routes: directRoute("old")}.snapshot(t) }
	for name, test := range map[string]struct {
		change func(c *config.Snapshot)
		want   string
	}{
		"duplicate listener address": {func(c *config.Snapshot) {
			twin := *c.Listeners[0]
			twin.Name = "twin"
			c.Listeners = append(c.Listeners, &twin)
		}, `listener "twin": another listener has the address 127.0.0.1:0`},
		"unknown route table": {func(c *config.Snapshot) { c.Routes = nil }, `route table "table" is not defined`},
		"unsupported protocol": {func(c *config.Snapshot) {
			c.Listeners[0].FilterChains[0].Proxy.Downstream = []config.Protocol{config.Dubbo}
		},
			`downstream_protocol "dubbo" is not supported by this build`},
		"unsupported filter": {func(c *config.Snapshot) {
			c.Listeners[0].FilterChains[0].Proxy.StreamFilters = []config.Filter{{Name: "magic"}}
		}, `stream filter "magic" is not supported by this build`},
		"conflicting filter chains": {func(c *config.Snapshot) {
			c.Listeners[0].FilterChains = append(c.Listeners[0].FilterChains, c.Listeners[0].FilterChains[0])
		}, "filter chains 0 and 1 match the same connections"},
		"access log with an invalid format": {func(c *config.Snapshot) {
			c.Listeners[0].AccessLogs = []config.AccessLog{{Path: t.TempDir() + "/missing-directory/access.log", Format: "%no_such_variable%"}}
		}, "access log"},
		"duplicate cluster name": {func(c *config.Snapshot) {
			c.Clusters = []*config.Cluster{{Name: "a", LBPolicy: config.RoundRobin}, {Name: "a", LBPolicy: config.RoundRobin}}
		}, "cluster a is configured twice"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.apply(validConfig())
			invalidConfig := validConfig()
			test.change(invalidConfig)
			if err := r.server.Apply(t.Context(), config.FullDelta(invalidConfig)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Apply = %v, want an error that contains %q", err, test.want)
			}
			if got := roundTrip(t, r.address("front"), get("/")); got.body != "old" {
				t.Errorf("the previous configuration responds with %q, want %q", got.body, "old")
			}
			r.apply(validConfig())
		})
	}
}

func TestOpenConnectionUsesNewRoutes(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	c := dialClient(t, address)
	for _, text := range []string{"old", "new", "newer"} {
		r.apply(setup{routes: directRoute(text)}.snapshot(t))
		if got := c.roundTrip(get("/")); got.body != text || got.Close {
			t.Errorf("response %q, Close %t; want %q and an open connection", got.body, got.Close, text)
		}
	}
	if n := r.value("weft_listener_connections_accepted_total", "front"); n != 1 {
		t.Errorf("%v connections were accepted, want 1", n)
	}
}

// TestChangedEngineOptionsCloseConnections verifies that open connections serve one more request,
// with the new routes, and close, and that new connections use the new options.
func TestChangedEngineOptionsCloseConnections(t *testing.T) {
	r, address := setup{routes: directRoute("old"), proxy: `"extend_config": {"max_header_count": 3}`}.run(t)
	idle, used := dialClient(t, address), dialClient(t, address)
	used.roundTrip(get("/"))
	idle.roundTrip(get("/"))
	headers := []string{"a: 1", "b: 2", "c: 3", "d: 4"}
	if got := roundTrip(t, address, get("/", headers...)); got.StatusCode != 431 {
		t.Fatalf("with max_header_count 3: %d, want 431", got.StatusCode)
	}
	r.apply(setup{routes: directRoute("new"), proxy: `"extend_config": {"max_header_count": 10}`}.snapshot(t))
	if got := roundTrip(t, address, get("/", headers...)); got.StatusCode != 200 || got.body != "new" {
		t.Errorf("new connection: %d %q; want 200, %q", got.StatusCode, got.body, "new")
	}
	for _, c := range []*testClient{idle, used} {
		if got := c.roundTrip(get("/")); got.body != "new" || !got.Close {
			t.Errorf("open connection: response %q, Close %t; want %q and true", got.body, got.Close, "new")
		}
		if !c.ended() {
			t.Error("an open connection was not closed")
		}
	}
}

// blockingUpstream is an upstream that responds when the test sends to release or closes it.
type blockingUpstream struct {
	address string
	arrived chan struct{} // a request has arrived
	release chan struct{}
}

func newBlockingUpstream(t *testing.T, text string) *blockingUpstream {
	u := &blockingUpstream{arrived: make(chan struct{}, 100), release: make(chan struct{})}
	u.address = origin(t, func(w http.ResponseWriter, r *http.Request) {
		u.arrived <- struct{}{}
		select {
		case <-u.release:
			_, _ = io.WriteString(w, text)
		case <-r.Context().Done():
		}
	})
	return u
}

func TestRenamedListenerKeepsConnections(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	c := dialClient(t, address)
	c.roundTrip(get("/"))
	r.await(1, "weft_listener_requests_total", "front") // otherwise the request may count under the new name
	renamed := setup{routes: directRoute("new")}.snapshot(t)
	renamed.Listeners[0].Name = "porch"
	r.apply(renamed)
	if got := r.address("porch"); got != address {
		t.Errorf("the renamed listener is at %s, want %s", got, address)
	}
	r.until(func() bool { return !r.exports("front") }, func() { t.Error("metrics of the old name still exist") })
	r.await(1, "weft_listener_connections_active", "porch")
	if got := c.roundTrip(get("/")); got.body != "new" {
		t.Errorf("open connection: response %q, want new", got.body)
	}
	if got := roundTrip(t, address, get("/")); got.body != "new" {
		t.Errorf("new connection: response %q, want new", got.body)
	}
	r.await(2, "weft_listener_requests_total", "porch")
	r.await(2, "weft_listener_connections_accepted_total", "porch")
}

func TestListenerSwitchesBetweenTCPAndHTTP(t *testing.T) {
	app := origin(t, respondText("from the application"))
	httpSetup := setup{routes: directRoute("from weft"), clusters: cluster("app", app)}
	tcpConfig := parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
		"filter_chains": [{"filters": [{"type": "tcp_proxy", "config": {"cluster": "app"}}]}]}]}],
		"cluster_manager": {"clusters": [`+cluster("app", app)+`]}}`)
	r, address := httpSetup.run(t)
	c := dialClient(t, address)
	c.roundTrip(get("/"))
	for range 2 {
		r.apply(tcpConfig)
		if got := roundTrip(t, address, get("/")); got.body != "from the application" {
			t.Errorf("relayed response %q, want %q", got.body, "from the application")
		}
		if got := c.roundTrip(get("/")); got.body != "from weft" || !got.Close {
			t.Errorf("existing connection: response %q, Close %t; want %q, true", got.body, got.Close, "from weft")
		}
		r.apply(httpSetup.snapshot(t))
		if got := roundTrip(t, address, get("/")); got.body != "from weft" {
			t.Errorf("response %q, want %q", got.body, "from weft")
		}
		c = dialClient(t, address)
		c.roundTrip(get("/"))
	}
}

func TestAccessLogsCloseAfterLastExchange(t *testing.T) {
	dir := t.TempDir()
	withLog := func(name string) setup {
		return setup{routes: directRoute(name), listener: `"access_logs": [{"log_path": "` + dir + "/" + name + `", "log_format": "%path%"}]`}
	}
	r, address := withLog("a").run(t)
	c := dialClient(t, address)
	c.roundTrip(get("/1"))
	r.apply(withLog("b").snapshot(t))
	c.roundTrip(get("/2"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_ = c.Close()
	r.server.Drain(ctx)
	for name, want := range map[string]string{"a": "/1\n", "b": "/2\n"} {
		path := filepath.Join(dir, name)
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("access log %s has %q, %v; want %q", name, text, err, want)
		}
		if n := openFiles(t, path); n != 0 {
			t.Errorf("access log %s has %d open descriptors, want 0", name, n)
		}
	}
}

// TestNoRequestIsLostWhileConfigurationsChange verifies that no request fails while several
// goroutines apply configurations that add and remove clusters.
func TestNoRequestIsLostWhileConfigurationsChange(t *testing.T) {
	one, two := origin(t, respondText("one")), origin(t, respondText("two"))
	configs := []setup{
		{routes: routeTo("one"), clusters: cluster("one", one)},
		{routes: routeTo("two"), clusters: cluster("two", two)},
		{routes: routeTo("one"), clusters: cluster("one", one, two), filters: `{"type": "header_mutation"}`},
		{routes: routeTo("two"), clusters: cluster("two", two), proxy: `"extend_config": {"max_header_count": 50}`},
	}
	r, address := configs[0].run(t)
	stop := make(chan struct{})
	var clients, appliers sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		clients.Go(func() {
			counts[i] = requestUntil(t, address, stop)
		})
	}
	for i := range 2 {
		appliers.Go(func() {
			for n := range 40 {
				if err := r.server.Apply(context.Background(), config.FullDelta(configs[(n+i)%len(configs)].snapshot(t))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	appliers.Wait()
	close(stop)
	clients.Wait()
	for i, n := range counts {
		if n == 0 {
			t.Errorf("client %d got no response", i)
		}
	}
	if got := r.value("weft_listener_request_failures_total"); got != 0 {
		t.Errorf("%v requests failed, want 0", got)
	}
}

// requestUntil sends requests one at a time until stop is closed and returns their number. It opens
// a new connection only after a response with Connection: close.
func requestUntil(t *testing.T, address string, stop <-chan struct{}) (n int) {
	c := dialClient(t, address)
	for {
		select {
		case <-stop:
			_ = c.Close()
			return n
		default:
		}
		got := c.roundTrip(get("/"))
		if got.StatusCode != 200 {
			t.Errorf("request %d: %d %q, want 200", n, got.StatusCode, got.body)
			return n
		}
		n++
		if got.Close {
			_ = c.Close()
			c = dialClient(t, address)
		}
	}
}

// blockingFilter is a filter before the router that signals each request and blocks requests for
// /held until release is closed.
type blockingFilter struct{ arrived, release chan struct{} }

func newBlockingFilter() *blockingFilter {
	return &blockingFilter{arrived: make(chan struct{}, 100), release: make(chan struct{})}
}

func (f *blockingFilter) factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name: "blocking", Stage: filter.BeforeRoute,
		Config: func() any { return new(struct{}) },
		New: func(any, filter.Env) (filter.Filter, error) {
			return func(next protocol.Service) protocol.Service {
				return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					f.arrived <- struct{}{}
					if x.Request.Path == "/held" {
						<-f.release
					}
					return x.Serve(ctx, next)
				})
			}, nil
		},
	}
}

// TestInFlightRequestKeepsRemovedCluster verifies that a request in flight keeps its cluster while
// three newer configurations remove, restore and remove the cluster.
func TestInFlightRequestKeepsRemovedCluster(t *testing.T) {
	one, two := origin(t, respondText("one")), origin(t, respondText("two"))
	f := newBlockingFilter()
	first := setup{filters: `{"type": "blocking"}`, routes: routeTo("one"), clusters: cluster("one", one)}
	second := setup{filters: `{"type": "blocking"}`, routes: routeTo("two"), clusters: cluster("two", two)}
	r, address := first.run(t, f.factory())
	c := dialClient(t, address)
	c.send(get("/held"))
	<-f.arrived
	for _, s := range []setup{second, first, second} {
		r.apply(s.snapshot(t, f.factory()))
		if got := roundTrip(t, address, get("/")); got.StatusCode != 200 {
			t.Errorf("status %d, body %q; want 200", got.StatusCode, got.body)
		}
	}
	close(f.release)
	if got := c.read("GET "); got.body != "one" {
		t.Errorf("status %d, body %q; want body %q", got.StatusCode, got.body, "one")
	}
	r.until(func() bool { return !r.exports("one") }, func() { t.Error("the removed cluster still exports metrics") })
}

func TestFilterPanicFailsOnlyItsExchange(t *testing.T) {
	panicking := filter.StreamFilterFactory{
		Name: "panic", Stage: filter.AfterRoute,
		Config: func() any { return new(mark) },
		New: func(any, filter.Env) (filter.Filter, error) {
			return func(next protocol.Service) protocol.Service {
				return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					if x.Request.Path == "/panic" {
						panic("secret")
					}
					return x.Serve(ctx, next)
				})
			}, nil
		},
	}
	r, address := setup{filters: `{"type": "panic"}`, routes: directRoute("well")}.run(t, panicking)
	c := dialClient(t, address)
	if got := c.roundTrip(get("/panic")); got.StatusCode != 500 || strings.Contains(got.body, "secret") {
		t.Errorf("%d %q, want 500", got.StatusCode, got.body)
	}
	if got := c.roundTrip(get("/")); got.body != "well" {
		t.Errorf("next request on the connection: response %q, want %q", got.body, "well")
	}
	if n := r.value("weft_panics_total"); n != 1 {
		t.Errorf("%v panics were counted, want 1", n)
	}
	r.await(0, "weft_listener_requests_active")
}

func TestConnectionsOfTCPProxyAreCounted(t *testing.T) {
	app := origin(t, respondText("x"))
	r := newRig(t)
	r.apply(parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
		"filter_chains": [{"filters": [{"type": "tcp_proxy", "config": {"cluster": "app"}}]}]}]}],
		"cluster_manager": {"clusters": [`+cluster("app", app)+`]}}`))
	c := dialClient(t, r.address("front"))
	c.roundTrip(get("/"))
	for _, name := range []string{"weft_listener_connections_active", "weft_cluster_connections_active", "weft_cluster_requests_active"} {
		r.await(1, name)
	}
	if got := r.server.Clusters().Describe()[0]; got.InFlight != 1 || got.Hosts[0].InFlight != 1 {
		t.Errorf("in flight: cluster %d, host %d; want 1 each", got.InFlight, got.Hosts[0].InFlight)
	}
	_ = c.Close()
	r.await(0, "weft_cluster_requests_active")
}
