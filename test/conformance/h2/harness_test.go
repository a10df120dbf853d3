package h2

import (
	"io"
	"net/http"
	"testing"
)

// TestTheHarnessRunsWeft starts Weft for HTTP/1.1 as the other tests do for
// HTTP/2, so that a skip of theirs is about the protocol alone.
func TestTheHarnessRunsWeft(t *testing.T) {
	t.Parallel()
	o := startOrigin(t, false)
	w := startWeft(t, listener{downstream: "Http1", hosts: []string{o.address}})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	for path, want := range map[string]string{
		"/direct": "answered by the proxy\n",
		"/other":  "GET /other 1 0\n",
	} {
		r, err := client.Get("http://" + w.addresses[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		_ = r.Body.Close() // it was read
		if err != nil || string(got) != want {
			t.Errorf("GET %s = %q, %v, want %q", path, got, err, want)
		}
	}
	transport.CloseIdleConnections()
	w.terminate(t)
	if status := w.awaitExit(t, patience); status != 0 {
		t.Errorf("weft ends with status %d after SIGTERM, want 0", status)
	}
}
