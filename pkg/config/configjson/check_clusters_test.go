package configjson

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// clusterKeys returns the keys of the schema that contain "cluster", except those of stream
// filters; true if their value is a cluster name. The path identifies a key inside an object, such
// as the name of a weighted cluster.
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

// TestEveryClusterKeyIsChecked verifies that clusterKeys lists every key that contains
// "cluster", and that testdata/refused shows an error for each that refers to a cluster. For
// settings of stream filters see TestClusterKeysAreComplete in cmd/weft.
func TestEveryClusterKeyIsChecked(t *testing.T) {
	shown := unknownClusterKeys(t)
	judged := clusterKeys()
	for _, section := range document.Sections("", rootJSON{}, variants(Capabilities{})) {
		for _, k := range section.Keys {
			path := join(section.Path, k.Name)
			if !strings.Contains(k.Name, "cluster") && !strings.HasSuffix(section.Path, ".cluster") {
				continue
			}
			names, known := judged[path]
			delete(judged, path)
			switch bare := regexp.MustCompile(` \(\w+\)`).ReplaceAllString(path, ""); {
			case strings.HasSuffix(path, "[].cluster.weight"), strings.HasSuffix(path, "[].cluster.metadata_match"), strings.HasSuffix(path, "weighted_clusters[].cluster"):
			case !known:
				t.Errorf("%s: the key seems to contain a cluster name, but the test does not list it", path)
			case names && !shown[bare]:
				t.Errorf("%s: no archive of testdata/refused has an unknown cluster in this key", path)
			}
		}
	}
	for path := range judged {
		t.Errorf("%s is not a key", path)
	}
}

// unknownClusterKeys returns the keys with an unknown cluster in the archives of rejected files.
func unknownClusterKeys(t *testing.T) map[string]bool {
	t.Helper()
	keys := map[string]bool{}
	said := regexp.MustCompile(`(?m)^\S+: (\S+): unknown cluster "`)
	for _, path := range slices.Sorted(maps.Keys(archives(t, "testdata/refused/*.txtar"))) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range said.FindAllStringSubmatch(string(data), -1) {
			keys[regexp.MustCompile(`\[\d+\]`).ReplaceAllString(m[1], "[]")] = true
		}
	}
	return keys
}
