package configjson

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// refersCluster is the value of the refers tag of keys that contain cluster names.
const refersCluster = "cluster"

// decodeFilter decodes the settings of a filter and reports unknown clusters in their keys with the
// tag refers:"cluster". An unknown cluster does not make the settings invalid: the result is that
// of Decode.
func (r *reader) decodeFilter(settings document.Node, into any) bool {
	r.references = r.references[:0]
	ok := r.decoder.Decode(settings, into)
	if r.hasDynamicClusters {
		return ok // more clusters may come from elsewhere
	}
	for _, ref := range r.references {
		if ref.Kind == refersCluster {
			r.checkClusterName(ref.At, ref.Name, ref.Severity)
		}
	}
	return ok
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
