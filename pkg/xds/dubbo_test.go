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

// aDubboListener has its routes from a resource of Dubbo's own type.
func aDubboListener(name, routes string, wait time.Duration) said {
	return said{resource.ListenerType, name, serialized(&listenerv3.Listener{Name: name, Address: anAddress(20880), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "dubbo", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(&dubbov3.DubboProxy{
			RouteSpecifier: &dubbov3.DubboProxy_Drds{Drds: &dubbov3.Drds{RouteConfigName: routes, ConfigSource: byADS(wait)}},
		})}}},
	}}})}
}

// dubboRoutes send all calls to a cluster.
func dubboRoutes(name, cluster string) said {
	return said{resource.DubboRouteType, name, serialized(&dubbov3.MultipleRouteConfiguration{Name: name, RouteConfig: []*dubbov3.RouteConfiguration{{
		Interface: "*", Routes: []*dubbov3.Route{{Match: &dubbov3.RouteMatch{}, Route: &dubbov3.RouteAction{ClusterSpecifier: &dubbov3.RouteAction_Cluster{Cluster: cluster}}}},
	}}})}
}

// TestRoutesOfDubboAreNoOthers: of the same name, one of each type.
func TestRoutesOfDubboAreNoOthers(t *testing.T) {
	now, w := time.Now(), newWorld()
	names := func() (all []string) {
		for _, r := range w.snapshot(&config.Snapshot{}).Routes {
			all = append(all, tableName(r.Name))
		}
		return all
	}
	hear(t, w, aListener("http", 80, "r", "", 0), now)
	hear(t, w, aDubboListener("dubbo", "r", 0), now)
	hear(t, w, someRoutes("r", "text"), now)
	w.settle(now)
	if got := names(); !slices.Equal(got, []string{"r"}) {
		t.Errorf("active routes: %q, want those of HTTP", got)
	}
	if waits := w.waiting(); len(waits) != 1 || waits[0].Name != "dubbo" || !slices.Equal(waits[0].For, []string{"routes r of Dubbo"}) {
		t.Errorf("what waits is %+v", waits)
	}
	hear(t, w, dubboRoutes("r", "c"), now)
	w.settle(now)
	if got := names(); !slices.Equal(got, []string{"r of Dubbo", "r"}) {
		t.Errorf("active routes: %q, want both", got)
	}
	if http, dubbo := tablesOf(w.wanted().tables); !slices.Equal(http, []string{"r"}) || !slices.Equal(dubbo, []string{"r"}) {
		t.Errorf("wanted are %q of HTTP and %q of Dubbo", http, dubbo)
	}
}
