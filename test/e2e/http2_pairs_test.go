package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// speaking returns the protocols of net/http that "Http1" or "Http2" means.
func speaking(name string) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(name == "Http1")
	p.SetUnencryptedHTTP2(name == "Http2")
	return p
}

// telling is an application that says what it was asked, in one version of HTTP.
func telling(t *testing.T, protocol string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/silent" {
			<-r.Context().Done()
			return
		}
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h := w.Header()
		h.Set("X-Version", strconv.Itoa(r.ProtoMajor))
		h.Set("X-Asked", r.Method+" "+r.Host+r.RequestURI)
		h.Set("X-Cookie", r.Header.Get("Cookie"))
		h.Set("X-Got", fmt.Sprint(r.Header.Get("X-Keep"), r.Header.Get("X-Drop"), r.Header.Get("X-Add")))
		h.Set("X-Connection", r.Header.Get("Keep-Alive")+r.Header.Get("Proxy-Connection"))
		h.Set("X-Inner", "secret")
		h.Set(http.TrailerPrefix+"X-Sum", strconv.Itoa(len(content)))
		_, _ = w.Write(content)
		w.(http.Flusher).Flush()
	}))
	s.Config.Protocols = speaking(protocol)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestRoutesActTheSameInBothVersionsOfHTTP sends the same requests through each
// pair of HTTP/1.1 and HTTP/2: what routes do is the same in all.
func TestRoutesActTheSameInBothVersionsOfHTTP(t *testing.T) {
	t.Parallel()
	for _, down := range []string{"Http1", "Http2"} {
		for _, up := range []string{"Http1", "Http2"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				t.Parallel()
				front := free()
				field := func(key, value string) object {
					return object{"header": object{"key": key, "value": value}, "append": false}
				}
				s := setup{
					listeners: list{chained("front", front, object{"type": "proxy", "config": object{
						"downstream_protocol": down, "upstream_protocol": up, "router_config_name": "front"}})},
					tables: list{table("front",
						says("/own", 418, "of the proxy"),
						object{"match": object{"prefix": "/moved"}, "redirect": object{"response_code": 307, "path_redirect": "/there"}},
						to("/silent", "app", object{"timeout": "100ms"}),
						to("/old", "app", object{
							"prefix_rewrite": "/new", "host_rewrite": "inner.test",
							"request_headers_to_add": list{field("X-Add", "+added")}, "request_headers_to_remove": list{"x-drop"},
							"response_headers_to_add": list{field("X-Out", "yes")}, "response_headers_to_remove": list{"X-Inner"},
						}),
						to("/plain", "app"),
					)},
					clusters: list{cluster("app", nil, telling(t, up))},
				}
				run(t, s.config())
				transport := &http.Transport{Protocols: speaking(down)}
				t.Cleanup(transport.CloseIdleConnections)
				c := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
				for _, test := range routeTests(up) {
					t.Run(test.name, func(t *testing.T) { test.run(t, c, "http://"+front) })
				}
			})
		}
	}
}

// routeTest is a request and what must come of it.
type routeTest struct {
	name, method, path string
	header             map[string]string
	content            io.Reader
	status             int
	body               string            // "": whatever it is
	want               map[string]string // fields of the answer; "": there is none
	sum                string            // the trailer X-Sum
}

func routeTests(up string) []routeTest {
	version := map[string]string{"Http1": "1", "Http2": "2"}[up]
	large := strings.Repeat("content ", 40_000)
	return []routeTest{
		{name: "a request passes", method: "GET", path: "/plain?a=%2F", header: map[string]string{"Cookie": "a=1; b=2"}, status: 200,
			want: map[string]string{"X-Version": version, "X-Asked": "GET shop.test/plain?a=%2F", "X-Cookie": "a=1; b=2"}, sum: "0"},
		{name: "fields of a connection stay on it", method: "GET", path: "/plain", status: 200,
			header: map[string]string{"Keep-Alive": "timeout=5", "Proxy-Connection": "keep-alive"},
			want:   map[string]string{"X-Connection": "", "Transfer-Encoding": ""}, sum: "0"},
		{name: "path, host and fields are rewritten", method: "GET", path: "/old/a?b", status: 200,
			header: map[string]string{"X-Keep": "kept", "X-Drop": "dropped"},
			want:   map[string]string{"X-Asked": "GET inner.test/new/a?b", "X-Got": "kept+added", "X-Out": "yes", "X-Inner": ""}, sum: "0"},
		{name: "content of a known length", method: "POST", path: "/plain", content: strings.NewReader(large), status: 200, body: large, sum: strconv.Itoa(len(large))},
		{name: "content of an unknown length", method: "PUT", path: "/plain", content: io.MultiReader(strings.NewReader(large)), status: 200, body: large, sum: strconv.Itoa(len(large))},
		{name: "HEAD has no content", method: "HEAD", path: "/plain", status: 200, want: map[string]string{"X-Asked": "HEAD shop.test/plain"}},
		{name: "an answer of the proxy's own", method: "GET", path: "/own", header: map[string]string{"Authorization": "secret"}, status: 418, body: "of the proxy",
			want: map[string]string{"Authorization": ""}},
		{name: "a redirect", method: "GET", path: "/moved", status: 307, want: map[string]string{"Location": "http://shop.test/there"}},
		{name: "no route", method: "GET", path: "/none", header: map[string]string{"Cookie": "secret"}, status: 404, want: map[string]string{"Cookie": "", "Set-Cookie": ""}},
		{name: "a timeout", method: "GET", path: "/silent", status: 504},
	}
}

func (test *routeTest) run(t *testing.T, c *http.Client, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, test.method, url+test.path, test.content)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.test"
	for name, value := range test.header {
		req.Header.Set(name, value)
	}
	began := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != test.status || test.body != "" && string(body) != test.body {
		t.Errorf("%d and %d bytes, %.60q, after %v; want %d and %.60q", resp.StatusCode, len(body), body, time.Since(began), test.status, test.body)
	}
	for name, want := range test.want {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := resp.Trailer.Get("X-Sum"); got != test.sum {
		t.Errorf("the trailer X-Sum: %q, want %q", got, test.sum)
	}
}
