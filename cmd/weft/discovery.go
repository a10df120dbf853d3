package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"reflect"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/run"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/dubbo/api"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/stream"
)

// dubboServices manages the Dubbo services that the application publishes and subscribes to. It merges
// their clusters and routes into the file's configuration, below the control plane's.
type dubboServices struct {
	p         *process
	config    config.DubboRegistry // at the start
	discovery *dubbo.Discovery
	api       *api.Server // nil before open

	overlay overlay // guarded by process.configMu
}

// newServices returns the services if the file enables them, else nil.
func (p *process) newServices(file *config.Snapshot) (*dubboServices, error) {
	if !file.Dubbo.Enable {
		return nil, nil //nolint:nilnil // there are none
	}
	s := &dubboServices{p: p, config: file.Dubbo, overlay: overlay{clusters: map[string]*config.Cluster{}}}
	var err error
	s.discovery, err = dubbo.New(dubbo.Options{
		Registries: registries(),
		Config:     file.Dubbo,
		Apply:      s.apply,
		TLS:        p.registryTLS,
		Log:        p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", "dubbo_registry", err)
	}
	s.loadResources()
	s.exportMetrics()
	return s, nil
}

// loadResources copies the resources of Dubbo services into the overlay. The caller calls it before
// anything runs.
func (s *dubboServices) loadResources() {
	clusters, routes := s.discovery.Resources()
	s.overlay.routes = routes
	clear(s.overlay.clusters)
	for _, c := range clusters {
		s.overlay.clusters[c.Name] = c
	}
}

// applySeparately applies the services of the last run again, one by one, and removes them from the
// overlay, so that they cannot keep the process from starting.
func (s *dubboServices) applySeparately() {
	s.discovery.ReapplyRestored()
	s.loadResources()
}

// registryTLS returns the TLS configuration for connections to a registry. A change of its files
// takes effect after a restart.
func (p *process) registryTLS(t *config.TLS) (*tls.Config, error) {
	c, err := stream.NewTLSContext(t, nil)
	if err != nil {
		return nil, err
	}
	client, err := credential.NewReloader(p.log, nil).NewClient(c)
	if err != nil {
		return nil, err
	}
	return client.Config(t.ServerName, "", nil), nil
}

// open binds the API.
func (s *dubboServices) open(ctx context.Context) error {
	var err error
	s.api, err = api.Listen(ctx, api.Options{
		Address: s.config.API, Socket: s.config.Socket, Token: s.config.Token, StrictStatus: s.config.StrictStatus,
		Publish: s.discovery.Publish, Unpublish: s.discovery.Unpublish, Subscribe: s.subscribe, Unsubscribe: s.discovery.Unsubscribe,
		Services: s.discovery.Status,
		Count:    s.countRequest,
		Log:      s.p.log,
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

// overlayOn returns a file merged with the services, for process.apply. undo restores the previous
// overlay. process.configMu is held.
func (s *dubboServices) overlayOn(file *config.Snapshot) (next *config.Snapshot, undo func(), err error) {
	before := s.overlay
	if err := s.overlay.rebase(file); err != nil {
		return nil, nil, err
	}
	if !reflect.DeepEqual(file.Dubbo, s.config) {
		s.p.warnRestart("dubbo_registry")
	}
	return s.overlay.snapshot(), func() { s.overlay = before }, nil
}

// apply applies a change of services: it implements dubbo.Options.Apply.
func (s *dubboServices) apply(ctx context.Context, c dubbo.Change) error {
	s.p.configMu.Lock()
	defer s.p.configMu.Unlock()
	undo, err := s.overlay.change(c)
	if err != nil {
		return err
	}
	if err = s.applyOverlay(ctx, c); err != nil {
		undo()
	}
	return err
}

// applyOverlay applies the overlay after a change. Unless clusters were removed, the cost depends only
// on what is new or changed.
func (s *dubboServices) applyOverlay(ctx context.Context, c dubbo.Change) error {
	var tables []*config.RouteTable
	if c.Routes != nil {
		tables = []*config.RouteTable{s.overlay.merged}
	}
	switch control, server := s.p.control, s.p.server; {
	case control != nil && len(c.Removed) > 0:
		return control.ApplyFile(ctx, s.overlay.snapshot())
	case control != nil:
		return control.ApplyFileChanges(ctx, s.overlay.snapshot(), c.Clusters, tables)
	case len(c.Removed) > 0:
		return server.Apply(ctx, s.overlay.snapshot())
	default:
		// Clusters come before the routes to them. If the routes cannot be applied, nothing refers
		// to the clusters, and the next Apply removes them.
		if err := server.ApplyClusters(ctx, c.Clusters, s.overlay.snapshot); err != nil || tables == nil {
			return err
		}
		return server.ApplyRoutes(ctx, tables, s.overlay.snapshot)
	}
}

// subscribe subscribes to a service. It rejects services whose name is that of a cluster of the
// file.
func (s *dubboServices) subscribe(ctx context.Context, r dubbo.Request) error {
	name := r.Service.Key()
	s.p.configMu.Lock()
	taken := s.overlay.fileClusters[name]
	s.p.configMu.Unlock()
	if taken {
		return &dubbo.FieldError{Field: "service.interface", Reason: clusterNameConflict(name).Error()}
	}
	return s.discovery.Subscribe(ctx, r)
}

// unregisterAll unregisters the published services and waits for consumers to notice.
func (s *dubboServices) unregisterAll(ctx context.Context) {
	s.p.log.Info("unpublishing Dubbo services", "wait", s.config.UnregisterWait)
	s.discovery.UnregisterAll(ctx)
}

// countRequest counts a request to the API.
func (s *dubboServices) countRequest(path string, o api.Result) {
	result := metrics.ResultFailed
	switch o {
	case api.OK:
		result = metrics.ResultOK
	case api.Rejected:
		result = metrics.ResultRefused
	case api.Failed:
	}
	s.p.metrics.Counter(metrics.DiscoveryCalls, path, result).Add(1)
}

// exportMetrics exports the metrics of Dubbo services.
func (s *dubboServices) exportMetrics() {
	s.p.metrics.Discovery(func() metrics.Discovery { return metrics.Discovery(s.discovery.Totals()) })
}
