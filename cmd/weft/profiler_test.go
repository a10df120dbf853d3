package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config/configjson"
)

// TestProfilerPort verifies that pprof.port_value opens a port that serves profiles and no other
// page of the admin port, and rejects requests of foreign web pages like the admin port.
func TestProfilerPort(t *testing.T) {
	text := configText(listenerText("front", "127.0.0.1:0", ""), `"pprof": {"debug": true, "port_value": 1803}, `, "")
	p, _ := startProcess(t, text, func(file *configjson.File) {
		file.Snapshot.Profiler = "127.0.0.1:0" // a free port instead of 1803
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, nil) }()
	defer func() { cancel(); <-ended }()

	client := &http.Client{}
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		target, host string
		status       int
		text         string
	}{
		{"/debug/pprof/", "", 200, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile"},
		{"/config_dump", "", 404, "page not found"},
		{"/debug/pprof/", "evil.example", 403, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.ports[0].Addr().String()+c.target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != c.status || !strings.Contains(string(body), c.text) {
			t.Errorf("GET %s with the host %q: %d %.80s, want %d and %q", c.target, c.host, response.StatusCode, body, c.status, c.text)
		}
	}
}
