package resource

import (
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
)

func TestRouteDisablesFilters(t *testing.T) {
	off := packed(t, &routev3.FilterConfig{Disabled: true})
	for _, test := range []struct{ filter, wantErr string }{
		{"envoy.filters.http.rbac", ""},
		{"mine", ""}, // the name of a filter of any type
		{"envoy.filters.http.health_check", "[envoy.filters.http.health_check].disabled: is not supported"},
	} {
		r := &report{capabilities: allCapabilities()}
		got := fieldReader{report: r}.readPerFilter(map[string]*anypb.Any{test.filter: off})
		if test.wantErr != "" {
			if err := r.rejection(); err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("%s disabled by a route: error %v, want one with %q", test.filter, err, test.wantErr)
			}
			continue
		}
		if err := r.rejection(); err != nil || len(got) != 1 || got[test.filter] != (config.FilterDisabled{}) {
			t.Errorf("%s: %v, %v, want %[1]s disabled", test.filter, got, err)
		}
	}
	r := &report{capabilities: testCapabilities()}
	got := fieldReader{report: r}.readPerFilter(map[string]*anypb.Any{"c": packed(t, &routev3.FilterConfig{Config: packed(t, &corsv3.CorsPolicy{})})})
	if err := r.rejection(); err != nil || got["c"] == nil {
		t.Errorf("settings in a FilterConfig: %v, %v, want settings of cors", got, err)
	}
}

// TestRouteEnablesDisabledFilters verifies that an empty config enables a filter, as in Envoy. The
// filter then has the settings of the table or the virtual host, if there are any.
func TestRouteEnablesDisabledFilters(t *testing.T) {
	const rbacName, customName = "envoy.filters.http.rbac", "mine"
	on, onOptional := &routev3.FilterConfig{Config: &anypb.Any{}}, &routev3.FilterConfig{Config: &anypb.Any{}, IsOptional: true}
	off, rbacSettings := &routev3.FilterConfig{Disabled: true}, &rbacv3.RBACPerRoute{Rbac: &rbacv3.RBAC{}}
	for _, test := range []struct {
		name               string
		table, host, route proto.Message // settings of the filter in the table, the virtual host and the route
		filter             string
		want               any // config.FilterEnabled, config.FilterDisabled, or nil for settings
		wantErr            string
	}{
		{name: "enabled by an empty config", filter: rbacName, route: on, want: config.FilterEnabled{}},
		{name: "enabled without a config", filter: rbacName, route: &routev3.FilterConfig{}, want: config.FilterEnabled{}},
		{name: "enabled, optional", filter: rbacName, route: onOptional, want: config.FilterEnabled{}},
		{name: "custom name", filter: customName, route: on, want: config.FilterEnabled{}},
		{name: "optional, custom name", filter: customName, route: onOptional, want: config.FilterEnabled{}},
		{name: "runs before route selection", filter: "envoy.filters.http.health_check", route: on, wantErr: "health_check is not supported"},
		{name: "disabled by the virtual host", filter: rbacName, host: off, want: config.FilterDisabled{}},
		{name: "enabled by the route, disabled by the virtual host", filter: rbacName, host: off, route: on, want: config.FilterEnabled{}},
		{name: "disabled by the route, enabled by the virtual host", filter: rbacName, host: on, route: off, want: config.FilterDisabled{}},
		{name: "settings of the virtual host", filter: rbacName, host: rbacSettings, route: on},
		{name: "settings of the table", filter: rbacName, table: rbacSettings, host: on},
		{name: "settings of the table, disabled by the virtual host, enabled by the route", filter: rbacName, table: rbacSettings, host: off, route: on},
		{name: "settings of the table, disabled by the virtual host", filter: rbacName, table: rbacSettings, host: off, want: config.FilterDisabled{}},
		{name: "settings of the table, disabled by the route", filter: rbacName, table: rbacSettings, route: off, want: config.FilterDisabled{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			perFilter := func(m proto.Message) map[string]*anypb.Any {
				if m == nil {
					return nil
				}
				return map[string]*anypb.Any{test.filter: packed(t, m)}
			}
			m := &routev3.RouteConfiguration{Name: "t", TypedPerFilterConfig: perFilter(test.table), VirtualHosts: []*routev3.VirtualHost{{
				Name: "v", Domains: []string{"*"}, TypedPerFilterConfig: perFilter(test.host), Routes: []*routev3.Route{{
					Match:                &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
					Action:               &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
					TypedPerFilterConfig: perFilter(test.route),
				}},
			}}}
			body, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			table, err := ReadRoutes(body, allCapabilities())
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("ReadRoutes: error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := table.Config.VirtualHosts[0].Routes[0].Filters[test.filter]
			if _, settings := got.(*rbac.Config); test.want == nil && !settings || test.want != nil && got != test.want {
				t.Errorf("the route has %#v, want %#v, or settings for nil", got, test.want)
			}
		})
	}
}

func TestFiltersOfOneType(t *testing.T) {
	names := []string{"envoy.filters.http.rbac", "mine", "mine"}
	var list []*hcmv3.HttpFilter
	for _, name := range names {
		list = append(list, &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &rbacv3.RBAC{})}})
	}
	list = append(list, &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}})
	r, out := &report{capabilities: testCapabilities()}, &config.Proxy{}
	fieldReader{report: r}.readHTTPFilters(list, out, &Listener{})
	if err := r.rejection(); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if f := out.StreamFilters[i]; f.Name != "rbac" || f.RouteKey != name {
			t.Errorf("filter %d is %s with the key %q, want rbac with %q", i, f.Name, f.RouteKey, name)
		}
	}
}
