package xds

import (
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// nestedFilterCapabilities returns capabilities with a filter whose settings can be nested to any
// depth.
func nestedFilterCapabilities() resource.Capabilities {
	return resource.Capabilities{Filters: []filter.StreamFilterFactory{rbac.Factory()}}
}
