package resource

import (
	"io"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// dubboListenerBody returns a serialized listener with the Dubbo proxy that text describes.
func dubboListenerBody(t *testing.T, text string) []byte {
	t.Helper()
	m := &dubbov3.DubboProxy{}
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(&listenerv3.Listener{
		Name: "dubbo",
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 20880},
		}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "envoy.filters.network.dubbo_proxy", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestDubboRouting(t *testing.T) {
	l, err := ReadListener(dubboListenerBody(t, `
		stat_prefix: "dubbo"
		dubbo_filters: {name: "envoy.filters.dubbo.router"}
		multiple_route_config: {
			name: "shop"
			route_config: {name: "one", interface: "org.Shop", group: "eu", version: "2.0", routes: {match: {}, route: {cluster: "eu"}}}
			route_config: {
				name: "two", interface: "org.Shop"
				routes: {match: {method: {name: {exact: "buy"}}, headers: {name: "tenant", string_match: {exact: "blue"}}}, route: {cluster: "blue"}}
				routes: {match: {method: {name: {prefix: "get"}}}, route: {weighted_clusters: {clusters: {name: "a", weight: {value: 1}} clusters: {name: "b", weight: {value: 3}}}}}
			}
			route_config: {name: "three", interface: "org.bank.*", routes: {match: {}, route: {cluster: "bank"}}}
			route_config: {name: "four", interface: "*.Stock", routes: {match: {method: {name: {safe_regex: {regex: "f.*"}}}}, route: {cluster: "stock"}}}
			route_config: {name: "five", interface: "*", routes: {match: {method: {name: {suffix: "Any"}}}, route: {cluster: "any"}}}
		}`), testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	proxy := l.Config.FilterChains[0].Proxy
	if len(l.InlineTables) != 1 || proxy.RouteTable != l.InlineTables[0].Name || len(proxy.Downstream) != 1 || proxy.Downstream[0] != config.Dubbo || proxy.Upstream != config.Dubbo {
		t.Fatalf("proxy %+v, %d inline tables; want Dubbo in both directions with one table", proxy, len(l.InlineTables))
	}
	table, err := router.Compile(l.InlineTables[0])
	if err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]string{
		"org.Shop/buy group=eu version=2.0":   "eu",
		"org.Shop/buy group=eu version=2.1":   "",
		"org.Shop/buy group=eu":               "",
		"org.Shop/buy tenant=blue":            "blue",
		"org.Shop/buy tenant=red":             "",
		"org.Shop/getAll":                     "b", // the random number selects b
		"org.Shopping/getAll":                 "",
		"org.bank.Account/look":               "bank",
		"org.banking.Account/look":            "",
		"org.Stock/find":                      "stock",
		"org.Stock/buf":                       "",
		"com.other.Service/sayAny":            "any",
		"com.other.Service/say service=x.Any": "",
	} {
		callee, attachments, _ := strings.Cut(call, " ")
		x := new(protocol.Exchange)
		x.Reset()
		x.Meta.Protocol = string(config.Dubbo)
		service, method, _ := strings.Cut(callee, "/")
		x.Request.Authority, x.Request.Path = service, "/"+callee
		x.Request.Header.Add("service", service)
		x.Request.Header.Add("method", method)
		for field := range strings.FieldsSeq(attachments) {
			name, value, _ := strings.Cut(field, "=")
			x.Request.Header.Add(name, value)
		}
		got := ""
		if r := table.Match(x); r != nil {
			got, _ = r.ChooseCluster(x, 1<<63)
		}
		if got != want {
			t.Errorf("%s goes to %q, want %q", call, got, want)
		}
	}
}

func TestRejectedDubboConfig(t *testing.T) {
	const route = `interface: "org.Shop", routes: {match: {}, route: {cluster: "shop"}}`
	for text, want := range map[string]string{
		`drds: {config_source: {ads: {}}}`:                                                                                                           "typed_config.drds.route_config_name: is missing",
		`drds: {route_config_name: "shop" config_source: {path: "/x"}}`:                                                                              "typed_config.drds.config_source.path: ",
		`drds: {route_config_name: "shop"}, route_config: {` + route + `}`:                                                                           "cannot be set together with drds",
		`dubbo_filters: {name: "envoy.filters.dubbo.other"}, route_config: {` + route + `}`:                                                          "dubbo_filters[0]: envoy.filters.dubbo.other",
		`route_config: {routes: {match: {}, route: {cluster: "shop"}}}`:                                                                              "interface: is missing",
		`route_config: {interface: "a*b", routes: {match: {}, route: {cluster: "shop"}}}`:                                                            "only one wildcard",
		`route_config: {interface: "*a*", routes: {match: {}, route: {cluster: "shop"}}}`:                                                            "only one wildcard",
		`route_config: {interface: "a", routes: {match: {method: {params_match: {key: 0, value: {}}}}, route: {cluster: "shop"}}}`:                   "method.params_match[0]: expected exact_match or range_match",
		`route_config: {interface: "a", routes: {match: {method: {params_match: {key: 255, value: {exact_match: "x"}}}}, route: {cluster: "shop"}}}`: "params_match[255]: is not a valid argument index: a method has at most 255 arguments",
		`route_config: {interface: "a", routes: {match: {}, route: {}}}`:                                                                             "expected cluster or weighted_clusters",
		`route_config: {interface: "a", routes: {match: {}, route: {weighted_clusters: {clusters: {name: "b"}}}}}`:                                   "the sum of the weights is 0",
		`drds: {route_config_name: "a\nb" config_source: {ads: {}}}`:                                                                                 "drds.route_config_name: \"a\\nb\" contains a line break",
		`route_config: {` + route + `}, multiple_route_config: {route_config: {` + route + `}}`:                                                      "together with drds or multiple_route_config",
	} {
		if _, err := ReadListener(dubboListenerBody(t, text), testCapabilities()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestDubboRouteDiscovery verifies that DRDS tables have names that no HTTP route table has.
func TestDubboRouteDiscovery(t *testing.T) {
	l, err := ReadListener(dubboListenerBody(t, `drds: {route_config_name: "shop" config_source: {ads: {} initial_fetch_timeout: {seconds: 4}}}`), testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	if proxy := l.Config.FilterChains[0].Proxy; len(l.InlineTables) != 0 || len(l.RouteConfigNames) != 1 || l.RouteConfigNames[0] != proxy.RouteTable || l.RouteTimeouts[proxy.RouteTable].Seconds() != 4 {
		t.Errorf("the listener waits for %q for %v, and its table is %q; want a wait of 4s for its table", l.RouteConfigNames, l.RouteTimeouts, proxy.RouteTable)
	}
	if name, ok := DubboResourceName(l.RouteConfigNames[0]); name != "shop" || !ok {
		t.Errorf("DubboResourceName = %q, %t, want shop, true", name, ok)
	}
	if _, ok := DubboResourceName("shop"); ok {
		t.Error("DubboResourceName(shop): ok = true for a table of HTTP routes, want false")
	}
	m := &dubbov3.MultipleRouteConfiguration{}
	if err := prototext.Unmarshal([]byte(`name: "shop" route_config: {name: "one", interface: "org.Shop", routes: {match: {}, route: {cluster: "c"}}}`), m); err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	table, err := ReadDubboRoutes(body, testCapabilities())
	if err != nil || table.Config.Name != DubboTableName("shop") || table.Config.VirtualHosts[0].Routes[0].Forward.Cluster != "c" {
		t.Errorf("table %+v, error %v; want the table shop with a route to c", table, err)
	}
	m.RouteConfig[0].Interface = ""
	if body, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadDubboRoutes(body, testCapabilities()); err == nil || err.Error() != "route_config[0].interface: is missing" {
		t.Errorf("missing interface: error %v, want one about route_config[0].interface", err)
	}
}

// arguments is a request body with the arguments of a Dubbo call.
type arguments []string

func (arguments) Read([]byte) (int, error) { return 0, io.EOF }
func (arguments) Buffered() int            { return 0 }
func (arguments) Close() error             { return nil }

func (a arguments) Argument(i int) (string, bool) {
	if i >= len(a) {
		return "", false
	}
	return a[i], true
}

func TestDubboRoutingByArguments(t *testing.T) {
	l, err := ReadListener(dubboListenerBody(t, `route_config: {
		name: "shop", interface: "*"
		routes: {match: {method: {params_match: {key: 1 value: {range_match: {start: -10 end: 10}}} params_match: {key: 0 value: {exact_match: "blue"}}}}, route: {cluster: "both"}}
		routes: {match: {method: {params_match: {key: 0 value: {exact_match: "blue"}}}}, route: {cluster: "first"}}
		routes: {match: {}, route: {cluster: "any"}}
	}`), testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	table, err := router.Compile(l.InlineTables[0])
	if err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]string{"blue 9": "both", "blue -10": "both", "blue 10": "first", "blue x": "first", "blue": "first", "red 9": "any", "": "any"} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Meta.Protocol = string(config.Dubbo)
		x.Request.Authority, x.Request.Path = "org.Shop", "/org.Shop/buy"
		x.Request.Body = arguments(strings.Fields(call))
		if got, _ := table.Match(x).ChooseCluster(x, 0); got != want {
			t.Errorf("a call of %q goes to %q, want %q", call, got, want)
		}
		x.Request.Body = nil
		if got, _ := table.Match(x).ChooseCluster(x, 0); got != "any" {
			t.Errorf("a call with unreadable arguments goes to %q, want any", got)
		}
	}
}

// FuzzReadDubboRoutes verifies that no input causes a panic, and that compiling a table keeps its
// name.
func FuzzReadDubboRoutes(f *testing.F) {
	for _, text := range []string{
		`name: "n" route_config: {name: "one" interface: "org.Shop" group: "eu" version: "2.0" routes: {match: {} route: {cluster: "eu"}}}`,
		`name: "n" route_config: {interface: "org.*" routes: {match: {method: {name: {safe_regex: {regex: "f.*"}} params_match: {key: 0 value: {exact_match: "x"}} params_match: {key: 300 value: {range_match: {start: 1 end: 5}}}}} route: {cluster: "c"}}}`,
		`name: "n" route_config: {interface: "*" routes: {match: {headers: {name: "t" string_match: {exact: "b"}}} route: {weighted_clusters: {clusters: {name: "a" weight: {value: 1}}}}}}`,
	} {
		m := &dubbov3.MultipleRouteConfiguration{}
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			f.Fatal(err)
		}
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		routes, err := ReadDubboRoutes(body, testCapabilities())
		if err != nil {
			return
		}
		table, err := router.Compile(routes.Config)
		if err == nil && table.Name() != routes.Config.Name {
			t.Errorf("the name of the compiled table is %q, want %q", table.Name(), routes.Config.Name)
		}
	})
}
