package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"reflect"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/run"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/api"
)

// services are the Dubbo services that the application publishes and subscribes, with the
// way in which they come into force: over the file, below the control plane.
type services struct {
	p      *process
	config config.DubboRegistry // of the start
	hub    *dubbo.Discovery
	api    *api.Server // nil before open

	overlay overlay // guarded by process.applying
}

// newServices returns the services that a file allows for; nil: none.
func (p *process) newServices(file *config.Snapshot) (*services, error) {
	if !file.Dubbo.Enable {
		return nil, nil //nolint:nilnil // there are none
	}
	s := &services{p: p, config: file.Dubbo, overlay: overlay{clusters: map[string]*config.Cluster{}}}
	var err error
	s.hub, err = dubbo.New(dubbo.Options{
		Registries: registries(),
		Config:     file.Dubbo,
		Apply:      s.apply,
		TLS:        p.registryTLS,
		Log:        p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", "dubbo_registry", err)
	}
	s.take()
	s.export()
	return s, nil
}

// take takes what the hub says is in force. Nothing runs yet.
func (s *services) take() {
	clusters, routes := s.hub.Resources()
	s.overlay.routes = routes
	clear(s.overlay.clusters)
	for _, c := range clusters {
		s.overlay.clusters[c.Name] = c
	}
}

// displace leaves what was in force at the end of the last run to the hub, which finds out
// what of it cannot be so any longer: it must not keep a process from starting.
func (s *services) displace() {
	s.hub.ReapplyEach()
	s.take()
}

// registryTLS makes what connections to a registry are secured with. Its files are read
// again at the next start only.
func (p *process) registryTLS(t *config.TLS) (*tls.Config, error) {
	c, err := stream.NewTLSContext(t, nil)
	if err != nil {
		return nil, err
	}
	client, err := credential.NewStore(p.log, nil).Client(c)
	if err != nil {
		return nil, err
	}
	return client.Config(t.ServerName, "", nil), nil
}

// open binds the port of the API.
func (s *services) open(ctx context.Context) error {
	var err error
	s.api, err = api.Listen(ctx, api.Options{
		Address: s.config.API, Socket: s.config.Socket, Token: s.config.Token, StrictStatus: s.config.StrictStatus,
		Publish: s.hub.Publish, Unpublish: s.hub.Unpublish, Subscribe: s.subscribe, Unsubscribe: s.hub.Unsubscribe,
		Services: s.hub.Status,
		Count:    s.count,
		Log:      s.p.log,
	})
	return err
}

// tasks are what is to run; open was called.
func (s *services) tasks() []run.Task {
	return []run.Task{
		{Name: "Dubbo services", Run: s.hub.Run},
		{Name: "API of Dubbo services", Run: s.api.Run},
	}
}

// close gives up the port.
func (s *services) close() {
	if s.api != nil {
		_ = s.api.Close() // it is closed already if it ran
	}
}

// over returns a file with the services, which process.commit puts in its place.
// process.applying is held.
func (s *services) over(file *config.Snapshot) (next *config.Snapshot, undo func(), err error) {
	before := s.overlay
	if err := s.overlay.rebase(file); err != nil {
		return nil, nil, err
	}
	if !reflect.DeepEqual(file.Dubbo, s.config) {
		s.p.later("dubbo_registry")
	}
	return s.overlay.snapshot(), func() { s.overlay = before }, nil
}

// apply puts a change in force: Options.Apply of the hub.
func (s *services) apply(ctx context.Context, c dubbo.Change) error {
	s.p.applying.Lock()
	defer s.p.applying.Unlock()
	undo, err := s.overlay.change(c)
	if err != nil {
		return err
	}
	if err = s.enforce(ctx, c); err != nil {
		undo()
	}
	return err
}

// enforce puts in force what the overlay has become by a change: where nothing is gone,
// at the cost of what is new or changed.
func (s *services) enforce(ctx context.Context, c dubbo.Change) error {
	var tables []*config.RouteTable
	if c.Routes != nil {
		tables = []*config.RouteTable{s.overlay.merged}
	}
	switch control, server := s.p.control, s.p.server; {
	case control != nil && len(c.Removed) > 0:
		return control.Rebase(ctx, s.overlay.snapshot())
	case control != nil:
		return control.RebaseSome(ctx, s.overlay.snapshot(), c.Clusters, tables)
	case len(c.Removed) > 0:
		return server.Apply(ctx, s.overlay.snapshot())
	default:
		// Clusters before the routes to them. If those cannot be applied nothing refers to
		// the clusters, which go with the next Apply.
		if err := server.ApplyClusters(ctx, c.Clusters, s.overlay.snapshot); err != nil || tables == nil {
			return err
		}
		return server.ApplyRoutes(ctx, tables, s.overlay.snapshot)
	}
}

// subscribe is Subscribe of the hub, of services whose cluster can have their name.
func (s *services) subscribe(ctx context.Context, r dubbo.Request) error {
	name := r.Service.Key()
	s.p.applying.Lock()
	taken := s.overlay.named[name]
	s.p.applying.Unlock()
	if taken {
		return &dubbo.FieldError{Field: "service.interface", Reason: clusterClash(name).Error()}
	}
	return s.hub.Subscribe(ctx, r)
}

// withdraw takes back what is published and waits for callers to notice.
func (s *services) withdraw(ctx context.Context) {
	s.p.log.Info("unpublishing Dubbo services", "wait", s.config.WithdrawWait)
	s.hub.UnregisterAll(ctx)
}

// count counts a call of the API.
func (s *services) count(path string, o api.Result) {
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

// export exports the hub's numbers.
func (s *services) export() {
	s.p.metrics.Discovery(func() metrics.Discovery { return metrics.Discovery(s.hub.Totals()) })
}
