package e2e

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/test/xds/control"
)

// xdsExample runs xds.json with the sample control plane, and changes its resources.
func xdsExample(t *testing.T) {
	e := loadExample(t, "xds.json")
	resources := loadExample(t, "../test/xds/sample/resources.json")
	app := startUpstream(t, respondWith("application"))
	_, port, _ := net.SplitHostPort(app.address)
	resources.replace(resources.port["8080"], port)
	path := filepath.Join(t.TempDir(), "resources.json")
	write := func() {
		t.Helper()
		if err := os.WriteFile(path, []byte(resources.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	ln, err := net.Listen("tcp", e.address("18000"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = control.Serve(ctx, ln, path, slog.New(slog.DiscardHandler)) })
	defer wg.Wait()
	defer cancel()

	w := e.run("xds.json")
	w.admin = e.address("34901")
	url := "http://" + resources.address("2090")
	responds := func(text string) func() bool {
		return func() bool {
			got, err := tryRequest(t.Context(), newClient(t), "GET", url+"/hello", "")
			return err == nil && got.body == text
		}
	}
	eventually(t, "the listener responds", responds("Hello from the control plane.\n"))
	if got := sendRequest(t, newClient(t), "GET", url+"/", ""); got.body != "application" {
		t.Errorf("response of the upstream: %d %q, want \"application\"", got.status, got.body)
	}
	resources.replace("Hello from the control plane", "Hello again")
	write()
	eventually(t, "the changed route is active", responds("Hello again.\n"))
}
