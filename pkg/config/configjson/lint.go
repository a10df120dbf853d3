package configjson

import (
	"reflect"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// maxComparedRoutes is the maximum number of earlier routes of its virtual host with which a route
// is compared. They are the first ones, because a catch-all route there hides the most routes.
const maxComparedRoutes = 1000

// linter warns about settings that are probably mistakes.
type linter struct {
	*input
	clusters *clusterSet
	routes   *routeReader
}

// lint warns about valid settings that are probably mistakes. It runs after all sections have been
// converted.
func (l *linter) lint(root document.Node) {
	for _, model := range l.routes.out {
		if t := l.routes.tables[model.Name]; t != nil && t.model == model {
			l.lintTable(t)
		}
	}
	mentions := map[string]int{}
	for _, d := range l.documents {
		countStrings(d.root, mentions)
	}
	for node := range root.Get("cluster_manager").Get("clusters").All() {
		l.lintCluster(node, mentions)
	}
}

func (l *linter) lintTable(t *table) {
	index := 0
	for _, v := range t.model.VirtualHosts {
		if len(v.Routes) == 0 {
			l.report.Warnf(t.node, "virtual host %q has no routes: every request for it gets 404", v.Name)
		}
		for i, route := range v.Routes {
			if index < len(t.routes) {
				l.lintRoute(t.routes[index], v.Routes[:i], route)
			}
			index++
		}
	}
}

// lintRoute warns about one route; earlier contains the routes before it in its virtual host.
func (l *linter) lintRoute(node document.Node, earlier []*config.Route, route *config.Route) {
	match := node.Get("match")
	for _, other := range earlier[:min(len(earlier), maxComparedRoutes)] {
		if covers(&other.Match, &route.Match) {
			l.report.Warnf(node, "no request reaches route %q: route %q before it matches the same requests", route.Name, other.Name)
			break
		}
	}
	m := &route.Match
	if (m.PathKind == config.PathPrefix || m.PathKind == config.PathExact) && m.Path != "" && m.Path[0] != '/' && m.Path != "*" {
		l.report.Warnf(match.Get("prefix", "path").Or(node), "found %q, which no path matches: paths begin with \"/\"", m.Path)
	}
	f := route.Forward
	if f == nil || f.Retry == nil || f.Timeout == 0 || f.Retry.PerTryTimeout < f.Timeout {
		return
	}
	timeoutNode := node.Get("route").Get("retry_policy").Get("retry_timeout", "per_try_timeout")
	l.report.Warnf(timeoutNode.Or(node), "the per-try timeout (%s) is not less than the timeout of the route (%s), which includes all attempts: it has no effect", f.Retry.PerTryTimeout, f.Timeout)
}

// lintCluster warns about a cluster. mentions counts the strings of the file, including the
// cluster's own name.
func (l *linter) lintCluster(node document.Node, mentions map[string]int) {
	c := l.clusters.byName[node.Get("name").Text()]
	if c == nil {
		return
	}
	if c.Type == config.ClusterStatic && len(c.Hosts) == 0 {
		l.report.Warnf(node.Get("hosts").Or(node), "cluster %q has no hosts: every request for it gets 502", c.Name)
	}
	if mentions[c.Name] < 2 && !l.clusters.dynamic && !l.usesClusterVariable() {
		l.report.Warnf(node.Get("name"), "cluster %q is not used", c.Name)
	}
}

// usesClusterVariable reports whether a route takes the name of its cluster from the request.
func (l *linter) usesClusterVariable() bool {
	for _, t := range l.routes.out {
		for _, v := range t.VirtualHosts {
			for _, route := range v.Routes {
				if route.Forward != nil && route.Forward.ClusterVariable != "" {
					return true
				}
			}
		}
	}
	return false
}

// countStrings counts the string values of a document. Any string may refer to a cluster, because
// filters have keys for cluster names.
func countStrings(n document.Node, counts map[string]int) {
	switch n.Kind() {
	case document.Array, document.Object:
		for child := range n.All() {
			countStrings(child, counts)
		}
	case document.String:
		counts[n.Text()]++
	default:
	}
}

// covers reports whether a matches every request that b matches, apart from CONNECT, which has no
// path. It may report false for conditions that it cannot compare, such as regular expressions.
func covers(a, b *config.RouteMatch) bool {
	if a.Percentage != nil || !coversPath(a, b) {
		return false
	}
	return containsAll(a.Headers, b.Headers) && containsAll(a.Query, b.Query) && containsAll(a.Arguments, b.Arguments) &&
		(len(a.Variables) == 0 || reflect.DeepEqual(a.Variables, b.Variables))
}

// containsAll reports whether b contains every condition of a.
func containsAll[T any](a, b []T) bool {
	for i := range a {
		found := false
		for j := range b {
			found = found || reflect.DeepEqual(a[i], b[j])
		}
		if !found {
			return false
		}
	}
	return true
}

func coversPath(a, b *config.RouteMatch) bool {
	if a.PathKind == config.PathAny || a.PathKind == config.PathPrefix && (a.Path == "" || a.Path == "/" && b.Path != "*") {
		return true
	}
	if a.PathKind == config.PathRegex || b.PathKind == config.PathRegex {
		return a.PathKind == b.PathKind && a.Path == b.Path
	}
	if b.PathKind == config.PathAny || b.IgnoreCase && !a.IgnoreCase {
		return false
	}
	pathA, pathB := a.Path, b.Path
	if a.IgnoreCase {
		pathA, pathB = strings.ToLower(pathA), strings.ToLower(pathB)
	}
	switch a.PathKind {
	case config.PathPrefix:
		return strings.HasPrefix(pathB, pathA)
	case config.PathSegments:
		return b.PathKind != config.PathPrefix && pathB == pathA || strings.HasPrefix(pathB, strings.TrimSuffix(pathA, "/")+"/")
	default: // PathExact
		return b.PathKind == config.PathExact && pathB == pathA
	}
}
