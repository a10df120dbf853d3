package resource

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readRequireTLS(r routev3.VirtualHost_TlsRequirementType) config.RequireTLS {
	switch r {
	case routev3.VirtualHost_NONE:
		return config.TLSOptional
	case routev3.VirtualHost_ALL:
		return config.TLSRequired
	case routev3.VirtualHost_EXTERNAL_ONLY:
		return config.TLSRequiredExternal
	}
	p.reject("%v is not supported", r)
	return config.TLSOptional
}
