//go:build !noxds

package inspect

import "github.com/weft-proxy/weft/pkg/xds"

// XDS is the state of the control planes, the content of /xds.
type XDS = xds.Status
