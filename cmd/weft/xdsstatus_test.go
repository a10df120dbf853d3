//go:build !noxds

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/status"
)

func TestXDSStatusOfRunningProcess(t *testing.T) {
	page, err := json.Marshal(status.Status{Node: "n", ControlPlanes: []status.ControlPlane{{Name: "istiod", Mode: status.ModeDelta, Connected: true, Since: time.Now()}}})
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		_, _ = w.Write(page)
	}))
	defer port.Close()
	address := strings.TrimPrefix(port.URL, "http://")
	code, stdout, stderr := runWeft(t, "xds-status", "--admin", address)
	if code != 0 || path != "/xds" || !strings.HasPrefix(stdout, "control plane istiod (delta, ): connected for ") {
		t.Errorf("status %d, requested %q, printed %s%s; want 0, /xds and the control plane istiod", code, path, stdout, stderr)
	}
	_, stdout, _ = runWeft(t, "xds-status", "--admin", address, "-o", "json")
	var got status.Status
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got.Node != "n" || len(got.ControlPlanes) != 1 {
		t.Errorf("printed %s: %v, want node n and one control plane", stdout, err)
	}
}

// TestNoXDSStatusWithoutControlPlane verifies that xds-status fails with the reason that no control
// plane is configured.
func TestNoXDSStatusWithoutControlPlane(t *testing.T) {
	status, _, stderr := runWeft(t, "xds-status", "--admin", startWeft(t, exampleConfig))
	if status != 1 || !strings.Contains(stderr, "no control plane is configured") {
		t.Errorf("status %d, printed %s; want 1, no control plane is configured", status, stderr)
	}
}
