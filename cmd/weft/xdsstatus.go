//go:build !noxds

package main

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/inspect"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// xdsCommands returns the commands about control planes.
func xdsCommands() []*cobra.Command { return []*cobra.Command{xdsStatusCommand()} }

func xdsStatusCommand() *cobra.Command {
	a := &adminClient{}
	cmd := &cobra.Command{
		Use:   "xds-status",
		Short: "Show the state of the control plane of a running Weft",
		Long: "Xds-status queries the admin port of a running Weft. It shows whether the control plane is connected,\n" +
			"when Weft last accepted and rejected resources of each type, which resources it rejects, and which are\n" +
			"not active yet, with the reasons.",
		Example: "  weft xds-status\n  weft xds-status --admin 127.0.0.1:34901 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			s := &xdsStatus{now: time.Now()}
			if err := a.get(cmd.Context(), "/xds", nil, &s.XDS); err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), s)
		},
	}
	a.flags(cmd.Flags())
	return cmd
}

// xdsStatus is the status of the control planes, for printing.
type xdsStatus struct {
	inspect.XDS
	now time.Time
}

// Text implements printable.
func (s *xdsStatus) Text() string { return inspect.XDSText(&s.XDS, s.now) }

// adminXDS returns the content of /xds; nil if there is no control plane.
func (p *process) adminXDS() *inspect.XDS {
	if p.controlPlane == nil {
		return nil
	}
	s := p.controlPlane.Status()
	if len(s.ControlPlanes) == 0 {
		return nil // static resources only
	}
	return &s
}

// adminDump returns the resources of the control planes in Envoy's format; nil if there is no
// control plane.
func (p *process) adminDump(part string, endpoints bool) ([]json.RawMessage, error) {
	if p.controlPlane == nil {
		return nil, nil
	}
	return p.controlPlane.Dump(status.DumpOptions{Resource: part, Endpoints: endpoints})
}

// adminRuntime returns the layers of the runtime.
func (p *process) adminRuntime() (layers []inspect.RuntimeLayer) {
	if p.controlPlane == nil {
		return nil
	}
	for _, l := range p.controlPlane.RuntimeLayers() {
		layer := inspect.RuntimeLayer{Name: l.Name}
		if l.Values != nil {
			layer.Values = l.Values.Texts()
		}
		layers = append(layers, layer)
	}
	return layers
}

// unreadyListeners returns the listeners that are not active in their last version.
func (p *process) unreadyListeners() (listeners []inspect.UnreadyListener) {
	if p.controlPlane == nil {
		return nil
	}
	for _, l := range p.controlPlane.InitTargets() {
		listeners = append(listeners, inspect.UnreadyListener{Name: l.Listener, Version: l.Version, Targets: l.Targets})
	}
	return listeners
}

// xdsCertificates returns the certificates of the connections to control planes.
func (p *process) xdsCertificates() []credential.Certificates {
	if p.controlPlane == nil {
		return nil
	}
	return p.controlPlane.Certificates()
}

// staticClusters returns the names of the clusters in static_resources.
func (p *process) staticClusters() []string {
	if p.controlPlane == nil {
		return nil
	}
	return p.controlPlane.StaticClusters()
}

// xdsReady returns the result of xds.Source.Ready, or true if there is no control plane.
func (p *process) xdsReady() bool { return p.controlPlane == nil || p.controlPlane.Ready() }
