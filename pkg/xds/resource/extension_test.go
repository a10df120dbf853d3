package resource

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
)

const (
	corsURL = "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"
	rbacURL = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	luaURL  = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
)

// httpListenerBody returns a serialized listener with the described filters before its router.
func httpListenerBody(t *testing.T, filters ...string) []byte {
	t.Helper()
	hcm := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "routes"}}}
	for _, text := range filters {
		f := &hcmv3.HttpFilter{}
		if err := prototext.Unmarshal([]byte(text), f); err != nil {
			t.Fatal(err)
		}
		hcm.HttpFilters = append(hcm.HttpFilters, f)
	}
	hcm.HttpFilters = append(hcm.HttpFilters, &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}})
	chain := func(port uint32) *listenerv3.FilterChain {
		return &listenerv3.FilterChain{
			FilterChainMatch: &listenerv3.FilterChainMatch{SourcePorts: []uint32{port}},
			Filters:          []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, hcm)}}},
		}
	}
	m := &listenerv3.Listener{
		Name: "l", Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/l"}}},
		FilterChains: []*listenerv3.FilterChain{chain(1), chain(2)}, DefaultFilterChain: chain(3),
	}
	m.DefaultFilterChain.FilterChainMatch = nil
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// ecdsFilter returns the text of a filter whose settings come from ECDS.
func ecdsFilter(name, types, rest string) string {
	return `name: "` + name + `" config_discovery: {config_source: {ads: {} initial_fetch_timeout: {seconds: 3}} type_urls: ["` + strings.ReplaceAll(types, " ", `", "`) + `"] ` + rest + `}`
}

// newExtension returns an Extension with the settings m.
func newExtension(t *testing.T, m proto.Message) *Extension {
	t.Helper()
	body, err := proto.Marshal(&corev3.TypedExtensionConfig{Name: "mine", TypedConfig: packed(t, m)})
	if err != nil {
		t.Fatal(err)
	}
	e, err := ReadExtension(body, testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestExtensionConfigDiscovery(t *testing.T) {
	cors, rbac := newExtension(t, &corsv3.Cors{}), newExtension(t, &rbacv3.RBAC{})
	const defaultConfig = `default_config: {[` + rbacURL + `] {}}`
	for _, test := range []struct {
		name    string
		filters []string
		ecds    map[string]*Extension
		want    string // the chain's filters: MISSING without settings, (off) if disabled
	}{
		{"not received", []string{ecdsFilter("mine", corsURL, "")}, nil, "MISSING"},
		{"received", []string{ecdsFilter("mine", corsURL, "")}, map[string]*Extension{"mine": cors, "other": rbac}, "cors"},
		{"wrong type", []string{ecdsFilter("mine", corsURL, "")}, map[string]*Extension{"mine": rbac}, "MISSING"},
		{"second of two types", []string{ecdsFilter("mine", corsURL+" "+rbacURL, "")}, map[string]*Extension{"mine": rbac}, "rbac"},
		{"rejected, with default config", []string{ecdsFilter("mine", corsURL+" "+rbacURL, defaultConfig)}, map[string]*Extension{"mine": {}}, "rbac"},
		{"default config", []string{ecdsFilter("mine", corsURL+" "+rbacURL, defaultConfig)}, nil, "rbac"},
		{"received, with default config", []string{ecdsFilter("mine", corsURL+" "+rbacURL, defaultConfig)}, map[string]*Extension{"mine": cors}, "cors"},
		{"unsupported type", []string{ecdsFilter("mine", luaURL+" "+corsURL, "")}, map[string]*Extension{"mine": {typeURL: luaURL}}, "MISSING"},
		{"two filters", []string{ecdsFilter("one", corsURL, ""), ecdsFilter("two", rbacURL, "")}, map[string]*Extension{"one": cors, "two": rbac}, "cors rbac"},
		{"two filters of one type", []string{ecdsFilter("one", corsURL, ""), ecdsFilter("two", corsURL, "")}, map[string]*Extension{"one": cors, "two": cors}, "cors cors"},
		{"type of another filter of the listener", []string{`name: "r" typed_config: {[` + rbacURL + `] {}}`, ecdsFilter("mine", rbacURL, "")}, map[string]*Extension{"mine": rbac}, "rbac rbac"},
		{"disabled", []string{ecdsFilter("mine", corsURL, "") + ` disabled: true`}, map[string]*Extension{"mine": cors}, "cors(off)"},
		{"disabled and not received", []string{ecdsFilter("mine", corsURL, "") + ` disabled: true`}, nil, "cors:MISSING(off)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := ReadListener(httpListenerBody(t, test.filters...), testCapabilities())
			if err != nil {
				t.Fatal(err)
			}
			if s := l.DynamicFilters[0]; s.InitialFetchTimeout != 3*time.Second || s.SkipWarming || len(l.DynamicFilters) != 3*(len(test.filters)-strings.Count(test.filters[0], "typed_config")) {
				t.Errorf("%d dynamic filters, the first is %+v; want three copies of each, with a timeout of 3s and warming", len(l.DynamicFilters), s)
			}
			resolved, ok := l.Resolve(nil, test.ecds)
			if !ok {
				t.Fatal("a secret is missing")
			}
			for c := range resolved.Chains() {
				if got := formatFilters(c.Proxy.StreamFilters); got != test.want+" mirror" {
					t.Errorf("the filters are %q, want %q and mirror", got, test.want)
				}
			}
		})
	}
}

func TestRemovedExtensionConfig(t *testing.T) {
	l, err := ReadListener(httpListenerBody(t, ecdsFilter("mine", corsURL, "")), testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	for extension, want := range map[*Extension]string{newExtension(t, &corsv3.Cors{}): "cors mirror", nil: "MISSING mirror"} {
		resolved, _ := l.Resolve(nil, map[string]*Extension{"mine": extension})
		if got := formatFilters(resolved.DefaultChain.Proxy.StreamFilters); got != want {
			t.Errorf("the filters are %q, want %q", got, want)
		}
	}
	if got := formatFilters(l.Config.DefaultChain.Proxy.StreamFilters); got != "MISSING mirror" {
		t.Errorf("filters of the listener after Resolve: %q, want MISSING mirror", got)
	}
}

// formatFilters returns the filters of a chain as text, in order.
func formatFilters(filters []config.Filter) string {
	var out []string
	for _, f := range filters {
		text := f.Name
		if f.Config == (config.FilterConfigMissing{}) {
			text = "MISSING"
			if f.Disabled {
				text = f.Name + ":MISSING"
			}
		}
		if f.Disabled {
			text += "(off)"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestDefaultConfigWithoutWarming(t *testing.T) {
	for rest, skip := range map[string]bool{
		``: false,
		`apply_default_config_without_warming: true`:                                        false,
		`apply_default_config_without_warming: true default_config: {[` + corsURL + `] {}}`: true,
		`default_config: {[` + corsURL + `] {}}`:                                            false,
	} {
		l, err := ReadListener(httpListenerBody(t, ecdsFilter("mine", corsURL, rest)), testCapabilities())
		if err != nil || l.DynamicFilters[0].SkipWarming != skip {
			t.Errorf("%s: %v, %v, want SkipWarming = %t", rest, l.DynamicFilters, err, skip)
		}
	}
}

func TestRejectedDynamicFilters(t *testing.T) {
	for text, want := range map[string]string{
		`name: "x" config_discovery: {config_source: {ads: {}}}`:                                 "http_filters[0].config_discovery.type_urls: is empty",
		`name: "x" config_discovery: {config_source: {path: "/x"} type_urls: "` + corsURL + `"}`: "config_discovery.config_source.path: ",
		ecdsFilter("x", luaURL, ""):                                               "type_urls: none of " + luaURL,
		ecdsFilter("", corsURL, ""):                                               "http_filters[0].name: is missing",
		ecdsFilter("x", corsURL, `default_config: {[`+rbacURL+`] {}}`):            "default_config: is a " + rbacURL,
		ecdsFilter("x", corsURL, `default_config: {type_url: "`+luaURL+`"}`):      "default_config: " + luaURL + " is not supported",
		ecdsFilter("x", corsURL+" "+rbacURL, "") + ` disabled: true`:              "expected the types of one filter only, because the filter is disabled",
		`name: "router" disabled: true typed_config: {[` + routerFilter + `] {}}`: "http_filters[0].disabled: the router filter cannot be disabled",
	} {
		if _, err := ReadListener(httpListenerBody(t, text), testCapabilities()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadListener with the filter %s: error %v, want one with %q", text, err, want)
		}
	}
	body, err := proto.Marshal(&corev3.TypedExtensionConfig{Name: "x", TypedConfig: &anypb.Any{TypeUrl: luaURL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExtension(body, testCapabilities()); err == nil || err.Error() != "typed_config: "+luaURL+" is not supported" {
		t.Errorf("unsupported filter type: error %v, want one about typed_config", err)
	}
}

// FuzzReadExtension verifies that every input is rejected or becomes settings of a filter.
func FuzzReadExtension(f *testing.F) {
	for _, url := range []string{corsURL, rbacURL, luaURL} {
		body, err := proto.Marshal(&corev3.TypedExtensionConfig{Name: "x", TypedConfig: &anypb.Any{TypeUrl: url}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if e, err := ReadExtension(body, testCapabilities()); err == nil && (e.filterName == "" || e.config == nil) {
			t.Errorf("ReadExtension = %+v, want a filter name and settings, or an error", e)
		}
	})
}
