//go:build !noxds

package main

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds"
)

// hasXDS reports that the build supports control planes.
const hasXDS = true

// controlPlane receives configuration from control planes.
type controlPlane = xds.Source

// newControlPlane returns the xDS client for the bootstrap of a file, or nil if the file has none.
func (p *process) newControlPlane(file *config.Snapshot) (*controlPlane, error) {
	if !hasBootstrap(file) {
		return nil, nil //nolint:nilnil // nil: no control plane
	}
	return xds.New(xds.Options{
		Bootstrap:       file.Bootstrap,
		Layers:          p.layers,
		Capabilities:    xdsCapabilities(),
		Clusters:        p.server.Clusters().OnDemand(),
		Routes:          p.server.OnDemandRoutes(),
		NewLoadReporter: p.server.Clusters().NewLoadReporter,
		Metrics:         p.metrics,
		Log:             p.log,
	})
}
