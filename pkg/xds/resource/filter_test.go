package resource

import (
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestARouteTurnsFiltersOff(t *testing.T) {
	off := packed(t, &routev3.FilterConfig{Disabled: true})
	for _, test := range []struct{ filter, off, refused string }{
		{"envoy.filters.http.rbac", "rbac", ""},
		{"envoy.filters.http.jwt_authn", "jwt_authn", ""},
		{"envoy.filters.http.lua", "", "[envoy.filters.http.lua].disabled: is not supported"},
		{"mine", "", "[mine].disabled: is not supported"},
		{"envoy.filters.http.mirror", "", "is not supported"}, // it is Weft's own
	} {
		r := &report{kinds: kinds()}
		got := place{report: r}.readPerFilter(map[string]*anypb.Any{test.filter: off})
		if test.refused != "" {
			if err := r.result(); err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: %v, want %q", test.filter, err, test.refused)
			}
			continue
		}
		if err := r.result(); err != nil || len(got) != 1 || got[test.off] != (config.FilterOff{}) {
			t.Errorf("%s: %v, %v", test.filter, got, err)
		}
	}
	r := &report{kinds: kinds()}
	got := place{report: r}.readPerFilter(map[string]*anypb.Any{"c": packed(t, &routev3.FilterConfig{Config: packed(t, &corsv3.CorsPolicy{})})})
	if err := r.result(); err != nil || got["cors"] == nil {
		t.Errorf("settings in a wrapper: %v, %v", got, err)
	}
}

func TestFiltersOfOneKindHaveOneName(t *testing.T) {
	named := func(names ...string) error {
		r := &report{kinds: kinds()}
		var list []*hcmv3.HttpFilter
		for _, name := range names {
			list = append(list, &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &rbacv3.RBAC{})}})
		}
		list = append(list, &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}})
		place{report: r}.readHTTPFilters(list)
		return r.result()
	}
	if err := named("envoy.filters.http.rbac", "envoy.filters.http.rbac"); err != nil {
		t.Errorf("one name: %v", err)
	}
	if err := named("envoy.filters.http.rbac", "mine"); err == nil || !strings.Contains(err.Error(), "mine is of the same kind as envoy.filters.http.rbac") {
		t.Errorf("two names: %v", err)
	}
}
