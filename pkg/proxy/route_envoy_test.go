package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// runChanged runs s after change, which gets the routes of the only virtual host and the proxy.
func (s setup) runChanged(t *testing.T, change func(routes []*config.Route, p *config.Proxy)) (address string) {
	t.Helper()
	r := newRig(t)
	c := s.snapshot(t)
	change(c.Routes[0].VirtualHosts[0].Routes, c.Listeners[0].FilterChains[0].Proxy)
	r.apply(c)
	return r.address("front")
}

// TestInternalRedirects verifies which redirects Weft follows, with the results of Envoy 1.40.
func TestInternalRedirects(t *testing.T) {
	app := origin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if to := r.Header.Get("X-To"); to != "" && !strings.HasPrefix(r.URL.Path, "/end") {
			w.Header().Set("X-Copied", "c")
			w.Header().Set("Location", to)
			w.WriteHeader(map[string]int{"": 302, "303": 303, "307": 307}[r.Header.Get("X-Code")])
			return
		}
		_, _ = fmt.Fprintf(w, "%s %s%s from %s, copied %q, body %q", r.Method, r.Host, r.RequestURI, r.Header.Get("X-Envoy-Original-Url"), r.Header.Get("X-Copied"), body)
	})
	policy := config.InternalRedirect{Max: 1, Codes: []int{302, 303, 307}, CopiedHeaders: []string{"x-copied"}}
	for _, test := range []struct {
		name    string
		change  func(p *config.InternalRedirect)
		request string
		status  int
		body    string
	}{
		{"followed", nil, get("/a?q", "X-To: http://b.test/end?x=1"), 200, `GET b.test/end?x=1 from http://shop.test/a?q, copied "c", body ""`},
		{"the fragment", nil, get("/a", "X-To: http://b.test:81#f"), 302, ""},
		{"a relative location", nil, get("/a", "X-To: /end"), 302, ""},
		{"another scheme", nil, get("/a", "X-To: https://b.test/end"), 302, ""},
		{"an allowed scheme", func(p *config.InternalRedirect) { p.AllowOtherScheme = true }, get("/a", "X-To: HTTPS://b.test/end"), 200, `GET b.test/end from http://shop.test/a, copied "c", body ""`},
		{"an unsafe scheme", func(p *config.InternalRedirect) { p.AllowOtherScheme, p.SafeSchemeOnly = true, true }, get("/a", "X-To: https://b.test/end"), 302, ""},
		{"another status", func(p *config.InternalRedirect) { p.Codes = []int{301} }, get("/a", "X-To: http://b.test/end"), 302, ""},
		{"user information", nil, get("/a", "X-To: http://u@b.test/end"), 302, ""},
		{"a space", nil, get("/a", "X-To: http://b.test/end x"), 302, ""},
		{"too many", nil, get("/a", "X-To: http://b.test/a/more"), 302, ""},
		{"no route", nil, get("/a", "X-To: http://b.test/unknown"), 302, ""},
		{"an allowed route", func(p *config.InternalRedirect) { p.AllowedRoutes = []string{"end"} }, get("/a", "X-To: http://b.test/end"), 200, `GET b.test/end from http://shop.test/a, copied "c", body ""`},
		{"another route", func(p *config.InternalRedirect) { p.AllowedRoutes = []string{} }, get("/a", "X-To: http://b.test/end"), 302, ""},
		{"a visited route", func(p *config.InternalRedirect) { p.Max, p.UnvisitedOnly = 9, true }, get("/a", "X-To: http://b.test/a"), 302, ""},
		{"307 repeats the body", nil, "POST /a HTTP/1.1\r\nHost: shop.test\r\nX-To: http://b.test/end\r\nX-Code: 307\r\nContent-Length: 4\r\n\r\ntext", 200, `POST b.test/end from http://shop.test/a, copied "c", body "text"`},
		{"303 drops the body", nil, "POST /a HTTP/1.1\r\nHost: shop.test\r\nX-To: http://b.test/end\r\nX-Code: 303\r\nContent-Length: 4\r\n\r\ntext", 200, `GET b.test/end from http://shop.test/a, copied "c", body ""`},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := setup{
				routes: `{"name": "end", "match": {"prefix": "/end"}, "route": {"cluster_name": "app"}},
					{"name": "a", "match": {"prefix": "/a"}, "route": {"cluster_name": "app"}}`,
				clusters: cluster("app", app),
			}.runChanged(t, func(routes []*config.Route, _ *config.Proxy) {
				p := policy
				if test.change != nil {
					test.change(&p)
				}
				routes[1].Forward.Extras = &config.ForwardExtras{InternalRedirect: &p}
			})
			c := dialClient(t, address)
			got := c.roundTrip(test.request)
			if got.StatusCode != test.status || test.status == 200 && got.body != test.body {
				t.Errorf("response %d %q, want %d %q", got.StatusCode, got.body, test.status, test.body)
			}
			if got := c.roundTrip(get("/end")); got.StatusCode != 200 {
				t.Errorf("the next request on the connection got %d, want 200", got.StatusCode)
			}
		})
	}
}

func TestWeightedClusterFilters(t *testing.T) {
	app := origin(t, respondText("app"))
	address := setup{
		filters: `{"type": "rbac", "config": {"rules": {"policies": {}}}}`,
		routes: `{"match": {"prefix": "/"}, "route": {"weighted_clusters": [
			{"cluster": {"name": "app", "weight": 1}}, {"cluster": {"name": "app", "weight": 1}}, {"cluster": {"name": "app", "weight": 1}}]}}`,
		clusters: cluster("app", app),
	}.runChanged(t, func(routes []*config.Route, _ *config.Proxy) {
		f := routes[0].Forward
		f.Extras = &config.ForwardExtras{WeightSource: config.WeightSource{Header: "x-random"}}
		filters := map[string]any{"rbac": config.FilterDisabled{}}
		f.WeightedClusters[1].Extras = &config.WeightedExtras{Filters: filters}
		f.WeightedClusters[2].Cluster, f.WeightedClusters[2].Extras = "", &config.WeightedExtras{ClusterVariable: "request_header_x-to", Filters: filters}
	})
	for fields, want := range map[string]int{"X-Random: 0": 403, "X-Random: 1": 200, "X-Random: 2": 404, "X-Random: 2\r\nX-To: none": 404, "X-Random: 2\r\nX-To: app": 200} {
		if got := roundTrip(t, address, get("/", fields)); got.StatusCode != want {
			t.Errorf("%q: status %d, want %d", fields, got.StatusCode, want)
		}
	}
}

func TestUpgradeRules(t *testing.T) {
	app := origin(t, respondText("app"))
	address := setup{
		routes:   `{"match": {"path": "/plain"}, "route": {"cluster_name": "app"}}, {"match": {"path": "/own"}, "route": {"cluster_name": "app"}}`,
		clusters: cluster("app", app),
	}.runChanged(t, func(routes []*config.Route, p *config.Proxy) {
		p.Upgrades = &config.UpgradeRules{Rules: []config.UpgradeRule{{Protocol: "a"}, {Protocol: "b", Denied: true}}}
		routes[1].Forward.Extras = &config.ForwardExtras{Upgrades: []config.UpgradeRule{{Protocol: "a", Denied: true}, {Protocol: "b"}}}
	})
	for _, test := range []struct {
		path, protocol string
		denied         bool
	}{
		{"/plain", "a", false},
		{"/plain", "A", false},
		{"/plain", "b", true},
		{"/plain", "c", true},
		{"/own", "a", true},
		{"/own", "b", false},
		{"/own", "c", true},
	} {
		got := roundTrip(t, address, get(test.path, "Connection: upgrade", "Upgrade: "+test.protocol))
		if denied := got.StatusCode == 403; denied != test.denied || denied && (!got.Close || got.body != "") {
			t.Errorf("%s with %s: response %d %q, close %v; want a denial with close: %v", test.path, test.protocol, got.StatusCode, got.body, got.Close, test.denied)
		}
	}
	if got := roundTrip(t, address, get("/plain")); got.StatusCode != 200 {
		t.Errorf("without an upgrade: status %d, want 200", got.StatusCode)
	}
}

func TestConnectTunnel(t *testing.T) {
	address := setup{
		routes:   `{"match": {"prefix": ""}, "route": {"cluster_name": "echo"}}, {"match": {"prefix": ""}, "route": {"cluster_name": "dead"}}`,
		clusters: cluster("echo", echoServer(t)) + ", " + cluster("dead", "127.0.0.1:1"),
	}.runChanged(t, func(routes []*config.Route, p *config.Proxy) {
		p.HTTP1.AllowConnect = true
		for i, authority := range []string{"echo.test:80", "dead.test:80"} {
			routes[i].Match = config.RouteMatch{PathKind: config.PathConnect, Headers: []config.HeaderMatch{{Name: ":authority", Value: authority}}}
			routes[i].Forward.Extras = &config.ForwardExtras{ConnectTunnel: true}
		}
	})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, "CONNECT echo.test:80 HTTP/1.1\r\nHost: echo.test:80\r\n\r\n")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
	if err != nil || response.StatusCode != 200 {
		t.Fatalf("response %v, %v, want 200", response, err)
	}
	_, _ = io.WriteString(conn, "hello")
	_ = conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(in); string(got) != "hello" || err != nil {
		t.Errorf("the tunnel echoed %q, %v, want hello", got, err)
	}
	if got := roundTrip(t, address, "CONNECT dead.test:80 HTTP/1.1\r\nHost: dead.test:80\r\n\r\n"); got.StatusCode < 500 {
		t.Errorf("a host that refuses connections: status %d, want 502", got.StatusCode)
	}
}

func TestDirectResponseFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(path, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := setup{routes: `{"match": {"prefix": "/"}, "direct_response": {"status": 200}}`}
	address := s.runChanged(t, func(routes []*config.Route, _ *config.Proxy) {
		routes[0].DirectResponse.BodyFile, routes[0].DirectResponse.MaxFileSize = path, 11
	})
	if got := roundTrip(t, address, get("/")); got.body != "from a file" {
		t.Errorf("body %q, want that of the file", got.body)
	}
	for _, change := range []func(c *config.DirectResponse){
		func(c *config.DirectResponse) { c.MaxFileSize = 10 },
		func(c *config.DirectResponse) { c.BodyFile += ".missing" },
		func(c *config.DirectResponse) { c.Status = 204 },
	} {
		r, c := newRig(t), s.snapshot(t)
		direct := c.Routes[0].VirtualHosts[0].Routes[0].DirectResponse
		direct.BodyFile, direct.MaxFileSize = path, 11
		change(direct)
		if err := r.server.Apply(t.Context(), config.FullDelta(c)); err == nil {
			t.Errorf("%+v: Apply succeeded, want an error", direct)
		}
	}
}
