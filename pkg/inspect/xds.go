//go:build !noxds

package inspect

import "github.com/weft-proxy/weft/pkg/xds/status"

// XDS is the state of the control planes, the content of /xds.
type XDS = status.Status
