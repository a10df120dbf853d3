package configjson

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// clusterKeys returns the keys of the schema whose names contain "cluster", and the name of a
// weighted cluster, except keys of stream filters. The value is true if the key contains the name
// of a cluster and has an effect.
func clusterKeys() map[string]bool {
	const filters, route = "servers[].listeners[].filter_chains[].filters[].", "servers[].routers[].virtual_hosts[].routers[].route."
	return map[string]bool{
		filters + "config (tcp_proxy).cluster":          true,
		filters + "config (tcp_proxy).routes[].cluster": true,
		filters + "config (udp_proxy).cluster":          true,
		route + "cluster_name":                          true,
		route + "weighted_clusters[].cluster.name":      true,

		"cluster_manager":                                  false,
		"cluster_manager.clusters":                         false,
		"cluster_manager.clusters_configs":                 false,
		"cluster_manager.clusters[].cluster_manager_tls":   false,
		"cluster_manager.enable_deferred_cluster_creation": false,
		"cluster_manager.local_cluster_name":               false, // ignored
		filters + "config (proxy).validate_clusters":       false,
		"servers[].routers[].validate_clusters":            false,
		route + "cluster_header":                           false,
		route + "cluster_variable":                         false,
		route + "weighted_clusters":                        false,
	}
}

// TestEveryClusterKeyIsChecked verifies that clusterKeys lists every key that contains "cluster",
// and that testdata/rejected has an error for each key that refers to a cluster. For settings of
// filters see TestClusterKeysAreTagged in cmd/weft.
func TestEveryClusterKeyIsChecked(t *testing.T) {
	tested := unknownClusterKeys(t)
	listed := clusterKeys()
	for _, section := range document.Sections("", rootJSON{}, variants(Capabilities{})) {
		for _, k := range section.Keys {
			path := join(section.Path, k.Name)
			if !strings.Contains(k.Name, "cluster") && !strings.HasSuffix(section.Path, ".cluster") {
				continue
			}
			names, ok := listed[path]
			delete(listed, path)
			switch plainPath := regexp.MustCompile(` \(\w+\)`).ReplaceAllString(path, ""); {
			case strings.HasSuffix(path, "[].cluster.weight"), strings.HasSuffix(path, "[].cluster.metadata_match"), strings.HasSuffix(path, "weighted_clusters[].cluster"):
			case !ok:
				t.Errorf("%s: the key seems to contain a cluster name, but the test does not list it", path)
			case names && !tested[plainPath]:
				t.Errorf("%s: no archive of testdata/rejected has an unknown cluster in this key", path)
			}
		}
	}
	for path := range listed {
		t.Errorf("clusterKeys lists %s, which is not a key: remove it", path)
	}
}

// unknownClusterKeys returns the keys with an unknown cluster in the archives of rejected files.
func unknownClusterKeys(t *testing.T) map[string]bool {
	t.Helper()
	keys := map[string]bool{}
	pattern := regexp.MustCompile(`(?m)^\S+: (\S+): unknown cluster "`)
	for _, path := range slices.Sorted(maps.Keys(archives(t, "testdata/rejected/*.txtar"))) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pattern.FindAllStringSubmatch(string(data), -1) {
			keys[regexp.MustCompile(`\[\d+\]`).ReplaceAllString(m[1], "[]")] = true
		}
	}
	return keys
}

// nestedClusters is the configuration of a filter with cluster names in strings, lists, maps and
// objects.
type nestedClusters struct {
	Name    string                   `key:"name,to" doc:"One." refers:"cluster" example:"\"a\""`
	List    []string                 `key:"list" doc:"Clusters." refers:"cluster" example:"[\"a\"]"`
	Shares  map[string]float64       `key:"shares" doc:"Weights by cluster." refers:"cluster,warn" example:"{\"a\": 1}"`
	Tenants map[string][]nestedEntry `key:"tenants" doc:"The clusters of each tenant."`
	Backup  *nestedEntry             `key:"backup" doc:"The backup."`
}

type nestedEntry struct {
	Cluster string `key:"cluster" doc:"One." refers:"cluster" example:"\"a\""`
	Region  string `key:"region" doc:"The region." example:"\"eu\""`
}

func (n *nestedClusters) Validate() error {
	if n.Name == "" {
		return errors.New("no name")
	}
	return nil
}

// TestTaggedKeysNameClusters verifies that Parse checks the cluster names in keys with a refers
// tag, in filters of listeners and of routes.
func TestTaggedKeysNameClusters(t *testing.T) {
	caps := testCapabilities()
	caps.StreamFilters = append(caps.StreamFilters, filter.StreamFilterFactory{Name: "nested", Config: func() any { return new(nestedClusters) }})
	const text = `
servers:
- listeners:
  - name: in
    address: 127.0.0.1:1
    filter_chains: [{filters: [{type: proxy, config: {downstream_protocol: Http1, router_config_name: t}}]}]
    stream_filters:
    - type: nested
      config:
        to: shop1
        list: [shop, shop2, ""]
        shares: {shop: 1, shop3: 2}
        tenants: {blue: [{cluster: shop}, {cluster: shop4, region: shop5}]}
        backup: {cluster: shop6}
  routers: [{router_config_name: t, virtual_hosts: [{name: v, domains: ["*"], routers: [
    {match: {prefix: /}, direct_response: {status: 200}, per_filter_config: {nested: {list: [shop7]}}}]}]}]
cluster_manager: {clusters: [{name: shop, hosts: [{address: "127.0.0.1:2"}]}]}
`
	const listener, route = "servers[0].listeners[0].stream_filters[0].config", "servers[0].routers[0].virtual_hosts[0].routers[0].per_filter_config.nested"
	want := `c.yaml:10:13: ` + listener + `.to: unknown cluster "shop1"; did you mean "shop"?
c.yaml:11:22: ` + listener + `.list[1]: unknown cluster "shop2"; did you mean "shop"?
c.yaml:12:34: warning: ` + listener + `.shares.shop3: unknown cluster "shop3"; did you mean "shop"?
c.yaml:13:53: ` + listener + `.tenants.blue[1].cluster: unknown cluster "shop4"; did you mean "shop"?
c.yaml:14:27: ` + listener + `.backup.cluster: unknown cluster "shop6"; did you mean "shop"?
c.yaml:16:86: ` + route + `: no name
c.yaml:16:94: ` + route + `.list[0]: unknown cluster "shop7"; did you mean "shop"?`
	if _, list := Parse("c.yaml", []byte(text), caps, Options{}); list.Error() != want {
		t.Errorf("Parse reports\n%s\nwant\n%s", list.Error(), want)
	}
}
