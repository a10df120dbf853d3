package configjson

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// Special steps of ClusterKey.Path.
const (
	eachValue = "*"  // each element of a list, or value of an object
	eachKey   = "*=" // each key of an object
)

// ClusterKey is a setting of a filter that contains cluster names.
type ClusterKey struct {
	// Path is a path of keys: "*" matches each element of a list or value of an object, and "*="
	// matches each key of an object.
	Path string
	// WarnOnly says that the filter only reads the state of the cluster, so that an unknown cluster
	// is a warning. Otherwise the filter sends requests to it, and an unknown cluster is an error,
	// as in a route.
	WarnOnly bool
}

// ClusterKeys returns the settings that contain cluster names, by the name of the filter.
// TestClusterKeysAreComplete in cmd/weft verifies that the list is complete.
func ClusterKeys() map[string][]ClusterKey {
	return map[string][]ClusterKey{
		"ext_authz":   {{Path: "http_service.server_uri.cluster"}, {Path: "grpc_service.cluster"}, {Path: "grpc_service.envoy_grpc.cluster_name"}},
		"fault":       {{Path: "upstream_cluster", WarnOnly: true}},
		"healthcheck": {{Path: "cluster_min_healthy_percentages.*=", WarnOnly: true}},
		"jwt_authn":   {{Path: "providers.*.remote_jwks.http_uri.cluster"}},
		mirrorFilter:  {{Path: "cluster"}, {Path: "more.*.cluster"}},
	}
}

// checkFilterClusters reports unknown clusters in the settings of a filter, unless more clusters may come
// from elsewhere.
func (r *reader) checkFilterClusters(filter string, settings document.Node) {
	if r.hasDynamicClusters {
		return
	}
	for _, k := range ClusterKeys()[filter] {
		severity := document.Error
		if k.WarnOnly {
			severity = document.Warning
		}
		r.checkClustersAt(settings, strings.Split(k.Path, "."), severity)
	}
}

// checkClustersAt reports unknown clusters at a path below n.
func (r *reader) checkClustersAt(n document.Node, path []string, severity document.Severity) {
	if len(path) == 0 {
		r.checkClusterName(n, n.Text(), severity)
		return
	}
	switch step := path[0]; step {
	case eachValue:
		for member := range n.All() {
			r.checkClustersAt(member, path[1:], severity)
		}
	case eachKey:
		for member := range n.All() {
			r.checkClusterName(member, member.Key(), severity)
		}
	default:
		r.checkClustersAt(n.Get(step), path[1:], severity)
	}
}

// checkClusterName reports name if it is not a known cluster; "" means no cluster.
func (r *reader) checkClusterName(at document.Node, name string, severity document.Severity) {
	if name == "" || r.clusters[name] != nil || r.staticClusters[name] {
		return
	}
	known := slices.Concat(r.clusterNames(), slices.Sorted(maps.Keys(r.staticClusters)))
	if severity == document.Error {
		r.report.Unknown(at, "cluster", name, known)
		return
	}
	place := at.Position()
	r.report.Add(document.Diagnostic{
		Severity: severity, File: place.File, Line: place.Line, Column: place.Column, Path: at.Path(),
		Problem: fmt.Sprintf("unknown cluster %q", name), Suggestion: document.Suggest(name, known),
	})
}

// findExternalClusters finds the clusters outside cluster_manager.
func (r *reader) findExternalClusters(j *rootJSON) {
	r.hasDynamicClusters = r.snapshot.Dubbo.Enable || r.envoyMember(j.DynamicResources, "cds_config").Exists()
	for c := range j.StaticResources.Get("clusters").All() {
		r.staticClusters[c.Get("name").Text()] = true
	}
}
