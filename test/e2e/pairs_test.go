package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A feature is a stream filter, or an action of routes: how it is configured, and
// what callers see of it. It has a listener of its own and a route table of that
// name, and is held to its trials in every pair of protocols.
type feature struct {
	name     string                                           // without a space
	filters  list                                             // of the listener
	routes   []object                                         // a route of everything to "app" comes after them, unless they are all
	all      bool                                             // they are
	clusters list                                             // beside "app", "other" and "dead"
	before   func(t *testing.T, ask func(path string) answer) // waits for what the trials need; nil: nothing
	trials   []trial
}

// A trial is a request and what must come of it.
type trial struct {
	name         string
	method, path string   // "": GET; of gRPC it is always POST
	fields       []string // "Name: value"
	content      string
	streamed     bool // its length is not told
	times        int  // it is asked so often; 0: once

	status int               // of the answer, in HTTP; 0: the trial means nothing there
	code   string            // the status of gRPC; "": the trial means nothing there
	reason string            // under which a request is counted that failed; "": none
	body   string            // "": whatever it is; of gRPC it is not looked at
	want   map[string]string // fields of the answer; "": there is none
	slow   time.Duration     // what it takes at least
	judge  func(t *testing.T, all []answer)
}

// A pair is what is spoken on either side of Weft, and the applications that speak
// it on the far one.
type pair struct {
	down, up string // "Http1" or "Http2"
	grpc     bool   // requests are calls of gRPC

	app, other string // say what they were asked
	busy       string // has no time: 503, or the status 14 of gRPC
	silent     string // never answers
	gone       string // reads a request, and ends it without an answer
	moody      string // answers each path first as its end says
	dead       string // nobody listens there

	authz [2]string // decide who may pass: by HTTP, by gRPC

	shadow [2]string   // note what they are asked, in the protocols of either side
	copies chan string // the notes
}

func (p *pair) name() string {
	if p.grpc {
		return "gRPC"
	}
	return p.down + " to " + p.up
}

// TestFiltersAndRoutesActTheSameInEachPairOfProtocols is one table for all of them:
// who adds a filter adds a row.
func TestFiltersAndRoutesActTheSameInEachPairOfProtocols(t *testing.T) {
	t.Parallel()
	for _, p := range []*pair{
		{down: "Http1", up: "Http1"}, {down: "Http1", up: "Http2"},
		{down: "Http2", up: "Http1"}, {down: "Http2", up: "Http2"},
		{down: "Http2", up: "Http2", grpc: true},
	} {
		t.Run(p.name(), func(t *testing.T) {
			t.Parallel()
			p.serve(t)
			features := append(p.filters(), p.actions()...)
			s := setup{clusters: list{cluster("app", nil, p.app), cluster("other", nil, p.other), cluster("dead", nil, p.dead)}}
			addresses := make(map[string]string)
			for _, f := range features {
				address := free()
				addresses[f.name] = address
				s.listeners = append(s.listeners, chained(f.name, address, object{"type": "proxy", "config": object{
					"downstream_protocol": p.down, "upstream_protocol": p.up, "router_config_name": f.name,
				}}, object{"stream_filters": f.filters}))
				if !f.all {
					f.routes = append(f.routes, to("/", "app"))
				}
				s.tables = append(s.tables, table(f.name, f.routes...))
				s.clusters = append(s.clusters, f.clusters...)
			}
			w := run(t, s.config())
			c := client(t)
			c.Transport.(*http.Transport).Protocols = speaking(p.down)
			for _, f := range features {
				t.Run(f.name, func(t *testing.T) { p.hold(t, w, c, "http://"+addresses[f.name], &f) })
			}
		})
	}
}

// hold holds a feature to its trials, and Weft to what it counts of them.
func (p *pair) hold(t *testing.T, w *weft, c *http.Client, url string, f *feature) {
	if f.before != nil {
		f.before(t, func(path string) answer { a, _ := p.fetch(t, c, url, &trial{path: path}); return a })
	}
	failures, sum := make(map[string]int), 0
	for i := range f.trials {
		q := &f.trials[i]
		if p.grpc && q.code == "" || !p.grpc && q.status == 0 {
			continue
		}
		t.Run(q.name, func(t *testing.T) {
			var answers []answer
			for range max(1, q.times) {
				answers = append(answers, p.ask(t, c, url, q))
			}
			if q.judge != nil {
				q.judge(t, answers)
			}
		})
		if q.reason != "" {
			failures[q.reason] += max(1, q.times)
			sum += max(1, q.times)
		}
	}
	const metric = "weft_listener_request_failures_total"
	listener := fmt.Sprintf("listener=%q", f.name)
	eventually(t, fmt.Sprintf("of its requests %d are counted as failures", sum), func() bool {
		return w.metric(metric, listener) == float64(sum)
	})
	for reason, want := range failures {
		if got := w.metric(metric, listener, fmt.Sprintf("reason=%q", reason)); got != float64(want) {
			t.Errorf("%v requests are counted under %s, want %d", got, reason, want)
		}
	}
}

// ask makes the request once and checks the answer.
func (p *pair) ask(t *testing.T, c *http.Client, url string, q *trial) answer {
	t.Helper()
	a, resp := p.fetch(t, c, url, q)
	if p.grpc {
		checkCall(t, resp, a.body, q)
	} else if a.status != q.status || q.body != "" && a.body != q.body {
		t.Errorf("%d with %d bytes, %.60q, after %v; want %d with %.60q", a.status, len(a.body), a.body, a.took, q.status, q.body)
	}
	if a.took < q.slow {
		t.Errorf("the answer came after %v, want %v at least", a.took, q.slow)
	}
	for name, want := range q.want {
		if got := strings.Join(a.header.Values(name), ", "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	p.checkCarried(t, resp)
	return a
}

// fetch makes the request once. The answer is whole: its trailers have come.
func (p *pair) fetch(t *testing.T, c *http.Client, url string, q *trial) (answer, *http.Response) {
	t.Helper()
	began := time.Now()
	resp, err := c.Do(p.request(t, url, q))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body), time.Since(began)}, resp
}

// request makes the request of the trial, to the host shop.test.
func (p *pair) request(t *testing.T, url string, q *trial) *http.Request {
	t.Helper()
	method, text := q.method, q.content
	if p.grpc {
		method, text = http.MethodPost, message(text)
	}
	var content io.Reader
	if text != "" {
		content = strings.NewReader(text)
	}
	if q.streamed {
		content = io.MultiReader(content)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url+q.path, content)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.test"
	for _, f := range q.fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Add(name, value)
	}
	if p.grpc {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
	}
	return req
}

// message is text as a message of gRPC.
func message(text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))) + text
}

// checkCall checks the answer to a call, whose status is in the trailers, or in a
// head without content.
func checkCall(t *testing.T, resp *http.Response, body string, q *trial) {
	t.Helper()
	code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
	if resp.StatusCode != http.StatusOK || code != q.code || resp.Header.Get("Content-Type") != "application/grpc" {
		t.Errorf("%d with %v and grpc-status %q, want 200 and %q", resp.StatusCode, resp.Header, code, q.code)
	}
	want := message(q.content)
	if code != "0" {
		want = ""
	}
	if body != want {
		t.Errorf("%d bytes, %.60q; want the message %.60q", len(body), body, want)
	}
}

// checkCarried checks what is so of every exchange that an application had:
// its version of HTTP, that its trailers came, and that fields of a connection
// stayed on it.
func (p *pair) checkCarried(t *testing.T, resp *http.Response) {
	t.Helper()
	version := resp.Header.Get("X-Version")
	if version == "" {
		return // it did not
	}
	if want := strings.TrimPrefix(p.up, "Http"); version != want {
		t.Errorf("the application was asked in HTTP/%s, want HTTP/%s", version, want)
	}
	if resp.Request.Method != http.MethodHead && resp.Trailer.Get("X-Sum") != resp.Header.Get("X-Size") {
		t.Errorf("the trailer X-Sum is %q, want %q", resp.Trailer.Get("X-Sum"), resp.Header.Get("X-Size"))
	}
	for _, name := range []string{"Got-Keep-Alive", "Got-Proxy-Connection"} {
		if got := resp.Header.Get(name); got != "" {
			t.Errorf("the application got %s: %s", name, got)
		}
	}
}

// serve starts the applications.
func (p *pair) serve(t *testing.T) {
	t.Helper()
	startIn := func(protocol string, h http.HandlerFunc) string {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = speaking(protocol)
		s.Start()
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	start := func(h http.HandlerFunc) string { return startIn(p.up, h) }
	p.app, p.other = start(tells("app")), start(tells("other"))
	p.busy = start(func(w http.ResponseWriter, r *http.Request) {
		if isCall(r) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "14")
			return
		}
		http.Error(w, "busy", http.StatusServiceUnavailable)
	})
	p.silent = start(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // then the end of the connection is seen
		<-r.Context().Done()
	})
	p.gone = start(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // all that comes
		panic(http.ErrAbortHandler)
	})
	p.moody = start(atFirst())
	p.dead = free()
	p.authz = [2]string{startIn("Http1", authorizes), serveAuthorizer(t, nil)}
	p.copies = make(chan string, 100) // more than a row asks for
	for i, protocol := range []string{p.down, p.up} {
		p.shadow[i] = startIn(protocol, notes(p.copies))
	}
}

// tells is an application that tells its name, and what it was asked: the line,
// each field as Got-Name, and the content.
func tells(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return // nobody waits for an answer
		}
		h := w.Header()
		h.Set("X-App", name)
		h.Set("X-Version", strconv.Itoa(r.ProtoMajor))
		h.Set("X-Asked", r.Method+" "+r.Host+r.RequestURI)
		h.Set("X-Size", strconv.Itoa(len(content)))
		h.Set("X-Inner", "secret")
		for name, values := range r.Header {
			h["Got-"+name] = values
		}
		h.Set(http.TrailerPrefix+"X-Sum", strconv.Itoa(len(content)))
		if isCall(r) {
			h.Set("Content-Type", "application/grpc")
			h.Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
		_, _ = w.Write(content)
		w.(http.Flusher).Flush()
	}
}

func isCall(r *http.Request) bool { return r.Header.Get("Content-Type") == "application/grpc" }

// speaking returns the protocols of net/http that "Http1" or "Http2" means.
func speaking(name string) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(name == "Http1")
	p.SetUnencryptedHTTP2(name == "Http2")
	return p
}
