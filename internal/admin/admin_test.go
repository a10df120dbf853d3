package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testEndpoints returns GET endpoints, and one POST endpoint that calls drain.
func testEndpoints(drain func()) []Endpoint {
	page := func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusOK, "page") }
	return []Endpoint{
		{Method: "GET", Path: "/ready", Doc: "Readiness.", Handler: page},
		{Method: "GET", Path: "/clusters?name=NAME", Doc: "Clusters.", Handler: page},
		{Method: "GET", Path: "/config_dump", Doc: "Configuration.", Handler: page},
		{Method: "POST", Path: "/drain", Doc: "Drain.", Handler: func(w http.ResponseWriter, _ *http.Request) {
			drain()
			WriteJSON(w, http.StatusAccepted, "draining")
		}},
		{Method: "GET", Path: "/missing", Doc: "A page without a handler."},
	}
}

func writeMetrics(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "weft_draining 0\n")
}

// request calls h with a request for 127.0.0.1:34901 and returns the response. headers alternate
// names and values; "Host" replaces the host.
func request(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:34901"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestEndpointWithoutHandlerDoesNotExist(t *testing.T) {
	h := NewHandler(Options{Endpoints: testEndpoints(nil)})
	if w := request(h, "GET", "/missing"); w.Code != 404 || !strings.Contains(w.Body.String(), "page not found") {
		t.Errorf("status %d, body %s; want 404 and \"page not found\"", w.Code, w.Body)
	}
	if got := request(h, "GET", "/").Body.String(); strings.Contains(got, "/missing") || !strings.Contains(got, "/ready") {
		t.Errorf("index:\n%s; want /ready and not /missing", got)
	}
}

func TestPprof(t *testing.T) {
	h := NewHandler(Options{Endpoints: []Endpoint{{Method: "GET", Path: PprofPath, Doc: "Profiles.", Handler: ServePprof}}})
	for target, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/symbol": "num_symbols",
	} {
		if w := request(h, "GET", target); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: status %d, body %.80s; want 200 and %q", target, w.Code, w.Body, want)
		}
	}
	if w := request(h, "GET", "/debug/pprof/cmdline"); w.Code != 404 {
		t.Errorf("cmdline, which may contain secrets: status %d, want 404", w.Code)
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
		{"page of this origin", "POST", "/drain", []string{"Origin", "http://127.0.0.1:34901", "Sec-Fetch-Site", "same-origin"}, 202},
		{"form of another site", "POST", "/drain", []string{"Origin", "http://evil.example"}, 403},
		{"page on another port of this machine", "POST", "/drain", []string{"Origin", "http://127.0.0.1:8080"}, 403},
		{"sandboxed page", "POST", "/drain", []string{"Origin", "null"}, 403},
		{"cross-site request without an origin", "POST", "/drain", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"image of another site", "GET", "/clusters", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"script of another site", "GET", "/clusters", []string{"Origin", "https://evil.example"}, 403},
		{"link on another site", "GET", "/clusters", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"entered address", "GET", "/clusters", []string{"Sec-Fetch-Site", "none"}, 200},
		{"foreign host name", "GET", "/config_dump", []string{"Host", "evil.example"}, 403},
		{"foreign host name with a port", "GET", "/config_dump", []string{"Host", "evil.example:34901"}, 403},
		{"host name with the prefix localhost", "GET", "/config_dump", []string{"Host", "localhost.evil.example"}, 403},
		{"host name with the prefix of an address", "GET", "/config_dump", []string{"Host", "127.0.0.1.evil.example"}, 403},
		{"empty host name", "GET", "/config_dump", []string{"Host", ""}, 403},
		{"localhost", "GET", "/config_dump", []string{"Host", "LocalHost:34901"}, 200},
		{"IPv6", "GET", "/config_dump", []string{"Host", "[::1]:34901"}, 200},
		{"IPv6 without a port", "GET", "/config_dump", []string{"Host", "[::1]"}, 200},
		{"allowed host name", "GET", "/config_dump", []string{"Host", "weft.Internal:80"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			drained := 0
			h := NewHandler(Options{Hosts: []string{"Weft.internal"}, Endpoints: testEndpoints(func() { drained++ })})
			w := request(h, c.method, c.target, c.fields...)
			if w.Code != c.want {
				t.Errorf("status %d, want %d: %s", w.Code, c.want, w.Body)
			}
			if c.want == 403 && drained != 0 {
				t.Error("the rejected request called drain")
			}
		})
	}
}

func TestUnencodableResponseIsInternalError(t *testing.T) {
	w := httptest.NewRecorder()
	WriteJSON(w, http.StatusOK, func() {})
	if w.Code != 500 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("status %d, body %s; want 500 and JSON", w.Code, w.Body)
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
			t.Errorf("Run: %v; want no error", err)
		}
	})
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestListenTCP(t *testing.T) {
	var log bytes.Buffer
	s, err := Listen(t.Context(), Options{Address: "127.0.0.1:0", Endpoints: testEndpoints(nil),
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, s)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	if status, body := get(t, client, "http://"+s.Addr().String()+"/ready"); status != 200 {
		t.Errorf("%d %s; want 200", status, body)
	}
	if log.Len() != 0 {
		t.Errorf("log for a loopback port: %s, want none", &log)
	}
	if _, err := Listen(t.Context(), Options{Address: s.Addr().String()}); err == nil || !strings.Contains(err.Error(), "admin: ") {
		t.Errorf("Listen on an address in use: %v; want an error that begins with admin", err)
	}
}

func TestListenUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close() // leaves the socket file, like a killed process

	s, err := Listen(t.Context(), Options{Address: path, Endpoints: testEndpoints(nil)})
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
		t.Errorf("%d %s; want 200", status, body)
	}
	stat, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := stat.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %v, want 0600", got)
	}
	if _, err := Listen(t.Context(), Options{Address: path}); err == nil {
		t.Error("Listen replaced a socket in use")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), Options{Address: file}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("Listen on a regular file: %v; want an error with \"not a socket\"", err)
	}
}

func TestListenMetrics(t *testing.T) {
	s, err := ListenMetrics(t.Context(), "127.0.0.1:0", "/scrape", http.HandlerFunc(writeMetrics), nil)
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, s)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	if status, body := get(t, client, "http://"+s.Addr().String()+"/scrape"); status != 200 || body != "weft_draining 0\n" {
		t.Errorf("%d %s; want 200 and weft_draining 0", status, body)
	}
	if status, _ := get(t, client, "http://"+s.Addr().String()+"/config_dump"); status != 404 {
		t.Errorf("/config_dump: %d, want 404", status)
	}
}

func TestRunReportsSocketError(t *testing.T) {
	s, err := Listen(t.Context(), Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "admin: ") {
		t.Errorf("Run after Close: %v; want an error that begins with admin", err)
	}
}

func TestOnlyAllowedHostNamesAreServed(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []string
		host    string
		status  int
	}{
		"address":                      {nil, "10.0.0.1:34901", 200},
		"localhost":                    {nil, "localhost:34901", 200},
		"no allowed name":              {nil, "weft.test:34901", 403},
		"allowed name":                 {[]string{"weft.test"}, "WEFT.test:34901", 200},
		"subdomain of an allowed name": {[]string{"weft.test"}, "a.weft.test", 403},
		"name below a suffix":          {[]string{"*.mesh.test"}, "a.b.mesh.test", 200},
		"suffix itself":                {[]string{"*.mesh.test"}, "mesh.test", 403},
		"name that ends with the suffix without a dot": {[]string{"*.mesh.test"}, "evilmesh.test", 403},
		"empty label below a suffix":                   {[]string{"*.mesh.test"}, ".mesh.test", 403},
	} {
		t.Run(name, func(t *testing.T) {
			w := request(NewHandler(Options{Hosts: c.allowed, Endpoints: testEndpoints(nil)}), "GET", "/ready", "Host", c.host)
			if w.Code != c.status {
				t.Errorf("Host %s: status %d, want %d: %s", c.host, w.Code, c.status, w.Body)
			}
			if w.Code == 403 && !strings.Contains(w.Body.String(), "admin.allowed_hosts") {
				t.Errorf("response %q, want admin.allowed_hosts in it", w.Body)
			}
		})
	}
}
