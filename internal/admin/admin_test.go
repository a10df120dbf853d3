package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// process holds what the sources of the tests return.
type process struct {
	state   State
	level   string
	drained int

	reload       Reload
	reloadFailed error

	overload any
	xds      any
}

func (p *process) sources() Sources {
	named := func(all ...string) func(string) any {
		return func(name string) any {
			if name == "" {
				return all
			}
			for _, one := range all {
				if one == name {
					return one
				}
			}
			return nil
		}
	}
	return Sources{
		State: func() State { return p.state },
		Config: func() Config {
			return Config{
				Source: "config.json", Hash: "abc", Applied: time.Unix(0, 0).UTC(),
				Rejected: &Rejection{At: time.Unix(60, 0).UTC(), Reasons: []string{"config.json:1:2: no"}},
				Config:   json.RawMessage(`{"servers":[]}`),
			}
		},
		Clusters:      named("shop", "pay"),
		EnvoyClusters: func() any { return map[string][]string{"cluster_statuses": {}} },

		Listeners: named("in"),
		Routes:    named("table"),
		Overload:  func() any { return p.overload },
		XDS:       func() any { return p.xds },
		Dump: func(resource string, endpoints bool) ([]any, error) {
			switch {
			case p.xds == nil:
				return nil, nil
			case resource == "colours":
				return nil, errors.New("resource=colours is not known")
			case endpoints:
				return []any{"all", "endpoints"}, nil
			}
			return []any{resource}, nil
		},
		Stats:      func() []Stat { return []Stat{{Name: "server.live", Value: 1}} },
		ServerInfo: func() any { return map[string]string{"state": "LIVE"} },
		Explain: func(question url.Values) (any, error) {
			if question.Get("url") == "" {
				return nil, errors.New("url is missing")
			}
			return map[string]string{"request": question.Get("url")}, nil
		},
		Level: func() string { return p.level },
		SetLevel: func(level string) error {
			if level != "debug" {
				return errors.New("unknown level " + level + ": want debug or info")
			}
			p.level = level
			return nil
		},
		Version: func() Version { return Version{"1.0", "abc", "go1.26"} },
		Drain:   func() { p.drained++; p.state = Draining },
		Reload:  func(context.Context) (Reload, error) { return p.reload, p.reloadFailed },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "weft_draining 0\n") }),
	}
}

func newProcess() *process { return &process{state: Ready, level: "info"} }

// request sends a request as curl would; fields are pairs of name and value.
func request(h http.Handler, method, target string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:34901"
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		} else {
			r.Header.Set(fields[i], fields[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOverload(t *testing.T) {
	p := newProcess()
	p.overload = map[string]string{"refresh_interval": "250ms"}
	w := request(newHandler(Options{Sources: p.sources()}), "GET", "/overload")
	if got := strings.Join(strings.Fields(w.Body.String()), ""); w.Code != 200 || got != `{"refresh_interval":"250ms"}` {
		t.Errorf("status %d, body %s", w.Code, got)
	}
}

func TestXDS(t *testing.T) {
	p := newProcess()
	p.xds = map[string]string{"node": "n"}
	w := request(newHandler(Options{Sources: p.sources()}), "GET", "/xds")
	if got := strings.Join(strings.Fields(w.Body.String()), ""); w.Code != 200 || got != `{"node":"n"}` {
		t.Errorf("status %d, body %s", w.Code, got)
	}
}

func TestConfigDumpIncludesXDSResources(t *testing.T) {
	p := newProcess()
	p.xds = "there"
	for target, want := range map[string]string{
		"/config_dump?resource=bootstrap": `{"configs":["bootstrap"]}`,
		"/config_dump?resource=colours":   `{"error":"resource=coloursisnotknown","hint":"omit?resource=toshowallresources"}`,
		"/config_dump?include_eds":        `"configs":["all","endpoints"]}`,
		"/config_dump":                    `"configs":[""]}`,
	} {
		w := request(newHandler(Options{Sources: p.sources()}), "GET", target)
		if got := strings.Join(strings.Fields(w.Body.String()), ""); !strings.HasSuffix(got, want) {
			t.Errorf("%s: body %s, want %s", target, got, want)
		}
	}
}

func TestEveryEndpointResponds(t *testing.T) {
	for _, c := range []struct {
		method, target string
		status         int
		body           string // JSON, or text if it does not parse
	}{
		{"GET", "/ready", 200, `{"state":"ready"}`},
		{"HEAD", "/ready", 200, ""},
		{"GET", "/healthz", 200, `{"state":"alive"}`},
		{"GET", "/stats/prometheus", 200, "weft_draining 0\n"},
		{"GET", "/metrics", 200, "weft_draining 0\n"},
		{"GET", "/config_dump", 200, `{"source":"config.json","hash":"abc","applied":"1970-01-01T00:00:00Z",
			"rejected":{"at":"1970-01-01T00:01:00Z","reasons":["config.json:1:2: no"]},"config":{"servers":[]}}`},
		{"GET", "/clusters", 200, `["shop","pay"]`},
		{"GET", "/clusters?format=json", 200, `{"cluster_statuses":[]}`},
		{"GET", "/clusters?name=pay", 200, `"pay"`},
		{"GET", "/clusters?name=no", 404, `{"error":"there is no cluster called no","hint":"omit ?name= to list all"}`},
		{"GET", "/listeners", 200, `["in"]`},
		{"GET", "/listeners?name=x", 404, `{"error":"there is no listener called x","hint":"omit ?name= to list all"}`},
		{"GET", "/routes?name=table", 200, `"table"`},
		{"GET", "/overload", 404, `{"error":"no overload manager is configured"}`},
		{"GET", "/config_dump?resource=bootstrap", 404, `{"error":"no control plane is configured","hint":"omit ?resource= to show all resources"}`},
		{"GET", "/server_info", 200, `{"state":"LIVE"}`},
		{"GET", "/xds", 404, `{"error":"no control plane is configured","hint":"see docs/xds.md"}`},
		{"GET", "/explain?url=http://a/", 200, `{"request":"http://a/"}`},
		{"GET", "/explain", 400, `{"error":"url is missing","hint":"/explain?url=http://host/path, or weft explain"}`},
		{"GET", "/logging", 200, `{"level":"info"}`},
		{"POST", "/logging?level=debug", 200, `{"level":"debug"}`},
		{"PUT", "/logging?level=debug", 200, `{"level":"debug"}`},
		{"POST", "/logging?level=loud", 400, `{"error":"unknown level loud: want debug or info"}`},
		{"POST", "/logging", 400, `{"error":"the parameter level is missing","hint":"/logging?level=debug"}`},
		{"GET", "/version", 200, `{"version":"1.0","revision":"abc","go":"go1.26"}`},
		{"POST", "/drain", 202, `{"state":"draining"}`},
		{"GET", "/nothing", 404, `{"error":"page not found","hint":"/ lists all pages"}`},
		{"GET", "/debug/pprof/", 404, `{"error":"page not found","hint":"/ lists all pages"}`},
	} {
		t.Run(c.method+" "+c.target, func(t *testing.T) {
			w := request(newHandler(Options{Sources: newProcess().sources()}), c.method, c.target)
			if w.Code != c.status {
				t.Errorf("status %d, want %d", w.Code, c.status)
			}
			if c.body == "" {
				return
			}
			if !json.Valid([]byte(c.body)) {
				if got := w.Body.String(); got != c.body {
					t.Errorf("body %q, want %q", got, c.body)
				}
				return
			}
			var got, want any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("body %s: %v", w.Body, err)
			}
			if err := json.Unmarshal([]byte(c.body), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json; charset=utf-8" {
				t.Errorf("Content-Type %q", got)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control %q: a cached response would be stale", got)
			}
		})
	}
}

func TestReady(t *testing.T) {
	for state, want := range map[State]int{Starting: 503, Ready: 200, Draining: 503} {
		p := &process{state: state}
		if w := request(newHandler(Options{Sources: p.sources()}), "GET", "/ready"); w.Code != want || !strings.Contains(w.Body.String(), string(state)) {
			t.Errorf("%s: %d %s, want %d", state, w.Code, w.Body, want)
		}
		if w := request(newHandler(Options{Sources: p.sources()}), "GET", "/healthz"); w.Code != 200 {
			t.Errorf("%s: /healthz says %d", state, w.Code)
		}
	}
}

func TestCommandsRequirePost(t *testing.T) {
	for _, target := range []string{"/drain", "/logging?level=debug"} {
		for _, method := range []string{"GET", "HEAD", "DELETE", "PATCH", "OPTIONS"} {
			p := newProcess()
			w := request(newHandler(Options{Sources: p.sources()}), method, target)
			if p.drained != 0 || p.level != "info" {
				t.Errorf("%s %s changed the process", method, target)
			}
			if target == "/drain" && (w.Code != 405 || w.Header().Get("Allow") != "POST") {
				t.Errorf("%s %s: status %d, Allow %q, want 405 and POST", method, target, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestCrossSiteRequestsAreRejected(t *testing.T) {
	for _, c := range []struct {
		name           string
		method, target string
		fields         []string
		want           int
	}{
		{"curl", "POST", "/drain", nil, 202},
		{"our own page", "POST", "/drain", []string{"Origin", "http://127.0.0.1:34901", "Sec-Fetch-Site", "same-origin"}, 202},
		{"a form of another site", "POST", "/drain", []string{"Origin", "http://evil.example"}, 403},
		{"a page on another port of this machine", "POST", "/drain", []string{"Origin", "http://127.0.0.1:8080"}, 403},
		{"a sandboxed page", "POST", "/drain", []string{"Origin", "null"}, 403},
		{"a browser that says so without an origin", "POST", "/drain", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"an image of another site", "GET", "/clusters", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"a script of another site", "GET", "/clusters", []string{"Origin", "https://evil.example"}, 403},
		{"a link on another site", "GET", "/clusters", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"an address typed in", "GET", "/clusters", []string{"Sec-Fetch-Site", "none"}, 200},
		{"a name that resolves to us", "GET", "/config_dump", []string{"Host", "evil.example"}, 403},
		{"the same with a port", "GET", "/config_dump", []string{"Host", "evil.example:34901"}, 403},
		{"a name that begins like ours", "GET", "/config_dump", []string{"Host", "localhost.evil.example"}, 403},
		{"a name like an address", "GET", "/config_dump", []string{"Host", "127.0.0.1.evil.example"}, 403},
		{"no name", "GET", "/config_dump", []string{"Host", ""}, 403},
		{"localhost", "GET", "/config_dump", []string{"Host", "LocalHost:34901"}, 200},
		{"IPv6", "GET", "/config_dump", []string{"Host", "[::1]:34901"}, 200},
		{"IPv6 without a port", "GET", "/config_dump", []string{"Host", "[::1]"}, 200},
		{"a configured name", "GET", "/config_dump", []string{"Host", "weft.Internal:80"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProcess()
			w := request(newHandler(Options{Hosts: []string{"Weft.internal"}, Sources: p.sources()}), c.method, c.target, c.fields...)
			if w.Code != c.want {
				t.Errorf("status %d, want %d: %s", w.Code, c.want, w.Body)
			}
			if c.want == 403 && p.drained != 0 {
				t.Error("it drained")
			}
		})
	}
}

func TestEndpointsWithoutASourceDoNotExist(t *testing.T) {
	h := newHandler(Options{})
	for _, e := range Endpoints() {
		want := 404
		if e.Path == "/healthz" {
			want = 200
		}
		if w := request(h, e.Method, e.Path); w.Code != want {
			t.Errorf("%s %s: status %d, want %d", e.Method, e.Path, w.Code, want)
		}
	}
	if got := request(h, "GET", "/").Body.String(); strings.Contains(got, "/drain") || !strings.Contains(got, "/healthz") {
		t.Errorf("the index lists missing endpoints:\n%s", got)
	}
}

func TestIndexListsEverything(t *testing.T) {
	h := newHandler(Options{Sources: newProcess().sources(), Pprof: true})
	text := request(h, "GET", "/")
	html := request(h, "GET", "/", "Accept", "text/html,*/*")
	if got := html.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("a browser gets %q", got)
	}
	if got := text.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("curl gets %q", got)
	}
	for _, e := range Endpoints() {
		if !strings.Contains(text.Body.String(), e.Path) || !strings.Contains(html.Body.String(), e.Path) {
			t.Errorf("%s is missing", e.Path)
		}
		if link := `<a href="` + e.Route() + `">`; e.Method == "GET" && !strings.Contains(html.Body.String(), link) {
			t.Errorf("%s is not linked", e.Path)
		}
	}
	if strings.Contains(html.Body.String(), `href="/drain"`) {
		t.Error("following a link drains the process")
	}
}

func TestPprof(t *testing.T) {
	h := newHandler(Options{Pprof: true})
	for target, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/symbol": "num_symbols",
	} {
		if w := request(h, "GET", target); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %.80s", target, w.Code, w.Body)
		}
	}
	if w := request(h, "GET", "/debug/pprof/cmdline"); w.Code != 404 {
		t.Errorf("cmdline, which may hold secrets, is shown: %d", w.Code)
	}
}

func TestUnencodableResponseIsInternalError(t *testing.T) {
	h := newHandler(Options{Sources: Sources{Clusters: func(string) any { return func() {} }}})
	if w := request(h, "GET", "/clusters"); w.Code != 500 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("status %d, body %s", w.Code, w.Body)
	}
}

// runServer serves the port until the test ends.
func runServer(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	answer, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestListenTCP(t *testing.T) {
	var log bytes.Buffer
	s, err := Listen(t.Context(), Options{Address: "127.0.0.1:0", Sources: newProcess().sources(),
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, s)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	if status, body := get(t, client, "http://"+s.Addr().String()+"/ready"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if log.Len() != 0 {
		t.Errorf("a loopback port is warned of: %s", &log)
	}
	if _, err := Listen(t.Context(), Options{Address: s.Addr().String()}); err == nil || !strings.Contains(err.Error(), "admin: ") {
		t.Errorf("the same address twice: %v", err)
	}
}

func TestListenUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close() // leaves the socket file, like a killed process

	s, err := Listen(t.Context(), Options{Address: path, Sources: newProcess().sources()})
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, s)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	if status, body := get(t, client, "http://any-name/ready"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	stat, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := stat.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %v: others may use it", got)
	}
	if _, err := Listen(t.Context(), Options{Address: path}); err == nil {
		t.Error("a socket in use was replaced")
	}
	plain := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plain, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), Options{Address: plain}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a regular file was accepted as a socket: %v", err)
	}
}

func TestMetricsPortHasMetricsOnly(t *testing.T) {
	s, err := ListenMetrics(t.Context(), "127.0.0.1:0", "/scrape", newProcess().sources().Metrics, nil)
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, s)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	if status, body := get(t, client, "http://"+s.Addr().String()+"/scrape"); status != 200 || body != "weft_draining 0\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := get(t, client, "http://"+s.Addr().String()+"/config_dump"); status != 404 {
		t.Errorf("/config_dump: %d, want 404", status)
	}
}

func TestRunReportsASocketThatFailed(t *testing.T) {
	s, err := Listen(t.Context(), Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "admin: ") {
		t.Errorf("Run of a closed socket: %v", err)
	}
}
