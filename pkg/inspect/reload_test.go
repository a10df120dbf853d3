package inspect

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestReload(t *testing.T) {
	for name, c := range map[string]struct {
		result Reload
		err    error
		status int
		body   string
	}{
		"applied": {Reload{Source: "a.json", Applied: true, Restart: []string{"admin.address"}}, nil, 200,
			`{"source":"a.json","applied":true,"restart":["admin.address"]}`},
		"rejected": {Reload{Source: "a.json", Problems: []string{"a.json:1:2: no"}}, nil, 422,
			`{"source":"a.json","applied":false,"problems":["a.json:1:2:no"]}`},
		"canceled": {Reload{}, context.Canceled, 503, `{"error":"contextcanceled"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess()
			p.reload, p.reloadErr = c.result, c.err
			h := newHandler(p.sources())
			w := request(h, "POST", "/reload")
			if got := strings.Join(strings.Fields(w.Body.String()), ""); w.Code != c.status || got != c.body {
				t.Errorf("status %d, %s; want %d, %s", w.Code, got, c.status, c.body)
			}
			if w := request(h, "POST", "/reload", "Origin", "http://evil.test"); w.Code != http.StatusForbidden {
				t.Errorf("a request of another origin may reload: status %d, want %d", w.Code, http.StatusForbidden)
			}
		})
	}
}
