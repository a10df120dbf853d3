package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// splitTables splits table names into the names of RouteType resources and of DubboRouteType
// resources.
func splitTables(tables []string) (http, dubbo []string) {
	for _, t := range tables {
		if name, ok := resource.DubboResourceName(t); ok {
			dubbo = append(dubbo, name)
		} else {
			http = append(http, t)
		}
	}
	return http, dubbo
}

// displayTableName returns the name of a table for logs and status output.
func displayTableName(table string) string {
	if name, ok := resource.DubboResourceName(table); ok {
		return name + " of Dubbo"
	}
	return table
}
