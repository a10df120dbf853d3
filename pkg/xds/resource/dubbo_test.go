package resource

import (
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

// dubboListener is a serialized listener with a proxy of Dubbo, which text describes.
func dubboListener(t *testing.T, text string) []byte {
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

func TestCallsOfDubboAreRouted(t *testing.T) {
	l, err := ReadListener(dubboListener(t, `
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
		}`), kinds())
	if err != nil {
		t.Fatal(err)
	}
	proxy := l.Config.FilterChains[0].Proxy
	if len(l.Tables) != 1 || proxy.RouteTable != l.Tables[0].Name || len(proxy.Downstream) != 1 || proxy.Downstream[0] != config.Dubbo || proxy.Upstream != config.Dubbo {
		t.Fatalf("the proxy is %+v, with %d tables", proxy, len(l.Tables))
	}
	table, err := router.Compile(l.Tables[0])
	if err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]string{
		"org.Shop/buy group=eu version=2.0":   "eu",
		"org.Shop/buy group=eu version=2.1":   "",
		"org.Shop/buy group=eu":               "",
		"org.Shop/buy tenant=blue":            "blue",
		"org.Shop/buy tenant=red":             "",
		"org.Shop/getAll":                     "b", // of the last quarter
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

func TestWhatIsRefusedOfDubbo(t *testing.T) {
	const route = `interface: "org.Shop", routes: {match: {}, route: {cluster: "shop"}}`
	for text, want := range map[string]string{
		`drds: {route_config_name: "shop"}`:                                                                                                        "typed_config.drds: is not supported",
		`dubbo_filters: {name: "envoy.filters.dubbo.other"}, route_config: {` + route + `}`:                                                        "dubbo_filters[0]: envoy.filters.dubbo.other",
		`route_config: {routes: {match: {}, route: {cluster: "shop"}}}`:                                                                            "interface: is missing",
		`route_config: {interface: "a*b", routes: {match: {}, route: {cluster: "shop"}}}`:                                                          "one star",
		`route_config: {interface: "*a*", routes: {match: {}, route: {cluster: "shop"}}}`:                                                          "one star",
		`route_config: {interface: "a", routes: {match: {method: {params_match: {key: 0, value: {exact_match: "x"}}}}, route: {cluster: "shop"}}}`: "params_match: is not supported",
		`route_config: {interface: "a", routes: {match: {}, route: {}}}`:                                                                           "expected cluster or weighted_clusters",
		`route_config: {interface: "a", routes: {match: {}, route: {weighted_clusters: {clusters: {name: "b"}}}}}`:                                 "the weights are 0",
		`route_config: {` + route + `}, multiple_route_config: {route_config: {` + route + `}}`:                                                    "beside multiple_route_config",
	} {
		if _, err := ReadListener(dubboListener(t, text), kinds()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
