package main

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/run"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/dubbo/api"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/stream"
)

// dubboServices manages the Dubbo services that the application publishes and subscribes to. Their
// clusters and routes are a layer above the file and below the control plane.
type dubboServices struct {
	process   *process
	config    config.DubboRegistry // configuration at the start
	discovery *dubbo.Discovery
	api       *api.Server // nil before open
	layer     *layers.Overlay
}

// newServices returns the Dubbo services, or nil if the file does not enable them.
func (p *process) newServices(file *config.Snapshot) (*dubboServices, error) {
	if !file.Dubbo.Enable {
		return nil, nil //nolint:nilnil // nil: no services
	}
	s := &dubboServices{
		process: p, config: file.Dubbo,
		layer: layers.NewOverlay(p.layers, "a Dubbo service of the application", config.DubboRouteTable),
	}
	var err error
	s.discovery, err = dubbo.New(dubbo.Options{
		Registries: registries(),
		Config:     file.Dubbo,
		Apply:      s.layer.Apply,
		TLS:        p.registryTLS,
		CheckOnly:  p.checking,
		Log:        p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", "dubbo_registry", err)
	}
	s.layer.Reset(s.discovery.Resources())
	s.registerMetrics()
	return s, nil
}

// applySeparately removes the services of the state file from the layer, so that they cannot keep
// the process from starting. The discovery applies them later. A failing service does not block the
// others.
func (s *dubboServices) applySeparately() {
	s.discovery.ReapplyRestored()
	s.layer.Reset(s.discovery.Resources())
}

// registryTLS returns the TLS configuration for connections to a registry. A change of its files
// takes effect in the next session that Discovery opens.
func (p *process) registryTLS(t *config.TLS) (*tls.Config, error) {
	c, err := stream.NewTLSContext(t, nil)
	if err != nil {
		return nil, err
	}
	client, err := credential.NewReloader(p.log, nil).NewClient(c)
	if err != nil {
		return nil, err
	}
	return client.Config(credential.Peer{Name: t.ServerName}, nil), nil
}

// open binds the API.
func (s *dubboServices) open(ctx context.Context) error {
	var err error
	s.api, err = api.Listen(ctx, api.Options{
		Address: s.config.API, Socket: s.config.Socket, Token: s.config.Token, StrictStatus: s.config.StrictStatus,
		Publish: s.discovery.Publish, Unpublish: s.discovery.Unpublish, Subscribe: s.subscribe, Unsubscribe: s.discovery.Unsubscribe,
		Services: s.discovery.Status,
		Count:    s.countRequest,
		Log:      s.process.log,
	})
	return err
}

// tasks returns the tasks to run. The caller calls open first.
func (s *dubboServices) tasks() []run.Task {
	return []run.Task{
		{Name: "Dubbo services", Run: s.discovery.Run},
		{Name: "API of Dubbo services", Run: s.api.Run},
	}
}

// close closes the API.
func (s *dubboServices) close() {
	if s.api != nil {
		_ = s.api.Close() // already closed if it ran
	}
}

// subscribe subscribes to a service. It rejects a service if another layer has a cluster of its name.
func (s *dubboServices) subscribe(ctx context.Context, r dubbo.Request) error {
	if err := s.layer.CheckName(r.Service.Key()); err != nil {
		return &dubbo.FieldError{Field: "service.interface", Reason: err.Error()}
	}
	return s.discovery.Subscribe(ctx, r)
}

// unregisterAll unregisters the published services and waits for consumers to notice.
func (s *dubboServices) unregisterAll(ctx context.Context) {
	s.process.log.Info("unpublishing Dubbo services", "wait", s.config.UnregisterWait)
	s.discovery.UnregisterAll(ctx)
}

// countRequest counts a request to the API.
func (s *dubboServices) countRequest(path string, result api.Result) {
	label := metrics.ResultFailed
	switch result {
	case api.OK:
		label = metrics.ResultOK
	case api.Rejected:
		label = metrics.ResultNotAccepted
	case api.Failed:
	}
	s.process.metrics.Counter(metrics.DiscoveryCalls, path, label).Add(1)
}

// registerMetrics registers the metrics of Dubbo services.
func (s *dubboServices) registerMetrics() {
	s.process.metrics.Discovery(func() metrics.Discovery { return metrics.Discovery(s.discovery.Totals()) })
}
