package xds

import (
	"log/slog"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestUnknownFields verifies that a resource with an unknown field is rejected and the previous
// version stays active. With xds_unknown_fields: warn it is active, and the field is counted and
// logged.
func TestUnknownFields(t *testing.T) {
	m := &clusterv3.Cluster{Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}}
	cluster := xdstest.Resource{URL: resource.ClusterType, Name: "a", Body: xdstest.Marshal(m)}
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9999, protowire.VarintType), 1))
	next := xdstest.Resource{URL: resource.ClusterType, Name: "a", Body: xdstest.Marshal(m)}
	const reason = "unknown field 9999 of envoy.config.cluster.v3.Cluster"
	for name, c := range map[string]struct {
		policy   config.UnknownFields
		rejected bool
		count    float64
		detail   string
	}{
		"reject": {config.RejectUnknownFields, true, 0, reason},
		"warn":   {config.WarnUnknownFields, false, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			b := xdstest.Bootstrap("DELTA_GRPC")
			b.UnknownFields = c.policy
			s, _ := newTestSourceFrom(t, b, slog.New(slog.NewTextHandler(&log, nil)))
			s.metrics.registry = metrics.New(metrics.Options{})
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			respondWith(t, s, cluster)
			before := clusterOf(s, "a").Active
			respondWith(t, s, next)
			if after := clusterOf(s, "a").Active; (after == before) != c.rejected {
				t.Errorf("the previous version is still active: %t, want %t", after == before, c.rejected)
			}
			if !strings.Contains(log.String(), reason) {
				t.Errorf("want a log line with %q, got:\n%s", reason, log.String())
			}
			var reasons strings.Builder
			for _, r := range s.Status().ControlPlanes[0].Types {
				for _, rejected := range r.RejectedResources {
					reasons.WriteString(rejected.Reason)
				}
			}
			detail := reasons.String()
			if !strings.Contains(detail, c.detail) || (detail == "") != (c.detail == "") {
				t.Errorf("reject reason %q, want %q", detail, c.detail)
			}
			counted := 0.0
			samples, err := s.metrics.registry.Samples()
			if err != nil {
				t.Fatal(err)
			}
			for sample := range samples {
				if sample.Name == metrics.XDSUnknownFields.Name {
					counted += sample.Value
				}
			}
			if counted != c.count {
				t.Errorf("counted %v unknown fields, want %v", counted, c.count)
			}
		})
	}
}
