package resource

import (
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/stream/adaptiveconcurrency"
	"github.com/weft-proxy/weft/pkg/filter/stream/basicauth"
	"github.com/weft-proxy/weft/pkg/filter/stream/buffer"
	"github.com/weft-proxy/weft/pkg/filter/stream/cdnloop"
	"github.com/weft-proxy/weft/pkg/filter/stream/compressor"
	"github.com/weft-proxy/weft/pkg/filter/stream/cors"
	"github.com/weft-proxy/weft/pkg/filter/stream/csrf"
	"github.com/weft-proxy/weft/pkg/filter/stream/decompressor"
	"github.com/weft-proxy/weft/pkg/filter/stream/extauthz"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/headermutation"
	"github.com/weft-proxy/weft/pkg/filter/stream/headertometadata"
	"github.com/weft-proxy/weft/pkg/filter/stream/healthcheck"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
	"github.com/weft-proxy/weft/pkg/filter/stream/localratelimit"
	"github.com/weft-proxy/weft/pkg/filter/stream/mirror"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
)

// allCapabilities returns capabilities with all filters of filterMappings, the mirror filter, and
// RBAC as a connection filter.
func allCapabilities() Capabilities {
	return Capabilities{
		Filters: []filter.StreamFilterFactory{
			adaptiveconcurrency.Factory(), basicauth.Factory(), buffer.Factory(), cdnloop.Factory(), compressor.Factory(), cors.Factory(), csrf.Factory(), decompressor.Factory(), extauthz.Factory(), fault.Factory(), headermutation.Factory(), headertometadata.Factory(), healthcheck.Factory(),
			jwtauthn.Factory(), localratelimit.Factory(), mirror.Factory(), rbac.Factory(),
		},
		ConnectionFilters: []filter.ConnectionFilterFactory{rbac.ConnectionFactory()},
	}
}
