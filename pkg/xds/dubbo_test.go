package xds

import (
	"slices"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// dubboListenerResource returns a Dubbo listener that gets its routes from a resource of type
// DubboRouteType.
func dubboListenerResource(name, routes string, wait time.Duration) testResource {
	return testResource{resource.ListenerType, name, serialized(&listenerv3.Listener{Name: name, Address: testAddress(20880), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "dubbo", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packAny(&dubbov3.DubboProxy{
			RouteSpecifier: &dubbov3.DubboProxy_Drds{Drds: &dubbov3.Drds{RouteConfigName: routes, ConfigSource: adsSource(wait)}},
		})}}},
	}}})}
}

// dubboRoutesResource returns routes that send all calls to a cluster.
func dubboRoutesResource(name, cluster string) testResource {
	return testResource{resource.DubboRouteType, name, serialized(&dubbov3.MultipleRouteConfiguration{Name: name, RouteConfig: []*dubbov3.RouteConfiguration{{
		Interface: "*", Routes: []*dubbov3.Route{{Match: &dubbov3.RouteMatch{}, Route: &dubbov3.RouteAction{ClusterSpecifier: &dubbov3.RouteAction_Cluster{Cluster: cluster}}}},
	}}})}
}

// TestDubboRoutesHaveTheirOwnNamespace verifies that an HTTP and a Dubbo route resource can have
// the same name.
func TestDubboRoutesHaveTheirOwnNamespace(t *testing.T) {
	now, w := time.Now(), newState()
	names := func() (all []string) {
		for _, r := range w.snapshot(&config.Snapshot{}).Routes {
			all = append(all, displayTableName(r.Name))
		}
		return all
	}
	applyResource(t, w, listenerResource("http", 80, "r", "", 0), now)
	applyResource(t, w, dubboListenerResource("dubbo", "r", 0), now)
	applyResource(t, w, routesResource("r", "text"), now)
	w.reconcile(now)
	if got := names(); !slices.Equal(got, []string{"r"}) {
		t.Errorf("active routes: %q, want those of HTTP", got)
	}
	if waits := w.warming(); len(waits) != 1 || waits[0].Name != "dubbo" || !slices.Equal(waits[0].Missing, []string{"routes r of Dubbo"}) {
		t.Errorf("what waits is %+v", waits)
	}
	applyResource(t, w, dubboRoutesResource("r", "c"), now)
	w.reconcile(now)
	if got := names(); !slices.Equal(got, []string{"r of Dubbo", "r"}) {
		t.Errorf("active routes: %q, want both", got)
	}
	if http, dubbo := splitTables(w.referenced().tables); !slices.Equal(http, []string{"r"}) || !slices.Equal(dubbo, []string{"r"}) {
		t.Errorf("wanted are %q of HTTP and %q of Dubbo", http, dubbo)
	}
}
