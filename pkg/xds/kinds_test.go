package xds

import (
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// builtKinds are filters whose settings are nested without a limit of their own.
func builtKinds() resource.Kinds {
	return resource.Kinds{Filters: []filter.StreamFilterFactory{rbac.Kind()}}
}
