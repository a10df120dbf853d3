package xds

import (
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// nestedFilterCapabilities are filters whose settings are nested without a limit of their own.
func nestedFilterCapabilities() resource.Capabilities {
	return resource.Capabilities{Filters: []filter.StreamFilterFactory{rbac.Kind()}}
}
