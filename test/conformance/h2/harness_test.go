package h2

import (
	"io"
	"net/http"
	"testing"
)

// TestHarnessRunsWeft verifies that the harness works with HTTP/1.1, so that a skipped HTTP/2
// test depends only on the protocol.
func TestHarnessRunsWeft(t *testing.T) {
	t.Parallel()
	o := startOrigin(t, false)
	w := startWeft(t, listener{downstream: "Http1", hosts: []string{o.address}})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: waitTimeout}
	for path, want := range map[string]string{
		"/direct": "response of the proxy\n",
		"/other":  "GET /other 1 0\n",
	} {
		r, err := client.Get("http://" + w.addresses[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		_ = r.Body.Close() // the body was read
		if err != nil || string(got) != want {
			t.Errorf("GET %s = %q, %v, want %q", path, got, err, want)
		}
	}
	transport.CloseIdleConnections()
	w.terminate(t)
	if status := w.awaitExit(t, waitTimeout); status != 0 {
		t.Errorf("weft exited with status %d after SIGTERM, want 0", status)
	}
}
