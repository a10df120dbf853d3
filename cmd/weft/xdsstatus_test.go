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

func TestXDSStatusText(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	s := xdsStatus{now: now, XDS: xds.Status{
		ControlPlanes: []xds.ControlPlaneStatus{
			{Name: "istiod", Mode: xds.ModeDelta, Serves: xds.ServesAll, Connected: true, Since: ago(90), Types: []xds.TypeStatus{
				{Type: resource.ClusterType, Version: "7", Wildcard: true, Resources: 12, Changed: ago(5),
					Accepted: &xds.AckStatus{Version: "7", At: ago(5)}, Rejected: &xds.AckStatus{Version: "6", At: ago(65), Reason: "c: no"},
					RejectedResources: []xds.RejectedResource{{Name: "c", Reason: "type: is not supported", At: ago(65)}}},
				{Type: resource.RouteType, Requested: 2, Resources: 1, Missing: []string{"9080"}},
			}},
			{Name: "sds", Mode: xds.ModeSotW, Serves: xds.ServesSecrets, Since: ago(3), Failure: "connection refused", Attempts: 4},
			{Name: "other", Mode: xds.ModeSotW, Serves: xds.ServesSecrets},
		},
		Warming:  []xds.WarmingResource{{Type: resource.ListenerType, Name: "in", Since: ago(2), Missing: []string{"routes 9080", "secret default"}}},
		Cache:    xds.CacheStatus{InUse: true, ReceivedAt: ago(3600), Path: "/var/weft/xds"},
		OnDemand: &xds.OnDemandStatus{SubscribedClusters: 2, UnsubscribedClusters: []string{"a", "b"}, SubscribedRoutes: 1},
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

func TestXDSStatusOfRunningProcess(t *testing.T) {
	page, err := json.Marshal(xds.Status{Node: "n", ControlPlanes: []xds.ControlPlaneStatus{{Name: "istiod", Mode: xds.ModeDelta, Connected: true, Since: time.Now()}}})
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
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got.Node != "n" || len(got.ControlPlanes) != 1 {
		t.Errorf("printed %s: %v", stdout, err)
	}
}

// TestNoXDSStatusWithoutControlPlane verifies that xds-status fails and says that no control
// plane is configured.
func TestNoXDSStatusWithoutControlPlane(t *testing.T) {
	_, stderr, status := execute(t, "xds-status", "--admin", startWeft(t, explainable))
	if status != 1 || !strings.Contains(stderr, "no control plane is configured") {
		t.Errorf("status %d, printed %s", status, stderr)
	}
}
