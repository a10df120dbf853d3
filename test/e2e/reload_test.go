package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// configSeries generates configurations. They differ in routes, clusters, hosts, options of the
// listener and the engine, filters, access logs, and the listeners themselves. Some of these change
// only after two or five generations.
type configSeries struct {
	dir          string
	front, extra string // addresses
	apps         []*origin
	admin        string
}

func (g *configSeries) config(n int) object {
	hosts := func(first int) []string { // two of the three upstreams, starting at first
		return []string{g.apps[first%3].address, g.apps[(first+1)%3].address}
	}
	name := fmt.Sprintf("app-%d", n%4)
	limits := object{"max_header_size": 16<<10 + n/2*1024, "via": fmt.Sprintf("weft-%d", n/2)} // changes with every second generation
	s := setup{
		admin: g.admin,
		listeners: list{httpListenerWith("front", g.front, limits, object{
			"max_connections":         1000 + n,
			"connection_idle_timeout": fmt.Sprintf("%ds", 60+n/5),
			"access_logs": list{object{
				"log_path":   fmt.Sprintf("%s/access-%d.log", g.dir, n%3),
				"log_format": "%request_header_x-id% %response_code%"}},
			"stream_filters": list{
				streamFilter("header_mutation", object{"response_headers_to_add": list{
					object{"header": object{"key": "x-generation", "value": fmt.Sprint(n)}}}}),
				streamFilter("payload_limit", object{"max_entity_size": 1<<20 + n}),
			}[n%2:], // every second generation lacks the first filter
		})},
		tables: list{routeTable("front",
			directRoute(fmt.Sprintf("/generation-%d", n), 200, fmt.Sprint(n)),
			routeTo("/", name, object{"timeout": fmt.Sprintf("%ds", 30+n)}))},
		clusters: list{
			cluster(name, object{"max_request_per_conn": 100 + n%7}, hosts(n)...),
			cluster("unused-"+name, nil, hosts(n+1)...),
		},
	}
	if n%2 == 1 { // every second generation has another listener
		s.listeners = append(s.listeners, httpListener("extra", g.extra))
		s.tables = append(s.tables, routeTable("extra", directRoute("/", 200, fmt.Sprint("extra ", n))))
	}
	return s.config()
}

// checkActive checks that responses follow the configuration of generation n, not the previous one.
func (g *configSeries) checkActive(t *testing.T, c *http.Client, n int) {
	t.Helper()
	url := "http://" + g.front
	if got := sendRequest(t, c, "GET", fmt.Sprintf("%s/generation-%d", url, n), ""); got.body != fmt.Sprint(n) {
		t.Errorf("generation %d: its route responds %d %q, want %d", n, got.status, got.body, n)
	}
	want := ""
	if n%2 == 0 {
		want = fmt.Sprint(n)
	}
	for range 2 {
		got := sendRequest(t, c, "GET", fmt.Sprintf("%s/generation-%d", url, n-1), "")
		if got.status != 200 || got.header.Get("X-Generation") != want {
			t.Errorf("generation %d: the previous route responds %d, X-Generation %q, want the upstream's response and %q", n, got.status, got.header.Get("X-Generation"), want)
		}
		if via := got.header.Get("Via"); via != fmt.Sprintf("1.1 weft-%d", n/2) {
			t.Errorf("generation %d: Via: %q, want 1.1 weft-%d", n, via, n/2)
		}
		if body := got.header.Get("X-App"); body != g.apps[n%3].address && body != g.apps[(n+1)%3].address {
			t.Errorf("generation %d: response of another generation's host, want one of its hosts", n)
		}
	}
	if n%2 == 1 {
		if got := sendRequest(t, c, "GET", "http://"+g.extra, ""); got.body != fmt.Sprint("extra ", n) {
			t.Errorf("generation %d: its second listener responds %q, want extra %d", n, got.body, n)
		}
	} else {
		eventually(t, "the second listener is closed", func() bool { return connectionRefused(g.extra) })
	}
}

// TestReloadFailsNoRequest verifies that no request fails during 50 reloads. A keepalive connection
// may close only after a response with Connection: close.
func TestReloadFailsNoRequest(t *testing.T) {
	t.Parallel()
	g := &configSeries{dir: t.TempDir(), front: freeAddress(), extra: freeAddress(), admin: freeAddress()}
	for range 3 {
		g.apps = append(g.apps, startUpstream(t, respondDigest))
	}
	w := startWeft(t, g.config(0))
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	var requests, connections atomic.Int64
	runWorkers := func(request func(n int) error) {
		for n := range 3 {
			clients.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					if err := request(n<<20 | i); err != nil && ctx.Err() == nil {
						t.Errorf("%v", err)
						return
					}
					requests.Add(1)
				}
			})
		}
	}
	retained := make([]*rawConn, 3)
	runWorkers(func(n int) error { // one connection for each worker, until a response closes the connection
		slot := &retained[n>>20]
		if *slot == nil {
			connections.Add(1)
			*slot = dialRaw(t, g.front)
		}
		response, body, err := (*slot).exchange(fmt.Sprintf("GET /keepalive HTTP/1.1\nHost: a\nX-Id: keepalive-%d\n\n", n), "GET")
		if err != nil || response.StatusCode != 200 || body != digest(nil) {
			return fmt.Errorf("keepalive connection, request %d: %v, %+v %q", n, err, response, body)
		}
		if response.Close {
			_ = (*slot).Close() // the response announced the close
			*slot = nil
		}
		return nil
	})
	runWorkers(func(n int) error { // a connection for each request
		c := dialRaw(t, g.front)
		defer c.Close()
		response, _, err := c.exchange(fmt.Sprintf("GET /new HTTP/1.1\nHost: a\nConnection: close\nX-Id: new-%d\n\n", n), "GET")
		if err != nil || response.StatusCode != 200 {
			return fmt.Errorf("new connection, request %d: %v, %+v", n, err, response)
		}
		return nil
	})
	client := newClient(t)
	runWorkers(func(n int) error { // request bodies of sizes that are streamed
		content := strings.Repeat("x", n*7919%300_000+1)
		got, err := tryRequest(ctx, client, "POST", "http://"+g.front+"/post", content, fmt.Sprintf("X-Id: post-%d", n))
		if err != nil || got.status != 200 || got.body != digest([]byte(content)) {
			return fmt.Errorf("POST %d of %d bytes: %v, %d %q", n, len(content), err, got.status, got.body)
		}
		return nil
	})
	clients.Go(func() { // one response that does not end before the last reload
		got, err := tryRequest(ctx, client, "GET", "http://"+g.front+"/long", "", "X-Id: long-0")
		if ctx.Err() == nil {
			t.Errorf("the endless response ended: %v after %d bytes, want no end before the last reload", err, len(got.body))
		}
	})

	c := newClient(t)
	for n := 1; n <= 50; n++ {
		w.reload(g.config(n))
		g.checkActive(t, c, n)
		minRequests := requests.Load() + 20
		eventually(t, "requests continue", func() bool { return requests.Load() >= minRequests || t.Failed() })
		if t.Failed() {
			t.Fatalf("failed at reload %d", n)
		}
	}
	stop()
	clients.Wait()
	w.signal(sigterm)
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	t.Logf("%d requests, %d keepalive connections", requests.Load(), connections.Load())
	g.checkLogs(t)
}

// checkLogs checks that the three access logs have only complete lines, and exactly one for each
// GET of the keepalive and the new connections.
func (g *configSeries) checkLogs(t *testing.T) {
	t.Helper()
	seen := map[string]int{}
	for n := range 3 {
		for _, lines := range rotatedLines(t, fmt.Sprintf("%s/access-%d.log", g.dir, n)) {
			for _, line := range lines {
				seen[line]++
				if id, status, ok := strings.Cut(line, " "); !ok || id == "" || len(status) != 3 {
					t.Fatalf("access log has the line %q, want an id and a status", line)
				}
			}
		}
	}
	for _, label := range []string{"keepalive", "new"} {
		missing := 0
		for n := range 3 {
			for i := 0; seen[fmt.Sprintf("%s-%d 200", label, n<<20|i+1)] > 0 || seen[fmt.Sprintf("%s-%d 200", label, n<<20|i+2)] > 0; i++ {
				if c := seen[fmt.Sprintf("%s-%d 200", label, n<<20|i)]; c != 1 {
					missing++
				}
			}
		}
		if missing > 0 {
			t.Errorf("%d %s requests do not have exactly one line in the access logs", missing, label)
		}
	}
}

// exchange sends a request and reads the response. It returns errors, where send and
// readResponse fail the test.
func (c *rawConn) exchange(request, method string) (*http.Response, string, error) {
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		return nil, "", err
	}
	response, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// respondDigest responds with the digest of the body, and at /long with an endless body.
func respondDigest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-App", r.Context().Value(http.LocalAddrContextKey).(fmt.Stringer).String())
	if r.URL.Path == "/long" {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "more\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
			}
		}
		return
	}
	h := sha256.New()
	if _, err := io.Copy(h, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, hex.EncodeToString(h.Sum(nil)))
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// TestReloadChangesListenerOptions verifies that changed options of a listener apply to new
// connections.
func TestReloadChangesListenerOptions(t *testing.T) {
	t.Parallel()
	front, admin := freeAddress(), freeAddress()
	with := func(options object, extend object) object {
		return setup{
			admin:     admin,
			listeners: list{httpListenerWith("front", front, extend, options)},
			tables:    list{routeTable("front", directRoute("/", 200, "ok"))},
		}.config()
	}
	w := startWeft(t, with(nil, nil))
	const get = "GET / HTTP/1.1\nHost: a\n\n"
	t.Run("connection_idle_timeout", func(t *testing.T) {
		w.reload(with(object{"connection_idle_timeout": "100ms"}, nil))
		c := dialRaw(t, front).send(get)
		c.readResponse("GET")
		start := time.Now()
		if got := c.readToEnd(); got != "" || time.Since(start) > 5*time.Second {
			t.Errorf("read %q, and the connection ended after %v; want none, at most 5s", got, time.Since(start))
		}
	})
	t.Run("max_header_size", func(t *testing.T) {
		w.reload(with(nil, object{"max_header_size": 512}))
		if got, _ := dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\nX: " + strings.Repeat("x", 600) + "\n\n").readResponse("GET"); got.StatusCode != 431 {
			t.Errorf("head above the new limit: %d, want 431", got.StatusCode)
		}
	})
	t.Run("max_connections", func(t *testing.T) {
		w.reload(with(object{"max_connections": 2}, nil))
		eventually(t, "the previous connections are closed", func() bool { return w.metric("weft_listener_connections_active") == 0 })
		for range 2 {
			dialRaw(t, front).send(get).readResponse("GET")
		}
		if got := dialRaw(t, front).readToEnd(); got != "" {
			t.Errorf("a third connection got %q, want none", got)
		}
	})
	t.Run("name", func(t *testing.T) {
		c := setup{
			admin:     admin,
			listeners: list{httpListener("renamed", front)},
			tables:    list{routeTable("renamed", directRoute("/", 200, "renamed"))},
		}.config()
		w.reload(c)
		eventually(t, "the listener accepts a connection", func() bool {
			got, err := tryRequest(t.Context(), newClient(t), "GET", "http://"+front, "")
			return err == nil && got.body == "renamed"
		})
		eventually(t, "metrics have only the new name", func() bool {
			return w.metric("weft_listener_requests_total", `listener="renamed"`) > 0 && !strings.Contains(w.adminGet("/stats/prometheus"), `listener="front"`)
		})
	})
}

// TestReloadChangesListenerProtocol verifies that a listener changes from HTTP to bytes and
// back while connections are open.
func TestReloadChangesListenerProtocol(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("application"))
	s, front := simpleProxy(app.address)
	s.admin = freeAddress()
	s.server = object{"graceful_timeout": "100ms"} // Weft cannot know when a byte stream is done
	s.tables = list{routeTable("front", directRoute("/", 200, "weft"))}
	asHTTP := s.config()
	s.listeners = list{tcpListener("front", front, object{"cluster": "app"})}
	asTCP := s.config()
	w := startWeft(t, asHTTP)
	for range 3 {
		conn := dialRaw(t, front).send("GET / HTTP/1.1\nHost: a\n\n")
		conn.readResponse("GET")
		w.reload(asTCP)
		if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "application" {
			t.Errorf("with tcp_proxy: %q, want \"application\"", got.body)
		}
		if _, got := conn.send("GET / HTTP/1.1\nHost: a\n\n").readResponse("GET"); got != "weft" {
			t.Errorf("on the previous connection: %q, want \"weft\"", got)
		}
		w.reload(asHTTP)
		if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "weft" {
			t.Errorf("with proxy: %q, want \"weft\"", got.body)
		}
	}
	w.signal(sigterm)
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestReloadRemovesHosts verifies that the connections and metrics of a removed host disappear.
func TestReloadRemovesHosts(t *testing.T) {
	t.Parallel()
	a, b := startUpstream(t, respondWith("a")), startUpstream(t, respondWith("b"))
	s, front := simpleProxy(a.address)
	s.admin = freeAddress()
	w := startWeft(t, s.config())
	c := newClient(t)
	if got := sendRequest(t, c, "GET", "http://"+front, ""); got.body != "a" {
		t.Fatalf("before the reload: %q, want \"a\"", got.body)
	}
	s.clusters = list{cluster("app", nil, b.address)}
	w.reload(s.config())
	for range 5 {
		if got := sendRequest(t, c, "GET", "http://"+front, ""); got.body != "b" {
			t.Errorf("after the host was replaced: %q, want \"b\"", got.body)
		}
	}
	eventually(t, "the pooled connection to the removed host is closed", func() bool { return a.connections() == 0 })
	if text := w.adminGet("/stats/prometheus"); strings.Contains(text, a.address) {
		t.Errorf("metrics still name the host %s", a.address)
	}
}
