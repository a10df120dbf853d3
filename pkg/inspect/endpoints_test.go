package inspect

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/admin"
)

// newHandler returns the handler of an admin port with these sources.
func newHandler(s Sources) http.Handler {
	return admin.NewHandler(admin.Options{Endpoints: Endpoints(s)})
}

// request calls h with a request for 127.0.0.1:34901 and returns the response. headers are pairs of
// name and value; "Host" replaces the host.
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

func TestReady(t *testing.T) {
	for state, want := range map[State]int{Starting: 503, Ready: 200, Draining: 503} {
		p := &process{state: state}
		for _, method := range []string{"GET", "HEAD"} {
			if w := request(newHandler(p.sources()), method, "/ready"); w.Code != want || !strings.Contains(w.Body.String(), string(state)) {
				t.Errorf("%s %s: %d %s, want %d", method, state, w.Code, w.Body, want)
			}
		}
		if w := request(newHandler(p.sources()), "GET", "/healthz"); w.Code != 200 {
			t.Errorf("%s: /healthz responds with %d, want 200", state, w.Code)
		}
	}
}

func TestCommandsRequirePost(t *testing.T) {
	for _, target := range []string{"/drain", "/quitquitquit", "/logging?level=debug"} {
		for _, method := range []string{"GET", "HEAD", "DELETE", "PATCH", "OPTIONS"} {
			p := newProcess()
			w := request(newHandler(p.sources()), method, target)
			if p.drained+p.exited != 0 || p.level != "info" {
				t.Errorf("%s %s changed the process", method, target)
			}
			if target != "/logging?level=debug" && (w.Code != 405 || w.Header().Get("Allow") != "POST") {
				t.Errorf("%s %s: status %d, Allow %q, want 405 and POST", method, target, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestEndpointsRequireSource(t *testing.T) {
	h := newHandler(Sources{})
	for _, e := range Endpoints(Sources{}) {
		want := 404
		if e.Path == "/healthz" || e.Path == "/help" || e.Path == "/hot_restart_version" {
			want = 200
		}
		if w := request(h, e.Method, e.Path); w.Code != want {
			t.Errorf("%s %s: status %d, want %d", e.Method, e.Path, w.Code, want)
		}
	}
	if got := request(h, "GET", "/").Body.String(); strings.Contains(got, "/drain") || !strings.Contains(got, "/healthz") {
		t.Errorf("the index must contain /healthz and not /drain, which does not exist:\n%s", got)
	}
}

func TestIndexListsEverything(t *testing.T) {
	s := newProcess().sources()
	s.Pprof = true
	h := newHandler(s)
	text := request(h, "GET", "/")
	html := request(h, "GET", "/", "Accept", "text/html,*/*")
	if got := html.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("the Content-Type for a browser is %q, want %q", got, "text/html; charset=utf-8")
	}
	if got := text.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("the Content-Type for curl is %q, want %q", got, "text/plain; charset=utf-8")
	}
	for _, e := range Endpoints(Sources{}) {
		if !strings.Contains(text.Body.String(), e.Path) || !strings.Contains(html.Body.String(), e.Path) {
			t.Errorf("%s is missing", e.Path)
		}
		if link := `<a href="` + e.Route() + `">`; e.Method == "GET" && !strings.Contains(html.Body.String(), link) {
			t.Errorf("%s is not linked", e.Path)
		}
	}
	if strings.Contains(html.Body.String(), `href="/drain"`) {
		t.Error("the index links to /drain, want no link that drains the process")
	}
}

// TestHealthCommands verifies that /healthcheck/fail and /healthcheck/ok change the state, and that
// only POST requests do.
func TestHealthCommands(t *testing.T) {
	p := newProcess()
	h := newHandler(p.sources())
	for _, step := range []struct {
		method, path string
		status       int
		want         State
	}{
		{"GET", "/healthcheck/fail", 405, Ready},
		{"POST", "/healthcheck/fail", 200, Draining},
		{"GET", "/healthcheck/ok", 405, Draining},
		{"POST", "/healthcheck/ok", 200, Ready},
	} {
		w := request(h, step.method, step.path)
		if w.Code != step.status || p.state != step.want || w.Code == 200 && w.Body.String() != "OK\n" {
			t.Errorf("%s %s: status %d, body %q, state %s; want %d and %s", step.method, step.path, w.Code, w.Body, p.state, step.status, step.want)
		}
	}
}

func TestDrainListenersParameters(t *testing.T) {
	p := newProcess()
	h := newHandler(p.sources())
	for query, want := range map[string]DrainListeners{
		"": {}, "?graceful": {Graceful: true}, "?inboundonly&graceful=true": {InboundOnly: true, Graceful: true},
		"?graceful&skip_exit": {Graceful: true, SkipExit: true}, "?inboundonly=false": {InboundOnly: true},
	} {
		p.drains = nil
		w := request(h, "POST", "/drain_listeners"+query)
		if w.Code != 200 || w.Body.String() != "OK\n" || !slices.Equal(p.drains, []DrainListeners{want}) {
			t.Errorf("%s: status %d, body %q, %+v, want %+v", query, w.Code, w.Body, p.drains, want)
		}
	}
	if w := request(h, "GET", "/drain_listeners"); w.Code != 405 {
		t.Errorf("GET: status %d, want 405", w.Code)
	}
}
