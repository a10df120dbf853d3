//go:build !noxds

package main

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// hasXDS: the build knows control planes.
const hasXDS = true

// control is what a configuration of a control plane comes by; nil: there is none.
type control = xds.Source

// newControl returns the way to the control plane that a file tells of, with what the
// file has in the form of such a one.
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
