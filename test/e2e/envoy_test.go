package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// envoyBootstrapExample verifies that an Envoy bootstrap file works unchanged and reloads.
func envoyBootstrapExample(t *testing.T) {
	e := loadExample(t, "envoy_bootstrap.yaml")
	startUpstreamAt(t, e.address("8080"), describeRequest)
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	write := func() {
		t.Helper()
		if err := os.WriteFile(path, []byte(e.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	w := launchWeft(t, launchOptions{args: []string{"start", "-c", path}})
	w.awaitReady()
	w.admin = e.address("9901")
	url := "http://" + e.address("10000")
	if got := sendRequest(t, newClient(t), "GET", url+"/hello", ""); got.status != 200 || got.body != "Hello from a file for Envoy.\n" {
		t.Errorf("/hello: %d %q; want 200 and the text of the file", got.status, got.body)
	}
	if got := sendRequest(t, newClient(t), "GET", url+"/app/x", ""); got.status != 200 || !strings.HasPrefix(got.body, "GET /x ") {
		t.Errorf("/app/x: %d %q, want the response of the upstream", got.status, got.body)
	}
	w.stdout.await(t, 0, "GET /app/x 200") // the access log
	if got := w.adminGet("/config_dump?resource=static_listeners"); !strings.Contains(got, "StaticListener") || !strings.Contains(got, "local_route") {
		t.Errorf("/config_dump lacks the listener: %s", got)
	}
	if out, _, status := command(t, "check", "-c", path); status != 0 || !strings.Contains(out, "ok: 1 listener, 1 route table, 1 cluster") {
		t.Errorf("check ends with %d: %s; want 0, \"ok: 1 listener, 1 route table, 1 cluster\"", status, out)
	}
	if out, _, status := command(t, "explain", "-c", path, url+"/app/"); status != 0 || !strings.Contains(out, `cluster "app"`) {
		t.Errorf("explain ends with %d: %s", status, out)
	}

	e.replace("Hello from a file for Envoy", "Hello again")
	write()
	w.signal(sighup)
	w.stderr.await(t, 0, "configuration applied")
	if got := sendRequest(t, newClient(t), "GET", url+"/hello", ""); got.body != "Hello again.\n" {
		t.Errorf("/hello after the change: %d %q; want the changed text", got.status, got.body)
	}
	e.replace("prefix_rewrite: /,", "cluster_specifier_plugin: p,")
	write()
	w.signal(sighup)
	w.stderr.await(t, 0, "configuration rejected, the previous one stays active")
	w.stderr.await(t, 0, "envoy.yaml:") // the position of the error
	if got := sendRequest(t, newClient(t), "GET", url+"/app/x", ""); got.status != 200 {
		t.Errorf("/app/x after a rejected file: %d, want 200", got.status)
	}
}
