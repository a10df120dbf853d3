package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/stream/extauthz"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
	"github.com/weft-proxy/weft/pkg/filter/stream/mirror"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

const (
	httpFilterJSON = `{"name": "f", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.%s", %s}}`
	tcpProxyJSON   = `{"name": "tcp", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "cluster": %q}}`
)

// filteredListenerJSON returns an HTTP listener with routes and one more HTTP filter. message is
// the type of the filter settings, without the package prefix.
func filteredListenerJSON(message, settings, routes string) string {
	text := xdstest.HTTPListenerJSON("a", 80, routes)
	return strings.Replace(text, `"http_filters": [`, `"http_filters": [`+fmt.Sprintf(httpFilterJSON, message, settings)+", ", 1)
}

// TestUnknownClustersInStaticResources verifies that references to unknown clusters are reported by
// field, with the nearest name. As in Envoy, they are errors in inline routes. Elsewhere, and with
// validate_clusters: false, they are warnings.
func TestUnknownClustersInStaticResources(t *testing.T) {
	capabilities := resource.Capabilities{Filters: []filter.StreamFilterFactory{extauthz.Factory(), fault.Factory(), jwtauthn.Factory(), mirror.Factory()}}
	const manager = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config."
	const route = manager + "route_config.virtual_hosts[0].routes[0].route."
	routeTo := func(action string) string {
		return xdstest.HTTPListenerJSON("a", 80, fmt.Sprintf(xdstest.InlineRoutesJSON, action))
	}
	directResponse := fmt.Sprintf(xdstest.InlineRoutesJSON, xdstest.DirectResponseJSON)
	for name, c := range map[string]struct {
		listener string
		rejected bootstrap.FieldErrors
		warnings bootstrap.FieldErrors
	}{
		"route":               {routeTo(`"route": {"cluster": "controll"}`), bootstrap.FieldErrors{{Field: route + "cluster", Reason: `unknown cluster "controll"; did you mean "control"?`}}, nil},
		"cluster of the file": {routeTo(`"route": {"cluster": "own"}`), nil, nil},
		"weighted_clusters": {routeTo(`"route": {"weighted_clusters": {"clusters": [{"name": "control", "weight": 1}, {"name": "x", "weight": 1}]}}`),
			bootstrap.FieldErrors{{Field: route + "weighted_clusters.clusters[1].name", Reason: `unknown cluster "x"`}}, nil},
		"request_mirror_policies": {routeTo(`"route": {"cluster": "control", "request_mirror_policies": [{"cluster": "x"}]}`),
			bootstrap.FieldErrors{{Field: route + "request_mirror_policies[0].cluster", Reason: `unknown cluster "x"`}}, nil},
		"validate_clusters false": {strings.Replace(routeTo(`"route": {"cluster": "x"}`), `"virtual_hosts"`, `"validate_clusters": false, "virtual_hosts"`, 1),
			nil, bootstrap.FieldErrors{{Field: route + "cluster", Reason: `unknown cluster "x"`}}},
		"cluster_header": {routeTo(`"route": {"cluster_header": "x"}`), nil, nil},
		"tcp_proxy":      {xdstest.ListenerJSON(`"name": "a", `, 80, fmt.Sprintf(tcpProxyJSON, "x"), ""), nil, bootstrap.FieldErrors{{Field: manager + "cluster", Reason: `unknown cluster "x"`}}},
		"ext_authz HTTP service": {filteredListenerJSON("ext_authz.v3.ExtAuthz", `"http_service": {"server_uri": {"uri": "http://a.test", "cluster": "x", "timeout": "1s"}}`, directResponse),
			nil, bootstrap.FieldErrors{{Field: manager + "http_filters[0].typed_config.http_service.server_uri.cluster", Reason: `unknown cluster "x"`}}},
		"ext_authz gRPC service": {filteredListenerJSON("ext_authz.v3.ExtAuthz", `"grpc_service": {"envoy_grpc": {"cluster_name": "x"}}`, directResponse),
			nil, bootstrap.FieldErrors{{Field: manager + "http_filters[0].typed_config.grpc_service.envoy_grpc.cluster_name", Reason: `unknown cluster "x"`}}},
		"jwt_authn remote_jwks": {filteredListenerJSON("jwt_authn.v3.JwtAuthentication", `"providers": {"p": {"remote_jwks": {"http_uri": {"uri": "http://a.test", "cluster": "x", "timeout": "1s"}}}}`, directResponse),
			nil, bootstrap.FieldErrors{{Field: manager + "http_filters[0].typed_config.providers[p].remote_jwks.http_uri.cluster", Reason: `unknown cluster "x"`}}},
		"fault upstream_cluster": {filteredListenerJSON("fault.v3.HTTPFault", `"upstream_cluster": "x", "abort": {"http_status": 503, "percentage": {"numerator": 1}}`, directResponse),
			nil, bootstrap.FieldErrors{{Field: manager + "http_filters[0].typed_config.upstream_cluster", Reason: `unknown cluster "x"`}}},
		"dubbo_proxy route": {xdstest.ListenerJSON(`"name": "a", `, 80, `{"name": "dubbo", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy",
				"stat_prefix": "s", "route_config": [{"name": "d", "interface": "*", "routes": [{"match": {"method": {"name": {"exact": "m"}}}, "route": {"cluster": "x"}}]}]}}`, ""),
			nil, bootstrap.FieldErrors{{Field: manager + "route_config[0].routes[0].route.cluster", Reason: `unknown cluster "x"`}}},
	} {
		t.Run(name, func(t *testing.T) {
			file := &config.Snapshot{
				Bootstrap: config.Bootstrap{StaticResources: xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{c.listener}, nil)},
				Clusters:  []*config.Cluster{{Name: "own"}},
			}
			_, ignored, err := MergeStatic(file, capabilities)
			var rejected bootstrap.FieldErrors
			errors.As(err, &rejected)
			if diff := cmp.Diff(c.rejected, rejected); diff != "" {
				t.Errorf("rejections (-want +got):\n%s%v", diff, err)
			}
			warnings := slices.DeleteFunc(slices.Clone(ignored), func(p bootstrap.FieldError) bool { return p.Reason == "" })
			if diff := cmp.Diff(c.warnings, warnings); diff != "" && !(len(warnings) == 0 && len(c.warnings) == 0) {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			for origin, change := range map[string]func(){
				"a control plane": func() {
					file.Bootstrap.DynamicResources = []byte(`{"ads_config": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}, "cds_config": {"ads": {}}}`)
				},
				"a registry": func() { file.Bootstrap.DynamicResources, file.Dubbo.Enable = nil, true },
			} {
				change()
				_, ignored, err := MergeStatic(file, capabilities)
				if err != nil || slices.ContainsFunc(ignored, func(p bootstrap.FieldError) bool { return p.Reason != "" }) {
					t.Errorf("with %s: error %v, warnings %v, want none: the cluster may come from there", origin, err, ignored)
				}
			}
		})
	}
}

// TestStaticClustersDuringApply verifies that StaticClusters returns the clusters of the active
// file without waiting for the configuration that is being applied.
func TestStaticClustersDuringApply(t *testing.T) {
	resources := func(names ...string) []byte {
		clusters := make([]string, len(names))
		for i, name := range names {
			clusters[i] = strings.Replace(xdstest.ControlPlaneJSON, `"name": "control"`, fmt.Sprintf(`"name": %q`, name), 1)
		}
		return xdstest.StaticResourcesJSON(clusters, nil, nil)
	}
	var s *Source
	var duringApply []string
	var applyErr error
	s, _ = newTestSourceWith(t, config.Bootstrap{StaticResources: resources("a")}, slog.New(slog.DiscardHandler), func(o *Options) {
		o.Layers = layers.New(func(context.Context, config.Delta) error {
			if s == nil {
				return nil
			}
			names := make(chan []string, 1)
			go func() { names <- s.StaticClusters() }()
			select {
			case duringApply = <-names:
			case <-time.After(10 * time.Second):
				t.Error("StaticClusters waits for the configuration that is being applied")
			}
			return applyErr
		})
	})
	for _, step := range []struct {
		names         []string
		err           error
		during, after string
	}{
		{[]string{"a", "b"}, nil, "[a]", "[a b]"},
		{[]string{"c"}, errors.New("rejected"), "[a b]", "[a b]"},
		{[]string{"b"}, nil, "[a b]", "[b]"},
	} {
		applyErr = step.err
		err := s.stack.SetFile(t.Context(), &config.Snapshot{Bootstrap: config.Bootstrap{StaticResources: resources(step.names...)}})
		if (err != nil) != (step.err != nil) {
			t.Fatalf("SetFile with the clusters %v: %v, want %v", step.names, err, step.err)
		}
		if got := fmt.Sprint(duringApply); got != step.during {
			t.Errorf("while %v is applied, StaticClusters = %s, want %s", step.names, got, step.during)
		}
		if got := fmt.Sprint(s.StaticClusters()); got != step.after {
			t.Errorf("after SetFile with the clusters %v, StaticClusters = %s, want %s", step.names, got, step.after)
		}
	}
}
