package xds

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestListenerActivatesWithItsCluster verifies that a listener waits for its cluster: it becomes
// active when the cluster has its endpoints, even if the control plane sent the listener first.
func TestListenerActivatesWithItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		c := r.runAndAccept()
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		c.sendAccepted(xdstest.Routes("r", "text"))
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("active listeners before any cluster: %v, ready %t; want none, false", got, r.source.Ready())
		}
		c.sendAccepted(xdstest.Cluster("c", "e", "", 0))
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("active listeners before the endpoints: %v, ready %t; want none, false", got, r.source.Ready())
		}
		c.sendAccepted(xdstest.Endpoints("e", 1))
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) || !r.source.Ready() {
			t.Errorf("active listeners after the endpoints: %v, ready %t; want l, true", got, r.source.Ready())
		}
	})
}

// TestWarmupEndsWithoutUsableEndpoints verifies that the warm-up does not wait for endpoints that
// were rejected or that the control plane has removed.
func TestWarmupEndsWithoutUsableEndpoints(t *testing.T) {
	for name, response := range map[string]ads.Response{
		"rejected": {Resources: []ads.Resource{{Name: "e", Version: "1", Body: []byte{0xff}}}},
		"removed":  {Removed: []string{"e"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, active := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			respondWith(t, s, xdstest.Cluster("c", "e", "", 0), xdstest.Listener("l", 80, "r", "", 0), xdstest.Routes("r", "text"))
			if len(active.Listeners) != 0 || s.Ready() {
				t.Fatalf("%d active listeners, ready %t before the endpoints; want 0, false", len(active.Listeners), s.Ready())
			}
			response.Type, response.Version, response.Nonce = resource.EndpointType, "1", "n"
			s.handleEvent(t.Context(), event{channel: s.channels[0], response: &response})
			if len(active.Listeners) != 1 || !s.Ready() {
				t.Errorf("%d active listeners, ready %t; want 1, true", len(active.Listeners), s.Ready())
			}
		})
	}
}

// staticCluster returns a cluster that needs no endpoints resource.
func staticCluster(name string) xdstest.Resource {
	return xdstest.Resource{URL: resource.ClusterType, Name: name, Body: xdstest.Marshal(&clusterv3.Cluster{
		Name: name, LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name},
	})}
}

// rejectClusters returns an applyErr function that rejects clusters with the prefix.
func rejectClusters(prefix string) func(*config.Snapshot) error {
	return func(next *config.Snapshot) error {
		for _, c := range next.Clusters {
			if strings.HasPrefix(c.Name, prefix) {
				return errors.New("cannot apply cluster " + c.Name)
			}
		}
		return nil
	}
}

// TestPartialUpdateDoesNotEndWarmup verifies that listeners wait for all clusters of a response,
// even if Weft cannot apply one cluster and applies the others separately.
func TestPartialUpdateDoesNotEndWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = rejectClusters("bad")
		c := r.runAndAccept()
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		c.sendAccepted(xdstest.Routes("r", "text"))
		var packed []*anypb.Any
		for _, res := range []xdstest.Resource{staticCluster("a"), staticCluster("bad"), xdstest.Cluster("c", "e", "", 0), xdstest.Cluster("d", "f", "", 0)} {
			packed = append(packed, &anypb.Any{TypeUrl: res.URL, Value: res.Body})
		}
		if got := c.send(resource.ClusterType, packed...).GetErrorDetail().GetMessage(); !strings.HasPrefix(got, "bad: ") {
			t.Errorf("NACK %q, want an error about cluster bad", got)
		}
		if got := r.listeners(); len(got) != 0 || r.source.Ready() {
			t.Errorf("active listeners before the endpoints: %v, ready %t; want none, false", got, r.source.Ready())
		}
		c.sendAccepted(xdstest.Endpoints("e", 1), xdstest.Endpoints("f", 1))
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) || !r.source.Ready() {
			t.Errorf("active listeners after the endpoints: %v, ready %t; want l, true", got, r.source.Ready())
		}
	})
}

// TestFailedClustersDoNotProlongWarmup verifies that the warm-up ends although clusters cannot be
// applied after their initial_fetch_timeout.
func TestFailedClustersDoNotProlongWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = rejectClusters("bad")
		c := r.runAndAccept()
		c.sendAccepted(xdstest.Cluster("bad1", "e", "", 15*time.Second))
		time.Sleep(time.Second)
		c.sendAccepted(xdstest.Cluster("bad1", "e", "", 15*time.Second), xdstest.Cluster("bad2", "f", "", 15*time.Second))
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0))
		c.sendAccepted(xdstest.Routes("r", "text"))
		time.Sleep(time.Minute)
		if got := r.listeners(); !slices.Equal(got, []string{"l"}) || !r.source.Ready() {
			t.Errorf("active listeners after a minute: %v, ready %t; want l, true", got, r.source.Ready())
		}
	})
}
