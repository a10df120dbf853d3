//go:build !noxds

package inspect

import "github.com/weft-proxy/weft/pkg/xds/status"

// XDS is the response body of /xds: the state of the control planes.
type XDS = status.Status
