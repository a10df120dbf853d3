package xds

import (
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// nestedPrincipals returns a policy whose principal is nested depth levels deep.
func nestedPrincipals(depth int) *rbacv3.RBAC {
	p := &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_Any{Any: true}}
	for range depth {
		p = &rbacconfigv3.Principal{Identifier: &rbacconfigv3.Principal_NotId{NotId: p}}
	}
	return &rbacv3.RBAC{Rules: &rbacconfigv3.RBAC{Policies: map[string]*rbacconfigv3.Policy{"deep": {
		Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Any{Any: true}}},
		Principals:  []*rbacconfigv3.Principal{p},
	}}}}
}

// TestMalformedResourcesAreRejected verifies that malformed resources are rejected with a reason,
// and that the active configuration stays.
func TestMalformedResourcesAreRejected(t *testing.T) {
	route := func(settings *anypb.Any) xdstest.Resource {
		m := &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{
			Name: "v", Domains: []string{"*"}, TypedPerFilterConfig: map[string]*anypb.Any{"f": settings},
		}}}
		return xdstest.Resource{URL: resource.RouteType, Name: "r", Body: xdstest.Marshal(m)}
	}
	invalid := protowire.AppendString(protowire.AppendTag(xdstest.Marshal(&clusterv3.Cluster{Name: "a"}), 28, protowire.BytesType), "\xff\xfe") // alt_stat_name
	for name, c := range map[string]struct {
		resources []xdstest.Resource
		reason    string
	}{
		"malformed protobuf":            {[]xdstest.Resource{{URL: resource.ClusterType, Name: "a", Body: append(xdstest.Marshal(&clusterv3.Cluster{Name: "a"}), 0x0f)}}, "cannot parse"},
		"invalid UTF-8":                 {[]xdstest.Resource{{URL: resource.ClusterType, Name: "a", Body: invalid}}, "UTF-8"},
		"name mismatch":                 {[]xdstest.Resource{{URL: resource.ClusterType, Name: "a", Body: xdstest.Marshal(&clusterv3.Cluster{Name: "b"})}}, `the name inside the resource is "b"`},
		"malformed packed message":      {[]xdstest.Resource{route(&anypb.Any{TypeUrl: xdstest.PackAny(&rbacv3.RBAC{}).GetTypeUrl(), Value: []byte{0xff}})}, "virtual_hosts[0].typed_per_filter_config[f]: malformed message: "},
		"packed message without a type": {[]xdstest.Resource{route(&anypb.Any{Value: []byte{0xff}})}, "virtual_hosts[0].typed_per_filter_config[f]: "},
		"deeply nested matcher":         {[]xdstest.Resource{route(xdstest.PackAny(nestedPrincipals(5000)))}, "virtual_hosts[0].typed_per_filter_config[f]: messages are nested more than 100 levels deep"},
		"duplicate name":                {[]xdstest.Resource{{URL: resource.ClusterType, Name: "a", Body: xdstest.Marshal(&clusterv3.Cluster{Name: "a"})}, {URL: resource.ClusterType, Name: "a", Body: xdstest.Marshal(&clusterv3.Cluster{Name: "a", AltStatName: "x"})}}, "the response has two different resources with this name"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newTestSourceWith(t, xdstest.Bootstrap("GRPC"), slog.New(slog.DiscardHandler), func(o *Options) { o.Capabilities = nestedFilterCapabilities() })
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			before := xdstest.Marshal(&clusterv3.Cluster{Name: "a", AltStatName: "before"})
			respondWith(t, s, xdstest.Resource{URL: resource.ClusterType, Name: "a", Body: before}, xdstest.Listener("l", 80, "r", "", 0), xdstest.Routes("r", "before"))
			cluster, table := clusterOf(s, "a").Active, activeTable(s, "r")
			if cluster == nil || table == nil {
				t.Fatal("the cluster or the routes are not active")
			}
			r := &ads.Response{Type: c.resources[0].URL, Version: "2", Nonce: "m"}
			for _, res := range c.resources {
				r.Resources = append(r.Resources, ads.Resource{Name: res.Name, Version: "2", Body: res.Body})
			}
			s.handleEvent(t.Context(), event{channel: s.channels[0], response: r})
			var reasons []string
			for _, res := range s.Status().ControlPlanes[0].Types {
				if res.Rejected != nil {
					reasons = append(reasons, res.Rejected.Reason)
				}
			}
			if len(reasons) != 1 || !strings.Contains(reasons[0], c.reason) {
				t.Errorf("rejected with %q, want %q", reasons, c.reason)
			}
			if clusterOf(s, "a").Active != cluster || activeTable(s, "r") != table {
				t.Error("the active configuration changed")
			}
		})
	}
}

// TestRejectedLargeResourceMemory verifies that the rejection of a large resource with many errors
// has a bounded text, allocates bounded memory, and retains none of it.
func TestRejectedLargeResourceMemory(t *testing.T) {
	withoutRace(t)
	if testing.Short() {
		t.Skip("needs about 100 MB")
	}
	const size = 16 << 20
	m := &clusterv3.Cluster{Name: "a"}
	check := &corev3.HealthCheck{TlsOptions: &corev3.HealthCheck_TlsOptions{AlpnProtocols: []string{strings.Repeat("x", 100)}}}
	for range size / 110 {
		m.HealthChecks = append(m.HealthChecks, check)
	}
	body := xdstest.Marshal(m)
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	_, err := resource.ReadCluster(body, resource.Capabilities{})
	goruntime.ReadMemStats(&after)
	if err == nil || len(err.Error()) > 1<<20 {
		t.Errorf("ReadCluster returns an error text of %d bytes, want an error with at most 1 MiB", len(fmt.Sprint(err)))
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 20*size {
		t.Errorf("ReadCluster of %d bytes allocated %d bytes, want at most %d", len(body), allocated, 20*size)
	}
	goruntime.GC()
	goruntime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+size/4 {
		t.Errorf("%d bytes are still in use, want at most %d", after.HeapAlloc-before.HeapAlloc, size/4)
	}
	goruntime.KeepAlive(body)
}

// TestLongReasonIsTruncated verifies that the error detail of a NACK has at most 8 KiB, because a
// control plane may limit the size of messages.
func TestLongReasonIsTruncated(t *testing.T) {
	s, _ := newTestSourceFrom(t, xdstest.Bootstrap("DELTA_GRPC"), slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	m := &clusterv3.Cluster{Name: "a"}
	for i := range 5000 {
		m.Filters = append(m.Filters, &clusterv3.Filter{Name: fmt.Sprintf("%s%d", strings.Repeat("x", 100), i)})
	}
	c := s.channels[0].client
	u, ok := c.Receive(ads.Response{Type: resource.ClusterType, Version: "1", Nonce: "n", Resources: []ads.Resource{{Name: "a", Version: "1", Body: xdstest.Marshal(m)}}})
	if !ok {
		t.Fatal("clusters are not subscribed")
	}
	ack, _ := c.Acknowledge(u, s.applyUpdate(t.Context(), s.channels[0], u, time.Now()))
	if n := len(ack.ErrorDetail); n < 1000 || n > 8<<10 {
		t.Errorf("the error detail of the NACK has %d bytes, want 1000 to 8192", n)
	}
}
