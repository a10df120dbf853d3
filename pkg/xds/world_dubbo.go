package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// tablesOf returns the resources that tables are: of RouteType, and of DubboRouteType.
func tablesOf(tables []string) (http, dubbo []string) {
	for _, t := range tables {
		if name, ok := resource.DubboRoutes(t); ok {
			dubbo = append(dubbo, name)
		} else {
			http = append(http, t)
		}
	}
	return http, dubbo
}

// tableName is a table as people are told of it.
func tableName(table string) string {
	if name, ok := resource.DubboRoutes(table); ok {
		return name + " of Dubbo"
	}
	return table
}
