//go:build !noxds

package inspect

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/cache"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// fixtureXDS returns the state of a control plane.
func fixtureXDS() *XDS {
	return &XDS{
		Node: "n",
		ControlPlanes: []status.ControlPlane{{
			Name: "istiod", Mode: status.ModeDelta, Serves: status.ServesAll, Connected: true, Since: eventTime(),
			Types: []status.Type{{
				Type: resource.ClusterType, Version: "7", Wildcard: true, Resources: 12, Changed: eventTime(),
				Accepted: &status.Ack{Version: "7", At: eventTime()}, Rejected: &status.Ack{Version: "6", At: eventTime().Add(-time.Minute), Reason: "c: no"},
				RejectedResources: []status.RejectedResource{{Name: "c", Reason: "type: is not supported", At: eventTime()}},
			}},
		}},
		Warming:  []state.WarmingResource{{Type: resource.ListenerType, Name: "in", Since: eventTime(), Missing: []string{"routes 9080"}}},
		OnDemand: &state.OnDemandStatus{RequestedClusters: 2, UnsubscribedClusters: []string{"a"}},
	}
}

func TestXDSStatusText(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	s := &XDS{
		ControlPlanes: []status.ControlPlane{
			{Name: "istiod", Mode: status.ModeDelta, Serves: status.ServesAll, Connected: true, Since: ago(90), Types: []status.Type{
				{Type: resource.ClusterType, Version: "7", Wildcard: true, Resources: 12, Changed: ago(5),
					Accepted: &status.Ack{Version: "7", At: ago(5)}, Rejected: &status.Ack{Version: "6", At: ago(65), Reason: "c: no"},
					RejectedResources: []status.RejectedResource{{Name: "c", Reason: "type: is not supported", At: ago(65)}}},
				{Type: resource.RouteType, Requested: 2, Resources: 1, Missing: []string{"9080"}},
			}},
			{Name: "sds", Mode: status.ModeSotW, Serves: status.ServesSecrets, Since: ago(3), Failure: "connection refused", Attempts: 4},
			{Name: "other", Mode: status.ModeSotW, Serves: status.ServesSecrets},
		},
		Warming:  []state.WarmingResource{{Type: resource.ListenerType, Name: "in", Since: ago(2), Missing: []string{"routes 9080", "secret default"}}},
		Cache:    cache.Status{InUse: true, ReceivedAt: ago(3600), Path: "/var/weft/xds"},
		OnDemand: &state.OnDemandStatus{RequestedClusters: 2, UnsubscribedClusters: []string{"a", "b"}, RequestedRoutes: 1},
	}
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
	if got := XDSText(s, now); got != want {
		t.Errorf("XDSText() =\n%s\nwant\n%s", got, want)
	}
}
