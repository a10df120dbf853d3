package state

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// istiodResources returns the clusters and endpoints that an istiod sent.
func istiodResources(t *testing.T) (resources []xdstest.Resource) {
	t.Helper()
	files, err := filepath.Glob("../resource/testdata/istiod/*.pb")
	if err != nil || len(files) != 4 {
		t.Fatalf("golden files %v, error %v; want 4 files", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		m := &discoveryv3.DiscoveryResponse{}
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		if m.GetTypeUrl() != resource.ClusterType && m.GetTypeUrl() != resource.EndpointType {
			continue
		}
		for _, r := range m.GetResources() {
			name, err := resource.Name(r.GetValue())
			if err != nil {
				t.Fatal(err)
			}
			resources = append(resources, xdstest.Resource{URL: m.GetTypeUrl(), Name: name, Body: r.GetValue()})
		}
	}
	return resources
}

// summarizeCluster returns the settings that decide where and how a cluster sends requests.
func summarizeCluster(c *config.Cluster) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s %s", c.Type, c.LBPolicy, c.Protocol)
	if c.Socket.SourceIPv4 != "" {
		fmt.Fprintf(&out, " from %s", c.Socket.SourceIPv4)
	}
	if c.TLS != nil {
		fmt.Fprintf(&out, " as %s", c.TLS.ServerName)
	}
	for _, h := range c.Hosts {
		transport := "TLS"
		if h.NoTLS {
			transport = "plain"
		}
		fmt.Fprintf(&out, " [%s x%d p%d %s]", h.Address, h.Weight, h.Priority, transport)
	}
	return out.String()
}

// TestIstiodClustersInAnyOrder verifies that the clusters and endpoints of an istiod lead to the
// same configuration in random orders, and that upstream.Set accepts it.
func TestIstiodClustersInAnyOrder(t *testing.T) {
	want := map[string]string{
		"BlackHoleCluster":          "STATIC LB_WEIGHTED_ROUNDROBIN Http1",
		"InboundPassthroughCluster": "ORIGINAL_DST LB_ORIGINAL_DST Auto from 127.0.0.6",
		"PassthroughCluster":        "ORIGINAL_DST LB_ORIGINAL_DST Auto",
		"inbound|18301||":           "ORIGINAL_DST LB_ORIGINAL_DST Http1 from 127.0.0.6",
		"inbound|18307||":           "ORIGINAL_DST LB_ORIGINAL_DST Http1 from 127.0.0.6",
		"outbound|20880||ratings.default.svc.cluster.local":  "STATIC LB_LEAST_REQUEST Http1 as outbound_.20880_._.ratings.default.svc.cluster.local [127.0.0.1:18220 x1 p0 plain]",
		"outbound|443||external.example.test":                "STRICT_DNS LB_LEAST_REQUEST Http1 [localhost:18443 x1 p0 plain]",
		"outbound|7070||app.default.svc.cluster.local":       "STATIC LB_LEAST_REQUEST Http1 as outbound_.7070_._.app.default.svc.cluster.local [127.0.0.10:18307 x1 p0 TLS]",
		"outbound|8080||app.default.svc.cluster.local":       "STATIC LB_LEAST_REQUEST Http1 as outbound_.8080_._.app.default.svc.cluster.local [127.0.0.10:18301 x1 p0 TLS]",
		"outbound|80||external.example.test":                 "STRICT_DNS LB_LEAST_REQUEST Http1 [localhost:18080 x1 p0 plain]",
		"outbound|9080|v1|reviews.default.svc.cluster.local": "STATIC LB_LEAST_REQUEST Http1 as outbound_.9080_.v1_.reviews.default.svc.cluster.local [127.0.0.1:18101 x3 p0 plain]",
		"outbound|9080|v2|reviews.default.svc.cluster.local": "STATIC LB_LEAST_REQUEST Http1 as outbound_.9080_.v2_.reviews.default.svc.cluster.local [127.0.0.1:18102 x1 p0 plain]",
		"outbound|9080|v3|reviews.default.svc.cluster.local": "STATIC LB_RINGHASH Http1 as outbound_.9080_.v3_.reviews.default.svc.cluster.local [127.0.0.1:18103 x1 p0 TLS]",
		"outbound|9080||ratings.default.svc.cluster.local":   "STATIC LB_LEAST_REQUEST Http1 as outbound_.9080_._.ratings.default.svc.cluster.local [127.0.0.1:18201 x1 p0 plain]",
		"outbound|9080||reviews.default.svc.cluster.local":   "STATIC LB_LEAST_REQUEST Http1 as outbound_.9080_._.reviews.default.svc.cluster.local [127.0.0.1:18101 x3 p0 plain] [127.0.0.1:18102 x1 p0 plain] [127.0.0.1:18103 x1 p1 TLS]",
		"outbound|9090|v1|reviews.default.svc.cluster.local": "STATIC LB_LEAST_REQUEST Http2 as outbound_.9090_.v1_.reviews.default.svc.cluster.local [127.0.0.1:18111 x3 p0 plain]",
		"outbound|9090|v2|reviews.default.svc.cluster.local": "STATIC LB_LEAST_REQUEST Http2 as outbound_.9090_.v2_.reviews.default.svc.cluster.local [127.0.0.1:18112 x1 p0 plain]",
		"outbound|9090|v3|reviews.default.svc.cluster.local": "STATIC LB_RINGHASH Http2 as outbound_.9090_.v3_.reviews.default.svc.cluster.local [127.0.0.1:18113 x1 p0 TLS]",
		"outbound|9090||reviews.default.svc.cluster.local":   "STATIC LB_LEAST_REQUEST Http2 as outbound_.9090_._.reviews.default.svc.cluster.local [127.0.0.1:18111 x3 p0 plain] [127.0.0.1:18112 x1 p0 plain] [127.0.0.1:18113 x1 p1 TLS]",
	}
	resources := istiodResources(t)
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{})
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		random.Shuffle(len(resources), func(i, j int) { resources[i], resources[j] = resources[j], resources[i] })
		s, now := newState(), time.Unix(0, 0)
		for _, r := range resources {
			applyResource(t, s, r, now)
			s.Reconcile(now)
		}
		for _, ref := range s.referenced().secrets {
			s.setSecret(ref, &resource.Secret{
				Name: ref.Name, Certificate: config.PEM{Text: string(leaf.Cert)}, Key: config.PEM{Text: string(leaf.Key)}, TrustedCA: config.PEM{Text: string(ca.PEM)},
			})
		}
		s.Reconcile(now)
		clusters := xdstest.Snapshot(s).Clusters
		for _, c := range clusters {
			if got := summarizeCluster(c); got != want[c.Name] {
				t.Errorf("%s is\n%s\nwant\n%s", c.Name, got, want[c.Name])
			}
		}
		if len(clusters) != len(want) {
			t.Errorf("%d active clusters, want %d", len(clusters), len(want))
		}
		set := upstream.NewSet(upstream.Options{Policies: map[config.LBPolicy]balance.NewFunc{
			config.WeightedRoundRobin: balance.WeightedRoundRobin, config.LeastRequest: balance.LeastRequest, config.RingHash: balance.RingHash,
		}})
		change, err := set.Prepare(clusters)
		if err != nil {
			t.Fatal(err)
		}
		change.Commit()
		set.Close()
	}
}
