package corpora

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// group holds the resources that a control plane sends for one configuration.
type group struct {
	listeners, routes, clusters, endpoints, secrets []any
}

// bootstrap returns a bootstrap with the resources of the group as static resources: the tables of
// RDS are inline, and the clusters of EDS have their endpoints.
func (g *group) bootstrap() object {
	for _, list := range []*[]any{&g.listeners, &g.routes, &g.clusters, &g.secrets} {
		*list = uniqueNames(*list)
	}
	tables, assignments := indexBy(g.routes, "name"), indexBy(g.endpoints, "cluster_name")
	for _, l := range g.listeners {
		inlineRoutes(l, tables)
		inlineSecrets(l)
	}
	for _, c := range g.clusters {
		inlineSecrets(c)
		if cluster, ok := c.(object); ok {
			inlineEndpoints(cluster, assignments)
		}
	}
	return object{
		"node":             object{"id": "test", "cluster": "test"},
		"static_resources": object{"listeners": list(g.listeners), "clusters": list(g.clusters), "secrets": list(g.secrets)},
	}
}

// uniqueNames returns the resources without those that have the name of a later one: a control
// plane sends only one resource of each name.
func uniqueNames(resources []any) (unique []any) {
	for i, r := range resources {
		m, _ := r.(object)
		if !slices.ContainsFunc(resources[i+1:], func(later any) bool { other, _ := later.(object); return other["name"] == m["name"] }) {
			unique = append(unique, r)
		}
	}
	return unique
}

// list returns l, or an empty list: JSON has no list that is nil.
func list(l []any) []any {
	if l == nil {
		return []any{}
	}
	return l
}

// indexBy returns objects by the value of a key.
func indexBy(list []any, key string) map[string]any {
	index := map[string]any{}
	for _, element := range list {
		if m, ok := element.(object); ok {
			if name, ok := get(m, key).(string); ok {
				index[name] = element
			}
		}
	}
	return index
}

// get returns the member of an object under the spelling of protobuf or of JSON.
func get(m object, key string) any {
	if v, ok := m[key]; ok {
		return v
	}
	return m[camel(key)]
}

// set replaces or adds a member.
func set(m object, key string, value any) {
	remove(m, key)
	m[key] = value
}

// remove deletes a member.
func remove(m object, key string) {
	delete(m, key)
	delete(m, camel(key))
}

// camel returns the JSON name of a field: routeConfig for route_config.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// objects calls visit with each object in v, outer objects first, and members in the order of their
// keys.
func objects(v any, visit func(object)) {
	switch v := v.(type) {
	case object:
		visit(v)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			objects(v[key], visit)
		}
	case []any:
		for _, element := range v {
			objects(element, visit)
		}
	}
}

// inlineRoutes replaces each reference to a route table by the table.
func inlineRoutes(v any, tables map[string]any) {
	objects(v, func(m object) {
		rds, ok := m["rds"].(object)
		if !ok {
			return
		}
		name, _ := get(rds, "route_config_name").(string)
		if table, ok := tables[name]; ok {
			delete(m, "rds")
			set(m, "route_config", table)
		}
	})
}

// inlineSecrets makes references to secrets of a control plane references to static secrets.
func inlineSecrets(v any) {
	objects(v, func(m object) {
		if source, ok := get(m, "sds_config").(object); ok && source["ads"] != nil {
			remove(m, "sds_config")
		}
	})
}

// inlineEndpoints makes a cluster of EDS a static cluster with its endpoints.
func inlineEndpoints(cluster object, assignments map[string]any) {
	eds, ok := get(cluster, "eds_cluster_config").(object)
	if !ok {
		return
	}
	name, _ := cluster["name"].(string)
	if service, ok := get(eds, "service_name").(string); ok && service != "" {
		name = service
	}
	remove(cluster, "eds_cluster_config")
	cluster["type"] = "STATIC"
	assignment, ok := assignments[name]
	if !ok {
		assignment = object{"cluster_name": name}
	}
	set(cluster, "load_assignment", assignment)
	objects(assignment, func(m object) {
		if address, ok := m["address"].(string); ok {
			if _, err := netip.ParseAddr(address); err != nil {
				cluster["type"] = "STRICT_DNS"
			}
		}
	})
}
