package resource

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/internal/unixaddr"
)

// TestPipeIsUnixSocket verifies that the path of a pipe is never dialed as host:port.
func TestPipeIsUnixSocket(t *testing.T) {
	for path, want := range map[string]string{
		"/run/app.sock":  "/run/app.sock",
		"./app.sock":     "./app.sock",
		"../app.sock":    "../app.sock",
		"run/app.sock":   "run/app.sock",
		"localhost:8080": "./localhost:8080",
		"@app":           "@app",
	} {
		p := fieldReader{report: &report{}}
		got, ok := p.readAddress(&corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}, true)
		if !ok || got != want || !unixaddr.Is(got) {
			t.Errorf("readAddress(pipe %q) = %q, %v; want the unix socket %q", path, got, ok, want)
		}
	}
}
