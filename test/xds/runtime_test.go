package xds

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestECDSAndRTDS verifies that a filter configuration (ECDS) and the fraction of a route (RTDS)
// can be added and changed separately, under load.
func TestECDSAndRTDS(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newStoppedControlPlane(t), newHost()
			p.partial = true
			p.start()
			startWeft(t, strings.Replace(bootstrap(apiType, p.address, host+":9901"), "{",
				`{"layered_runtime": {"layers": [{"name": "plane", "rtds_layer": {"name": "shares", "rtds_config": {"ads": {}}}}]},`, 1), nil)
			c, url := client(t), "http://"+host+":10000/"
			canary := directRoute("/", "new")
			canary.Match.RuntimeFraction = &corev3.RuntimeFractionalPercent{RuntimeKey: "shop.canary", DefaultValue: &typev3.FractionalPercent{}}
			p.put(httpListener("front", host+":10000", "routes", ecdsFilter("policy", &rbacv3.RBAC{})), routeTable("routes", canary, directRoute("/", "old")))
			p.put(rbacPolicy(true), runtimeLayer(100))
			p.publish()
			awaitResponse(t, c, url, "new")
			l := startLoad(t, url)
			for _, step := range []struct {
				percent float64
				want    string
			}{{0, "old"}, {100, "new"}, {0, "old"}} {
				p.put(runtimeLayer(step.percent))
				p.publish()
				awaitResponse(t, c, url, step.want)
				l.awaitMore(10)
			}
			ackCount := p.ackCount()
			p.put(filterConfig(&corsv3.Cors{}))
			p.publish()
			p.await(ackCount, func(a ack) bool {
				return a.typeName == "TypedExtensionConfig" && strings.Contains(a.nackDetail, "expected one of type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC")
			})
			awaitResponse(t, c, url, "old")
			l.stop()
			p.put(rbacPolicy(false))
			p.publish()
			eventually(t, func() string {
				if got, err := get(t.Context(), c, url); err != nil || !strings.HasPrefix(got, "403 ") {
					return got
				}
				return ""
			})
			p.put(rbacPolicy(true))
			p.publish()
			awaitResponse(t, c, url, "old")
		})
	}
}

// ecdsFilter returns an ECDS filter whose configuration has the type of m.
func ecdsFilter(name string, m proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
		ConfigSource: fromADS(), TypeUrls: []string{mustAny(m).GetTypeUrl()},
	}}}
}

// filterConfig returns the configuration of the filter "policy".
func filterConfig(m proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "policy", TypedConfig: mustAny(m)}
}

// rbacPolicy returns an RBAC configuration that allows all requests, or none.
func rbacPolicy(allow bool) *corev3.TypedExtensionConfig {
	rules := &rbacconfigv3.RBAC{}
	if allow {
		rules.Policies = map[string]*rbacconfigv3.Policy{"all": {
			Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Any{Any: true}}},
			Principals:  []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_Any{Any: true}}},
		}}
	}
	return filterConfig(&rbacv3.RBAC{Rules: rules})
}

// runtimeLayer returns a runtime layer with a percentage.
func runtimeLayer(percent float64) *runtimev3.Runtime {
	return &runtimev3.Runtime{Name: "shares", Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"shop": structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{"canary": structpb.NewNumberValue(percent)},
	})}}}
}
