package inspect

import (
	"encoding/json"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

func TestEnvoyClustersFormat(t *testing.T) {
	data, err := json.Marshal(NewEnvoyClusters([]upstream.ClusterStatus{
		{Name: "a", Hosts: []upstream.HostStatus{
			{Address: "10.0.0.1:80", Weight: 3, Attempts: 9, Failures: 2, Open: 1, Locality: "eu/a/", Hostname: "a.test"},
			{Address: "a.test:81", Weight: 1, DownReasons: hosthealth.FailedCheck | hosthealth.Ejected, Priority: 1},
			{Address: "a.test:82", Target: "[::1]:82", Weight: 1, DownReasons: hosthealth.ReportedDraining},
			{Address: "/run/a.sock", Weight: 1, DownReasons: hosthealth.ReportedUnhealthy},
		}},
		{Name: "b"},
	}, map[string]bool{"b": true}))
	if err != nil {
		t.Fatal(err)
	}
	got := &adminv3.Clusters{}
	if err := protojson.Unmarshal(data, got); err != nil {
		t.Fatalf("%v, in %s", err, data)
	}
	a, b := got.GetClusterStatuses()[0], got.GetClusterStatuses()[1]
	if !a.GetAddedViaApi() || b.GetAddedViaApi() || len(b.GetHostStatuses()) != 0 {
		t.Errorf("clusters: %v, want only the first added by the API, and the second without hosts", got)
	}
	first := a.GetHostStatuses()[0]
	if s := first.GetAddress().GetSocketAddress(); s.GetAddress() != "10.0.0.1" || s.GetPortValue() != 80 || first.GetWeight() != 3 || first.GetLocality().GetZone() != "a" {
		t.Errorf("first host: %v, want 10.0.0.1:80 with weight 3 in zone a", first)
	}
	for _, m := range first.GetStats() {
		want := map[string]uint64{"rq_total": 9, "rq_error": 2, "rq_success": 7, "cx_active": 1}[m.GetName()]
		if m.GetValue() != want || (m.GetType() == adminv3.SimpleMetric_GAUGE) != (m.GetName() == "cx_active" || m.GetName() == "rq_active") {
			t.Errorf("metric %v, want %d", m, want)
		}
	}
	for i, want := range []struct {
		eds              corev3.HealthStatus
		checks, outliers bool
	}{{corev3.HealthStatus_HEALTHY, false, false}, {corev3.HealthStatus_HEALTHY, true, true}, {corev3.HealthStatus_DRAINING, false, false}, {corev3.HealthStatus_UNHEALTHY, false, false}} {
		h := a.GetHostStatuses()[i].GetHealthStatus()
		if h.GetEdsHealthStatus() != want.eds || h.GetFailedActiveHealthCheck() != want.checks || h.GetFailedOutlierCheck() != want.outliers {
			t.Errorf("host %d is %v, want %v", i, h, want)
		}
	}
	if addr := a.GetHostStatuses()[1].GetAddress().GetSocketAddress(); addr.GetAddress() != "a.test" || addr.GetPortValue() != 81 {
		t.Errorf("address of a host name: %v, want a.test:81", addr)
	}
	if addr := a.GetHostStatuses()[2].GetAddress().GetSocketAddress(); addr.GetAddress() != "::1" || addr.GetPortValue() != 82 {
		t.Errorf("resolved address: %v, want [::1]:82", addr)
	}
	if addr := newEnvoyAddress(&upstream.HostStatus{Address: "@app:80"}); addr.Pipe == nil || addr.Pipe.Path != "@app:80" {
		t.Errorf("address of an abstract socket: %+v, want the pipe @app:80", addr)
	}
	if addr := a.GetHostStatuses()[3].GetAddress().GetPipe(); addr.GetPath() != "/run/a.sock" {
		t.Errorf("address of a unix socket: %v, want /run/a.sock", addr)
	}
}
