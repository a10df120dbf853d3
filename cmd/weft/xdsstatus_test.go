//go:build !noxds

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func TestXDSStatusInPlainWords(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	s := xdsStatus{now: now, Status: xds.Status{
		Planes: []xds.Plane{
			{Name: "istiod", Form: xds.FormDelta, Serves: xds.ServesAll, Connected: true, Since: ago(90), Types: []xds.TypeStatus{
				{Type: resource.ClusterType, Version: "7", All: true, Held: 12, Changed: ago(5),
					Accepted: &xds.Reply{Version: "7", At: ago(5)}, Refused: &xds.Reply{Version: "6", At: ago(65), Reason: "c: no"},
					Bad: []xds.BadOne{{Name: "c", Reason: "type: is not supported", At: ago(65)}}},
				{Type: resource.RouteType, Wanted: 2, Held: 1, Missing: []string{"9080"}},
			}},
			{Name: "sds", Form: xds.FormWorld, Serves: xds.ServesSecrets, Since: ago(3), Failure: "connection refused", Attempts: 4},
			{Name: "other", Form: xds.FormWorld, Serves: xds.ServesSecrets},
		},
		Waiting: []xds.Waiting{{Type: resource.ListenerType, Name: "in", Since: ago(2), For: []string{"routes 9080", "secret default"}}},
		Kept:    xds.Kept{InUse: true, Said: ago(3600), Path: "/var/weft/xds"},
		Lazy:    &xds.Lazy{AwakeClusters: 2, AsleepClusters: []string{"a", "b"}, AwakeTables: 1},
	}}
	const want = `control plane istiod (delta, everything): connected for 1m30s
  TYPE                VERSION  RESOURCES  SUBSCRIBED  CHANGED  ACCEPTED  REJECTED
  Cluster             7        12         all         5s       7 5s ago  6 1m5s ago
  RouteConfiguration  -        1          2           -        -         -
  Cluster c, rejected 1m5s ago: type: is not supported
  RouteConfiguration, subscribed but not received: 9080
control plane sds (state of the world, secrets): disconnected for 3s, 4 attempts: connection refused
  TYPE  VERSION  RESOURCES  SUBSCRIBED  CHANGED  ACCEPTED  REJECTED
control plane other (state of the world, secrets): not connected yet
  TYPE  VERSION  RESOURCES  SUBSCRIBED  CHANGED  ACCEPTED  REJECTED
Listener in is warming, waiting for routes 9080, secret default, for 2s: no previous version is active
clusters on demand: 2 subscribed, 2 unsubscribed: a, b
routes on demand: 1 subscribed, 0 unsubscribed
the active resources come from the xDS cache, which was saved 1h0m0s ago: /var/weft/xds
`
	if got := s.Text(); got != want {
		t.Errorf("Text() =\n%s\nwant\n%s", got, want)
	}
}

func TestXDSStatusOfWhatRuns(t *testing.T) {
	page, err := json.Marshal(xds.Status{Node: "n", Planes: []xds.Plane{{Name: "istiod", Form: xds.FormDelta, Connected: true, Since: time.Now()}}})
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		_, _ = w.Write(page)
	}))
	defer port.Close()
	address := strings.TrimPrefix(port.URL, "http://")
	stdout, stderr, status := execute(t, "xds-status", "--admin", address)
	if status != 0 || asked != "/xds" || !strings.HasPrefix(stdout, "control plane istiod (delta, ): connected for ") {
		t.Errorf("status %d, asked for %q, printed %s%s", status, asked, stdout, stderr)
	}
	stdout, _, _ = execute(t, "xds-status", "--admin", address, "-o", "json")
	var got xds.Status
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got.Node != "n" || len(got.Planes) != 1 {
		t.Errorf("printed %s: %v", stdout, err)
	}
}

// TestThereIsNoStatusWithoutAControlPlane verifies that xds-status fails and says that no control
// plane is configured.
func TestThereIsNoStatusWithoutAControlPlane(t *testing.T) {
	_, stderr, status := execute(t, "xds-status", "--admin", running(t, explainable))
	if status != 1 || !strings.Contains(stderr, "no control plane is configured") {
		t.Errorf("status %d, printed %s", status, stderr)
	}
}
