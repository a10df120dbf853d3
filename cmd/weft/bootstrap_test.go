//go:build !noxds

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestEnvoyBootstrap verifies that files written for Envoy load, with a warning and its
// position for each setting that has no effect.
func TestEnvoyBootstrap(t *testing.T) {
	for name, want := range map[string]struct {
		listeners, clusters, warnings []string
	}{
		"istio_sidecar.json": {
			[]string{"0.0.0.0:15090"}, []string{"prometheus_stats", "sds-grpc", "xds-grpc", "zipkin"},
			[]string{":28:22: warning: tracing.http: ", ":24:262: warning: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.stat_prefix: has no effect"},
		},
		"tls.yaml": {
			[]string{"listener_0"}, []string{"g", "service_envoyproxy_io"},
			[]string{":15:24: warning: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.stat_prefix: has no effect"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, merged, diagnostics := source{path: filepath.Join("testdata", "envoy", name)}.openMerged()
			if merged == nil || diagnostics.Failed() {
				t.Fatal(diagnostics)
			}
			var listeners, clusters []string
			for _, l := range merged.Listeners {
				listeners = append(listeners, l.Name)
			}
			for _, c := range merged.Clusters {
				clusters = append(clusters, c.Name)
			}
			if !slices.Equal(listeners, want.listeners) || !slices.Equal(clusters, want.clusters) || merged.Admin == nil {
				t.Errorf("listeners %v and clusters %v, want %v and %v, and an admin port", listeners, clusters, want.listeners, want.clusters)
			}
			for _, text := range want.warnings {
				if !strings.Contains(diagnostics.Error(), text) {
					t.Errorf("no warning contains %q:\n%v", text, diagnostics)
				}
			}
			if merged.Server.GracefulTimeout == 0 || merged.Server.Log.Level != config.LevelInfo {
				t.Errorf("the server is %+v, want the defaults", merged.Server)
			}
		})
	}
}

// TestEnvoyBootstrapClusterWarnings verifies that an unknown cluster is a warning where Envoy
// tolerates it, and that the diagnostics are in the order of the file.
func TestEnvoyBootstrapClusterWarnings(t *testing.T) {
	valid, err := os.ReadFile(filepath.Join("testdata", "envoy", "tls.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(path, bytes.ReplaceAll(valid, []byte("cluster: g}"), []byte("cluster: h}")), 0o600); err != nil {
		t.Fatal(err)
	}
	file, _, diagnostics := source{path: path}.openMerged()
	if file == nil {
		t.Fatal(diagnostics)
	}
	last := diagnostics[len(diagnostics)-1].Error()
	if !strings.HasSuffix(last, `filters[0].typed_config.cluster: unknown cluster "h"; did you mean "g"?`) || !strings.Contains(last, ":42:") || !strings.Contains(last, "warning") {
		t.Errorf("diagnostics %v, want a warning about the cluster h at the end", diagnostics)
	}
}

// TestEnvoyBootstrapErrorPositions verifies that each mistake is reported with its position and
// that the file is rejected.
func TestEnvoyBootstrapErrorPositions(t *testing.T) {
	valid, err := os.ReadFile(filepath.Join("testdata", "envoy", "tls.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[[2]string]string{
		{"stat_prefix: ingress_http", "stat_prefiks: ingress_http"}:             `:15:25: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.stat_prefiks: unknown field "stat_prefiks"`,
		{"use_remote_address: true", "path_normalization_options: {}"}:          ":16:39: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.path_normalization_options: is not supported",
		{"name: server_cert}", "name: other_cert}"}:                             `:4:5: static_resources.listeners[0]: secret "other_cert" is not defined in static_resources.secrets, and there is no control plane`,
		{"cluster: service_envoyproxy_io,", "cluster: service_envoyproxi_io,"}:  `:25:75: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[0].route.cluster: unknown cluster "service_envoyproxi_io"; did you mean "service_envoyproxy_io"?`,
		{"type: LOGICAL_DNS", "cluster_type: {name: envoy.clusters.aggregate}"}: `: static_resources.clusters[0].cluster_type.name: "envoy.clusters.aggregate" is not supported, expected `,
	} {
		text := strings.Replace(string(valid), change[0], change[1], 1)
		path := filepath.Join(t.TempDir(), "envoy.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, merged, diagnostics := source{path: path}.openMerged()
		if file != nil || merged != nil || !strings.Contains(diagnostics.Errors().Error(), want) {
			t.Errorf("%s: %v, want %s", change[1], diagnostics.Errors(), want)
		}
	}
}

// TestXDSStatusAddressConflict verifies that check and start reject a file whose xds_status has the
// address of the admin port.
func TestXDSStatusAddressConflict(t *testing.T) {
	const want = "xds_status cannot bind 127.0.0.1:1801: the admin port binds 127.0.0.1:1801"
	path := writeConfig(t, `{`+adminText(1801)+`"xds_status": {"address": "127.0.0.1:1801"}, "static_resources": {"clusters": [{"name": "app", "type": "STATIC"}]}}`)
	if status, _, errs := runWeft(t, "check", path); status != 1 || !strings.Contains(errs, "xds_status.address: "+want) {
		t.Errorf("check: status %d, %s; want 1 and %q", status, errs, want)
	}
	if file, problems := (source{path: path}).open(); file != nil {
		t.Errorf("start accepts the file with %v, want an error", problems)
	}
}

// TestReloadReportsBootstrapRestart verifies that a reload reports the keys of the bootstrap that
// take effect after a restart, both for a new bootstrap and for a changed one.
func TestReloadReportsBootstrapRestart(t *testing.T) {
	file := func(bootstrap string) string {
		return `{"servers": [{"default_log_path": "stderr", "default_log_level": "OFF", "listeners": [` + listenerText("front", "127.0.0.1:0", "") + `],
			"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [{"direct_response": {"status": 200}}]}]}]}]` + bootstrap + `}`
	}
	bootstrap := func(node string, port int, clusters, members string) string {
		return file(fmt.Sprintf(`, "node": {"id": %q, "cluster": "c"}, %s
			"dynamic_resources": {"cds_config": {"ads": {}}, "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}},
			"static_resources": {"clusters": [{"name": "control", "type": "STATIC", "load_assignment": {"cluster_name": "control", "endpoints": [
				{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}}]}]}}%s]}`, node, members, port, clusters))
	}
	const other = `, {"name": "other", "type": "STATIC", "load_assignment": {"cluster_name": "other"}}`
	for name, test := range map[string]struct {
		first, second string
		want          []string
	}{
		"no bootstrap":               {file(""), file(`, "node": {"id": "n", "cluster": "c"}`), nil},
		"new bootstrap":              {file(""), bootstrap("n", 1, "", ""), []string{"node", "static_resources", "dynamic_resources"}},
		"same bootstrap":             {bootstrap("n", 1, "", ""), bootstrap("n", 1, "", ""), nil},
		"another static resource":    {bootstrap("n", 1, "", ""), bootstrap("n", 1, other, ""), nil},
		"node and address":           {bootstrap("n", 1, "", ""), bootstrap("m", 2, other, ""), []string{"node", "static_resources"}},
		"settings of the connection": {bootstrap("n", 1, "", ""), bootstrap("n", 1, "", `"xds_unknown_fields": "warn", "xds_lazy": {},`), []string{"xds_lazy", "xds_unknown_fields"}},
		"bootstrap removed":          {bootstrap("n", 1, "", ""), file(""), []string{"node", "static_resources", "dynamic_resources"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, rewrite := startProcess(t, test.first)
			rewrite(test.second)
			for range 2 {
				if got := p.reload(t.Context()); !got.Applied || !slices.Equal(got.Restart, test.want) {
					t.Errorf("reload result %+v, want it applied and restart keys %q", got, test.want)
				}
			}
		})
	}
}
