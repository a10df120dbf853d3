package admin

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestReload(t *testing.T) {
	for name, c := range map[string]struct {
		result Reload
		failed error
		status int
		body   string
	}{
		"applied": {Reload{Source: "a.json", Applied: true, Restart: []string{"admin.address"}}, nil, 200,
			`{"source":"a.json","applied":true,"restart":["admin.address"]}`},
		"refused": {Reload{Source: "a.json", Problems: []string{"a.json:1:2: no"}}, nil, 422,
			`{"source":"a.json","applied":false,"problems":["a.json:1:2:no"]}`},
		"given up": {Reload{}, context.Canceled, 503, `{"error":"contextcanceled"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess()
			p.reload, p.reloadFailed = c.result, c.failed
			h := newHandler(Options{Sources: p.sources()})
			w := request(h, "POST", "/reload")
			if got := strings.Join(strings.Fields(w.Body.String()), ""); w.Code != c.status || got != c.body {
				t.Errorf("status %d, %s; want %d, %s", w.Code, got, c.status, c.body)
			}
			if w := request(h, "POST", "/reload", "Origin", "http://evil.test"); w.Code != http.StatusForbidden {
				t.Errorf("a page from elsewhere may reload: status %d", w.Code)
			}
		})
	}
}

func TestOnlyAllowedHostNamesAreServed(t *testing.T) {
	p := newProcess()
	for name, c := range map[string]struct {
		allowed []string
		host    string
		status  int
	}{
		"an address":                  {nil, "10.0.0.1:34901", 200},
		"localhost":                   {nil, "localhost:34901", 200},
		"a name, and none is allowed": {nil, "weft.test:34901", 403},
		"the name that is allowed":    {[]string{"weft.test"}, "WEFT.test:34901", 200},
		"a name below it":             {[]string{"weft.test"}, "a.weft.test", 403},
		"a name below a suffix":       {[]string{"*.mesh.test"}, "a.b.mesh.test", 200},
		"the suffix itself":           {[]string{"*.mesh.test"}, "mesh.test", 403},
		"a name that ends alike":      {[]string{"*.mesh.test"}, "evilmesh.test", 403},
		"nothing but the suffix":      {[]string{"*.mesh.test"}, ".mesh.test", 403},
	} {
		t.Run(name, func(t *testing.T) {
			w := request(newHandler(Options{Hosts: c.allowed, Sources: p.sources()}), "GET", "/ready", "Host", c.host)
			if w.Code != c.status {
				t.Errorf("Host %s: status %d, want %d: %s", c.host, w.Code, c.status, w.Body)
			}
			if w.Code == 403 && !strings.Contains(w.Body.String(), "admin.allowed_hosts") {
				t.Errorf("the response does not mention admin.allowed_hosts: %s", w.Body)
			}
		})
	}
}
