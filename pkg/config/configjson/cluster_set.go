package configjson

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// clusterSet contains the clusters of a file, to which routes, listeners and filters refer. The
// clusterReader fills it.
type clusterSet struct {
	report *document.Report
	list   []*config.Cluster // clusters of cluster_manager, in the order of the file
	byName map[string]*config.Cluster
	static map[string]bool // names in static_resources
	// shortTimeouts contains the clusters whose keepalive timeout is less than the interval.
	shortTimeouts []shortTimeout
	// dynamic says that a control plane or a registry may add clusters.
	dynamic bool
}

// shortTimeout is a cluster whose keepalive timeout is less than the interval, with the node of the
// setting.
type shortTimeout struct {
	node    document.Node
	cluster *config.Cluster
}

func newClusterSet(report *document.Report) *clusterSet {
	return &clusterSet{report: report, byName: map[string]*config.Cluster{}, static: map[string]bool{}}
}

// resolve reports a name that is not a cluster of cluster_manager. It returns the name as stored in
// the cluster, so that all references share one string.
func (s *clusterSet) resolve(n document.Node, key, name string) string {
	if name == "" {
		return "" // already reported
	}
	if c := s.byName[name]; c != nil {
		return c.Name
	}
	s.report.Unknown(n.Get(key).Or(n), "cluster", name, s.names())
	return name
}

// names returns the names of all clusters, for suggestions.
func (s *clusterSet) names() []string {
	names := make([]string, len(s.list))
	for i, c := range s.list {
		names[i] = c.Name
	}
	return names
}

// checkName reports name, with the given severity, if neither cluster_manager nor static_resources
// defines it. "" means no cluster.
func (s *clusterSet) checkName(node document.Node, name string, severity document.Severity) {
	if name == "" || s.byName[name] != nil || s.static[name] {
		return
	}
	known := slices.Concat(s.names(), slices.Sorted(maps.Keys(s.static)))
	if severity == document.Error {
		s.report.Unknown(node, "cluster", name, known)
		return
	}
	position := node.Position()
	s.report.Add(document.Diagnostic{
		Severity: severity, File: position.File, Line: position.Line, Column: position.Column, Path: node.Path(),
		Problem: fmt.Sprintf("unknown cluster %q", name), Suggestion: document.Suggest(name, known),
	})
}
