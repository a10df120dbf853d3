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

// feature describes a stream filter or an action of routes: the configuration, and the cases that
// verify it. Each feature has its own listener and a route table with the same name. The cases run
// in every pair of protocols.
type feature struct {
	name     string                                                 // without spaces
	filters  list                                                   // of the listener
	routes   []object                                               // followed by a route of every path to "app", unless matchAll is set
	matchAll bool                                                   // routes match every path
	clusters list                                                   // in addition to "app", "other" and "dead"
	before   func(t *testing.T, get func(path string) httpResponse) // waits until the cases can run; may be nil
	cases    []requestCase
}

// requestCase is a request and its expected result.
type requestCase struct {
	name         string
	method, path string   // "": GET; gRPC always uses POST
	fields       []string // "Name: value"
	requestBody  string
	chunked      bool // without a Content-Length
	times        int  // number of requests; 0: 1

	status      int               // of the response, in HTTP; 0: HTTP skips the case
	code        string            // grpc-status; "": gRPC skips the case
	reason      string            // of the failure that is counted; "": none
	body        string            // "": any; gRPC does not check it
	wantHeaders map[string]string // response headers; "": absent
	minDuration time.Duration     // minimum duration
	check       func(t *testing.T, responses []httpResponse)
}

// protocolPair holds the protocols of both sides of Weft, and the upstreams that the cases use.
type protocolPair struct {
	downstream, upstream string // "Http1" or "Http2"
	grpc                 bool   // requests are gRPC calls

	app, other    string // describe the request in their response
	busy          string // responds with 503 or grpc-status 14
	hanging       string // never responds
	disconnecting string // reads a request and closes without a response
	flaky         string // responds to the first request of a path with the status at its end
	closedPort    string // address without a listener

	authz [2]string // authorization services, of HTTP and of gRPC

	shadow [2]string   // report their requests in copies; they use the protocols downstream and upstream
	copies chan string // requests that shadow received
}

func (p *protocolPair) name() string {
	if p.grpc {
		return "gRPC"
	}
	return p.downstream + " to " + p.upstream
}

// TestProtocolPairs runs every feature in every pair of protocols. A new filter needs a feature.
func TestProtocolPairs(t *testing.T) {
	t.Parallel()
	for _, p := range []*protocolPair{
		{downstream: "Http1", upstream: "Http1"}, {downstream: "Http1", upstream: "Http2"},
		{downstream: "Http2", upstream: "Http1"}, {downstream: "Http2", upstream: "Http2"},
		{downstream: "Http2", upstream: "Http2", grpc: true},
	} {
		t.Run(p.name(), func(t *testing.T) {
			t.Parallel()
			p.serve(t)
			features := append(p.filters(), p.actions()...)
			s := setup{clusters: list{cluster("app", nil, p.app), cluster("other", nil, p.other), cluster("dead", nil, p.closedPort)}}
			addresses := make(map[string]string)
			for _, f := range features {
				address := freeAddress()
				addresses[f.name] = address
				s.listeners = append(s.listeners, networkListener(f.name, address, object{"type": "proxy", "config": object{
					"downstream_protocol": p.downstream, "upstream_protocol": p.upstream, "router_config_name": f.name,
				}}, object{"stream_filters": f.filters}))
				if !f.matchAll {
					f.routes = append(f.routes, routeTo("/", "app"))
				}
				s.tables = append(s.tables, routeTable(f.name, f.routes...))
				s.clusters = append(s.clusters, f.clusters...)
			}
			w := startWeft(t, s.config())
			c := newClient(t)
			c.Transport.(*http.Transport).Protocols = httpProtocols(p.downstream)
			for _, f := range features {
				t.Run(f.name, func(t *testing.T) { p.runFeature(t, w, c, "http://"+addresses[f.name], &f) })
			}
		})
	}
}

// runFeature runs the cases of a feature and verifies the failures that Weft counts.
func (p *protocolPair) runFeature(t *testing.T, w *weft, c *http.Client, url string, f *feature) {
	if f.before != nil {
		f.before(t, func(path string) httpResponse { resp, _ := p.fetch(t, c, url, &requestCase{path: path}); return resp })
	}
	failures, sum := make(map[string]int), 0
	for i := range f.cases {
		test := &f.cases[i]
		if p.grpc && test.code == "" || !p.grpc && test.status == 0 {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			var responses []httpResponse
			for range max(1, test.times) {
				responses = append(responses, p.sendRequest(t, c, url, test))
			}
			if test.check != nil {
				test.check(t, responses)
			}
		})
		if test.reason != "" {
			failures[test.reason] += max(1, test.times)
			sum += max(1, test.times)
		}
	}
	const metric = "weft_listener_request_failures_total"
	listener := fmt.Sprintf("listener=%q", f.name)
	eventually(t, fmt.Sprintf("%d of the requests are counted as failures", sum), func() bool {
		return w.metric(metric, listener) == float64(sum)
	})
	for reason, want := range failures {
		if got := w.metric(metric, listener, fmt.Sprintf("reason=%q", reason)); got != float64(want) {
			t.Errorf("%v requests counted as %s, want %d", got, reason, want)
		}
	}
}

// sendRequest sends the request once and checks the response.
func (p *protocolPair) sendRequest(t *testing.T, c *http.Client, url string, test *requestCase) httpResponse {
	t.Helper()
	res, resp := p.fetch(t, c, url, test)
	if p.grpc {
		checkCall(t, resp, res.body, test)
	} else if res.status != test.status || test.body != "" && res.body != test.body {
		t.Errorf("%d with %d bytes, %.60q, after %v; want %d with %.60q", res.status, len(res.body), res.body, res.took, test.status, test.body)
	}
	if res.took < test.minDuration {
		t.Errorf("the response came after %v, want at least %v", res.took, test.minDuration)
	}
	for name, want := range test.wantHeaders {
		if got := strings.Join(res.header.Values(name), ", "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	p.checkForwarded(t, resp)
	return res
}

// fetch sends the request once and reads the response with its trailers.
func (p *protocolPair) fetch(t *testing.T, c *http.Client, url string, test *requestCase) (httpResponse, *http.Response) {
	t.Helper()
	start := time.Now()
	resp, err := c.Do(p.request(t, url, test))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return httpResponse{resp.StatusCode, resp.Header, string(body), time.Since(start)}, resp
}

// request returns the request of the case, to the host shop.test.
func (p *protocolPair) request(t *testing.T, url string, test *requestCase) *http.Request {
	t.Helper()
	method, text := test.method, test.requestBody
	if p.grpc {
		method, text = http.MethodPost, message(text)
	}
	var body io.Reader
	if text != "" {
		body = strings.NewReader(text)
	}
	if test.chunked {
		body = io.MultiReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url+test.path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.test"
	for _, f := range test.fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Add(name, value)
	}
	if p.grpc {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
	}
	return req
}

// message returns text as a gRPC message.
func message(text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))) + text
}

// checkCall checks the response to a gRPC call. Its status is in the trailers, or in the headers if
// there is no body.
func checkCall(t *testing.T, resp *http.Response, body string, test *requestCase) {
	t.Helper()
	code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
	if resp.StatusCode != http.StatusOK || code != test.code || resp.Header.Get("Content-Type") != "application/grpc" {
		t.Errorf("%d with %v and grpc-status %q, want 200 and %q", resp.StatusCode, resp.Header, code, test.code)
	}
	want := message(test.requestBody)
	if code != "0" {
		want = ""
	}
	if body != want {
		t.Errorf("%d bytes, %.60q; want the message %.60q", len(body), body, want)
	}
}

// checkForwarded checks every response of an upstream: the HTTP version of the request, the
// trailers, and that hop-by-hop headers were not forwarded.
func (p *protocolPair) checkForwarded(t *testing.T, resp *http.Response) {
	t.Helper()
	version := resp.Header.Get("X-Version")
	if version == "" {
		return // not a response of an upstream
	}
	if want := strings.TrimPrefix(p.upstream, "Http"); version != want {
		t.Errorf("the upstream got HTTP/%s, want HTTP/%s", version, want)
	}
	if resp.Request.Method != http.MethodHead && resp.Trailer.Get("X-Sum") != resp.Header.Get("X-Size") {
		t.Errorf("the trailer X-Sum is %q, want %q", resp.Trailer.Get("X-Sum"), resp.Header.Get("X-Size"))
	}
	for _, name := range []string{"Got-Keep-Alive", "Got-Proxy-Connection"} {
		if got := resp.Header.Get(name); got != "" {
			t.Errorf("the upstream got %s: %s, want none", name, got)
		}
	}
}

// serve starts the upstreams.
func (p *protocolPair) serve(t *testing.T) {
	t.Helper()
	startIn := func(protocol string, h http.HandlerFunc) string {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = httpProtocols(protocol)
		s.Start()
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	start := func(h http.HandlerFunc) string { return startIn(p.upstream, h) }
	p.app, p.other = start(describeRequestAs("app")), start(describeRequestAs("other"))
	p.busy = start(func(w http.ResponseWriter, r *http.Request) {
		if isCall(r) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "14")
			return
		}
		http.Error(w, "busy", http.StatusServiceUnavailable)
	})
	p.hanging = start(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server detects a disconnect
		<-r.Context().Done()
	})
	p.disconnecting = start(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // read until EOF or an error
		panic(http.ErrAbortHandler)
	})
	p.flaky = start(failFirst())
	p.closedPort = freeAddress()
	p.authz = [2]string{startIn("Http1", serveHTTPAuthorizer), serveAuthorizer(t, nil)}
	p.copies = make(chan string, 100) // more than a feature sends
	for i, protocol := range []string{p.downstream, p.upstream} {
		p.shadow[i] = startIn(protocol, recordRequests(p.copies))
	}
}

// describeRequestAs returns a handler that responds with name, the request line, each request
// header as Got-Name, and the body.
func describeRequestAs(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the request was aborted
		}
		h := w.Header()
		h.Set("X-App", name)
		h.Set("X-Version", strconv.Itoa(r.ProtoMajor))
		h.Set("X-Request-Line", r.Method+" "+r.Host+r.RequestURI)
		h.Set("X-Size", strconv.Itoa(len(body)))
		h.Set("X-Inner", "secret")
		for name, values := range r.Header {
			h["Got-"+name] = values
		}
		h.Set(http.TrailerPrefix+"X-Sum", strconv.Itoa(len(body)))
		if isCall(r) {
			h.Set("Content-Type", "application/grpc")
			h.Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
		_, _ = w.Write(body)
		w.(http.Flusher).Flush()
	}
}

func isCall(r *http.Request) bool { return r.Header.Get("Content-Type") == "application/grpc" }

// httpProtocols returns the protocols of net/http for "Http1" or "Http2".
func httpProtocols(name string) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(name == "Http1")
	p.SetUnencryptedHTTP2(name == "Http2")
	return p
}
