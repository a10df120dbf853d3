//go:build !noxds

package main

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// hasXDS reports that the build supports control planes.
const hasXDS = true

// control receives configuration from control planes.
type control = xds.Source

// newControl returns the control for the bootstrap of a file, or nil if the file has none.
func (p *process) newControl(file *config.Snapshot) (*control, error) {
	if !hasBootstrap(file) {
		return nil, nil //nolint:nilnil // there is none
	}
	return xds.New(xds.Options{
		Bootstrap:     file.Bootstrap,
		Apply:         p.enforce,
		ApplyClusters: p.server.ApplyClusters,
		ApplyRoutes:   p.server.ApplyRoutes,
		Kinds:         resource.Kinds{Filters: streamFilters(), Gates: gates()},
		Clusters:      p.server.Clusters().Demand(),
		Tables:        p.server.OnDemandRoutes(),
		Loads:         p.server.Clusters().Loads,
		Metrics:       p.metrics,
		Log:           p.log,
	})
}
