package corpora

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReasonKindOmitsNamesAndIndexes(t *testing.T) {
	for reason, want := range map[string]string{
		`/tmp/a.yaml:7:3: static_resources.listeners[2].filter_chains[0].filters[1]: mine (type.googleapis.com/a.B) is not supported`: `filter_chains[].filters[]: type.googleapis.com/a.B is not supported`,
		`a.yaml:1:1: static_resources.clusters[12].type: unknown value "static"; did you mean "STATIC"?`:                              `clusters[].type: unknown value "static"; did you mean "STATIC"?`,
		`a.yaml:1:1: a.typed_extension_protocol_options[envoy.extensions.A].auto_config: is not supported`:                            `typed_extension_protocol_options[…].auto_config: is not supported`,
		`a.yaml: listener "x": no such file`: `listener "…": no such file`,
	} {
		if got := reasonKind(reason); got != want {
			t.Errorf("reasonKind(%q) = %q, want %q", reason, got, want)
		}
	}
}

func TestGroupBecomesStaticResources(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.listeners.yaml": "[{name: l, filterChains: [{filters: [{typedConfig: {rds: {configSource: {ads: {}}, routeConfigName: r}}}]}]}]",
		"a.routes.yaml":    "[{name: r, virtualHosts: []}]",
		"a.clusters.yaml":  "[{name: c, type: EDS, edsClusterConfig: {edsConfig: {ads: {}}, serviceName: s}}, {name: d, type: EDS, edsClusterConfig: {}}]",
		"a.endpoints.yaml": "[{clusterName: s, endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: a.test, portValue: 1}}}}]}]}]",
		"a.secrets.yaml":   "[{name: x}, {name: x, tlsCertificate: {}}]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := findGroups(dir, ".")
	if err != nil || len(found) != 1 {
		t.Fatalf("findGroups = %d configurations, error %v; want 1, nil", len(found), err)
	}
	var got struct {
		Static struct {
			Listeners, Clusters, Secrets []json.RawMessage
		} `json:"static_resources"`
	}
	if err := json.Unmarshal(found[0].text, &got); err != nil {
		t.Fatal(err)
	}
	if text := string(got.Static.Listeners[0]); strings.Contains(text, "rds") || !strings.Contains(text, `"route_config"`) {
		t.Errorf("listener %s, want the table instead of rds", text)
	}
	if text := string(got.Static.Clusters[0]); strings.Contains(text, "EDS") || !strings.Contains(text, `"STRICT_DNS"`) || !strings.Contains(text, `"load_assignment"`) {
		t.Errorf("cluster %s, want its endpoints and the type STRICT_DNS", text)
	}
	if text := string(got.Static.Clusters[1]); !strings.Contains(text, `"STATIC"`) || !strings.Contains(text, `"cluster_name": "d"`) {
		t.Errorf("cluster %s, want no endpoints and the type STATIC", text)
	}
	if n := len(got.Static.Secrets); n != 1 || !strings.Contains(string(got.Static.Secrets[0]), "tlsCertificate") {
		t.Errorf("secrets %s, want only the last one of each name", got.Static.Secrets)
	}
}

func TestProvidedFiles(t *testing.T) {
	pair, err := newKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	checkout, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(checkout, "cds.yaml"), []byte("resources: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &config{dir: checkout, text: []byte(`{path: /var/lib/envoy/cds.yaml, chain: certs/server.crt, key: "certs/serverkey.pem", ca: "CA.cert", log: /var/log/a/b.log, other: /etc/geo.mmdb}`)}
	text, err := provideFiles(c, dir, pair)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(`{path: DIR/var_lib_envoy_cds.yaml, chain: DIR/certs_server.crt, key: "DIR/certs_serverkey.pem", ca: "DIR/CA.cert", log: DIR/b.log, other: /etc/geo.mmdb}`, "DIR", dir)
	if string(text) != want {
		t.Errorf("provideFiles = %s, want %s", text, want)
	}
	for name, content := range map[string]string{"var_lib_envoy_cds.yaml": "resources: []", "certs_server.crt": string(pair.certificate), "certs_serverkey.pem": string(pair.key)} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			t.Errorf("%s contains %q, error %v; want %q", name, got, err, content)
		}
	}
}

func TestRewrittenAddresses(t *testing.T) {
	next := 40_000
	a := addresses{origin: 1, tls: 2, freePort: func() (int, error) { next++; return next, nil }}
	r, err := rewrite([]byte(`
static_resources:
  listeners:
  - address: {socket_address: {address: 0.0.0.0, port_value: 80}}
    filter_chains: [{filters: [{typed_config: {route_config: {virtual_hosts: [{domains: ["*.b"], routes: [{match: {prefix: /a}}, {match: {prefix: /a}}]}]}}}]}]
  - address: {socket_address: {protocol: UDP, address: 0.0.0.0, port_value: 53}}
  clusters:
  - load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: x, port_value: 9}}}}]}]}
  - transport_socket: {name: tls}
    load_assignment: {endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: x, portValue: 9}}}}]}]}
`), a)
	if err != nil {
		t.Fatal(err)
	}
	if r.admin != 40_001 || len(r.listeners) != 1 || r.listeners[0].port != 40_002 {
		t.Errorf("admin port %d and listeners %v, want 40001 and one TCP listener on 40002", r.admin, r.listeners)
	}
	text := string(r.text)
	for _, want := range []string{`"port_value": 1`, `"port_value": 2`, `"protocol": "UDP"`, `"port_value": 40003`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var paths []string
	for _, p := range probesOf(r.listeners) {
		paths = append(paths, p.host+p.path)
	}
	if want := []string{"www.b/a", "www.b/no-such-path"}; !slices.Equal(paths, want) {
		t.Errorf("probes %v, want %v", paths, want)
	}
}

func TestRewrittenMOSNPortsStayEqual(t *testing.T) {
	next := 40_000
	a := addresses{freePort: func() (int, error) { next++; return next, nil }}
	r, err := rewriteMOSN([]byte(`{"servers": [{"listeners": [{"address": "0.0.0.0:2045", "bind_port": true}]}], "hosts": ["127.0.0.1:2045", "127.0.0.1:8080"]}`), a)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"servers": [{"listeners": [{"address": "127.0.0.1:40001", "bind_port": true}]}], "hosts": ["127.0.0.1:40001", "127.0.0.1:40002"]}`
	if string(r.text) != want || len(r.listeners) != 1 || r.listeners[0].port != 40_001 {
		t.Errorf("rewriteMOSN = %s, listeners %v; want %s and the port 40001", r.text, r.listeners, want)
	}
}

func TestLiteralsAndBootstraps(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("package a\n\nvar x = `{\"static_resources\": {}}`\nvar y = `{\"other\": 1}`\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := findLiterals(dir, "a_test.go"); err != nil || len(found) != 1 {
		t.Errorf("findLiterals = %d configurations, error %v; want 1, nil", len(found), err)
	}
	for name, text := range map[string]string{"b.yaml": "static_resources: {}", "docker-compose.yaml": "static_resources: {}", "c.yaml": "services: {}", "d.template.yaml": "static_resources:"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := findBootstraps(dir, ".", "missing")
	if err != nil || len(found) != 1 || found[0].name != "b.yaml" {
		t.Errorf("findBootstraps = %v, error %v; want b.yaml, nil", found, err)
	}
}
