package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// splitTables returns the resources that tables are: of RouteType, and of DubboRouteType.
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

// displayTableName is a table as people are told of it.
func displayTableName(table string) string {
	if name, ok := resource.DubboResourceName(table); ok {
		return name + " of Dubbo"
	}
	return table
}
