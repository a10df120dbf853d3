package configjson

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// Steps of the paths of ClusterKeys.
const (
	eachValue = "*"  // each element of a list, or value of an object
	eachKey   = "*=" // each key of an object
)

// ClusterKey is a setting of a filter that names clusters.
type ClusterKey struct {
	// Path is one of keys: "*" is each element of a list or value of an object, and "*="
	// each key of an object.
	Path string
	// Looked is that the filter only looks at the cluster: one that there is not is warned
	// of. Others are asked, and one that there is not is refused, as a route's is.
	Looked bool
}

// ClusterKeys returns the settings that name clusters, by the name of the filter.
// TestEveryKeyThatNamesAClusterIsListed in cmd/weft holds it against what filters there
// are.
func ClusterKeys() map[string][]ClusterKey {
	return map[string][]ClusterKey{
		"ext_authz":   {{Path: "http_service.server_uri.cluster"}, {Path: "grpc_service.cluster"}, {Path: "grpc_service.envoy_grpc.cluster_name"}},
		"fault":       {{Path: "upstream_cluster", Looked: true}},
		"healthcheck": {{Path: "cluster_min_healthy_percentages.*=", Looked: true}},
		"jwt_authn":   {{Path: "providers.*.remote_jwks.http_uri.cluster"}},
		mirrorFilter:  {{Path: "cluster"}, {Path: "more.*.cluster"}},
	}
}

// checkNamed tells of settings of a filter that name a cluster that there is not, unless it
// may come from elsewhere.
func (r *reader) checkNamed(filter string, settings document.Node) {
	if r.clustersCome {
		return
	}
	for _, k := range ClusterKeys()[filter] {
		severity := document.Error
		if k.Looked {
			severity = document.Warning
		}
		r.checkNames(settings, strings.Split(k.Path, "."), severity)
	}
}

// checkNames is checkNamed of what stands at a path below n.
func (r *reader) checkNames(n document.Node, path []string, severity document.Severity) {
	if len(path) == 0 {
		r.checkName(n, n.Text(), severity)
		return
	}
	switch step := path[0]; step {
	case eachValue:
		for member := range n.All() {
			r.checkNames(member, path[1:], severity)
		}
	case eachKey:
		for member := range n.All() {
			r.checkName(member, member.Key(), severity)
		}
	default:
		r.checkNames(n.Get(step), path[1:], severity)
	}
}

// checkName tells of a name that is no cluster's. "" is none.
func (r *reader) checkName(at document.Node, name string, severity document.Severity) {
	if name == "" || r.clusters[name] != nil || r.fixed[name] {
		return
	}
	known := slices.Concat(r.clusterNames(), slices.Sorted(maps.Keys(r.fixed)))
	if severity == document.Error {
		r.report.Unknown(at, "cluster", name, known)
		return
	}
	place := at.Position()
	r.report.Add(document.Diagnostic{
		Severity: severity, File: place.File, Line: place.Line, Column: place.Column, Path: at.Path(),
		Problem: fmt.Sprintf("unknown cluster %q", name), Near: document.Near(name, known),
	})
}

// readOthers finds out which clusters there are beside those of cluster_manager.
func (r *reader) readOthers(j *rootJSON) {
	r.clustersCome = r.snapshot.Dubbo.Enable || r.envoyMember(j.DynamicResources, "cds_config").Exists()
	for c := range j.StaticResources.Get("clusters").All() {
		r.fixed[c.Get("name").Text()] = true
	}
}
