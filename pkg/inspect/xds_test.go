//go:build !noxds

package inspect

import (
	"time"

	"github.com/weft-proxy/weft/pkg/xds"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// fixtureXDS returns the state of a control plane.
func fixtureXDS() *XDS {
	return &XDS{
		Node: "n",
		ControlPlanes: []xds.ControlPlaneStatus{{
			Name: "istiod", Mode: xds.ModeDelta, Serves: xds.ServesAll, Connected: true, Since: at(),
			Types: []xds.TypeStatus{{
				Type: resource.ClusterType, Version: "7", Wildcard: true, Resources: 12, Changed: at(),
				Accepted: &xds.AckStatus{Version: "7", At: at()}, Rejected: &xds.AckStatus{Version: "6", At: at().Add(-time.Minute), Reason: "c: no"},
				RejectedResources: []xds.RejectedResource{{Name: "c", Reason: "type: is not supported", At: at()}},
			}},
		}},
		Warming:  []xds.WarmingResource{{Type: resource.ListenerType, Name: "in", Since: at(), Missing: []string{"routes 9080"}}},
		OnDemand: &xds.OnDemandStatus{SubscribedClusters: 2, UnsubscribedClusters: []string{"a"}},
	}
}
