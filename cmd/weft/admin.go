package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/inspect"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/proxy/explain"
)

// openAdmin opens the admin port, the port of the profiler and the Prometheus port. They are bound
// once: a change of their addresses takes effect after a restart, see restartOnly.
func (p *process) openAdmin(ctx context.Context, c *config.Snapshot) error {
	if c.Admin != nil {
		s, err := admin.Listen(ctx, admin.Options{
			Address:   c.Admin.Address,
			Mode:      c.Admin.Mode,
			Hosts:     c.Admin.Hosts,
			Endpoints: inspect.Endpoints(p.sources(c.Admin.Pprof)),
			Log:       p.log,
		})
		if err != nil {
			return err
		}
		p.ports = append(p.ports, s)
	}
	if c.Profiler != "" {
		s, err := admin.Listen(ctx, admin.Options{
			Address:   c.Profiler,
			Endpoints: []admin.Endpoint{{Method: "GET", Path: admin.PprofPath, Doc: "Profiles for go tool pprof.", Handler: admin.ServePprof}},
			Log:       p.log,
		})
		if err != nil {
			return fmt.Errorf("the profiler (pprof.port_value): %w", err)
		}
		p.ports = append(p.ports, s)
	}
	if m := c.Metrics.Prometheus; m != nil {
		s, err := admin.ListenMetrics(ctx, m.Address, m.Path, p.metrics.Handler(), p.log)
		if err != nil {
			return err
		}
		p.ports = append(p.ports, s)
	}
	return nil
}

// sources returns the sources of the pages and commands of the admin port. pprof reports whether it
// serves profiles.
func (p *process) sources(pprof bool) inspect.Sources {
	clusters := p.server.Clusters()
	return inspect.Sources{
		State:            p.adminState,
		Process:          p.adminProcess,
		Config:           p.adminConfig,
		Clusters:         clusters.Describe,
		Cluster:          clusters.DescribeOne,
		FileClusters:     p.fileClusters,
		Listeners:        p.server.Describe,
		Routes:           p.server.DescribeRoutes,
		Overload:         p.server.Overload,
		Certificates:     p.certificates,
		Runtime:          p.adminRuntime,
		UnreadyListeners: p.unreadyListeners,
		XDS:              p.adminXDS,
		Dump:             p.adminDump,
		Samples:          p.adminSamples,
		ReadMemory:       runtime.ReadMemStats,
		Metrics:          p.metrics.Handler(),
		Explain:          func(query url.Values) (*explain.Result, error) { return inspect.Explain(p.server, query) },
		Level:            func() string { return levelName(p.level.Level()) },
		SetLevel:         p.setLevel,
		Drain: func() {
			select {
			case p.drainRequested <- struct{}{}:
			default: // a request is pending already
			}
		},
		SetHealthFailed: p.setHealthFailed,
		Exit:            p.requestExit,
		DrainListeners:  p.drainListeners,
		Reload:          p.reloadNow,
		Pprof:           pprof,
	}
}

func (p *process) adminState() inspect.State {
	switch {
	case p.shuttingDown.Load(), p.server.Draining():
		return inspect.Draining
	case p.server.Running() == nil || !p.xdsReady():
		return inspect.Starting
	case p.server.HealthFailed():
		return inspect.Draining // as in Envoy
	}
	return inspect.Ready
}

func (p *process) adminConfig() inspect.ConfigDump {
	s := p.state.Load()
	text := s.file.Redacted()
	sum := sha256.Sum256(text)
	return inspect.ConfigDump{
		Source:   p.flags.name(),
		Hash:     hex.EncodeToString(sum[:8]),
		Applied:  s.appliedAt,
		Rejected: s.rejected,
		Config:   text,
		Dubbo:    p.adminServices(),
	}
}

// adminProcess describes the process.
func (p *process) adminProcess() inspect.Process {
	d := inspect.Process{
		Version:     inspect.Version{Version: version, Revision: revision(), Go: runtime.Version()},
		State:       p.adminState(),
		Uptime:      time.Since(p.startedAt),
		ConfigPath:  p.flags.path,
		Concurrency: runtime.GOMAXPROCS(0),
	}
	if c := p.server.Running(); c != nil {
		d.Node = c.Bootstrap.Node
	}
	return d
}

// certificates returns the certificates of listeners, clusters and control planes.
func (p *process) certificates() []credential.Certificates {
	return append(p.server.Certificates(), p.xdsCertificates()...)
}

// adminSamples returns the current values of the metrics.
func (p *process) adminSamples() iter.Seq[metrics.Sample] {
	samples, err := p.metrics.Samples()
	if err != nil {
		p.log.Warn("some metrics cannot be read", "error", err)
	}
	return samples
}

// fileClusters returns the names of the clusters that the file defines, including those in
// static_resources.
func (p *process) fileClusters() map[string]bool {
	names := map[string]bool{}
	for _, name := range p.staticClusters() {
		names[name] = true
	}
	if s := p.state.Load(); s != nil {
		for _, c := range s.file.Snapshot.Clusters {
			names[c.Name] = true
		}
	}
	return names
}

func (p *process) setLevel(name string) error {
	for _, level := range levels() {
		if strings.EqualFold(string(level), name) {
			p.level.Set(levelOf(level))
			p.log.Info("log level changed", "level", level)
			return nil
		}
	}
	return fmt.Errorf("%q is not a valid log level: expected one of %v", name, levels())
}

// setHealthFailed makes health checks fail, or succeed again.
func (p *process) setHealthFailed(failed bool) {
	p.server.SetHealthFailed(failed)
	p.log.Info("health checks changed by the admin port", "failing", failed)
}

// drainListeners stops listeners, drains their connections, or both.
func (p *process) drainListeners(o inspect.DrainListeners) {
	scope := proxy.AllListeners
	if o.InboundOnly {
		scope = proxy.IngressListeners
	}
	p.log.Info("listeners drained by the admin port", "inbound_only", o.InboundOnly, "graceful", o.Graceful, "skip_exit", o.SkipExit)
	switch {
	case o.SkipExit:
		p.server.DrainConnections(scope)
	case o.Graceful:
		p.server.StopListenersGracefully(scope)
	default:
		p.server.StopListeners(scope)
	}
}

// requestExit requests the end of the process without a drain.
func (p *process) requestExit() {
	select {
	case p.exitRequested <- struct{}{}:
	default: // a request is pending already
	}
}

// registerMetrics registers the metrics of the process.
func (p *process) registerMetrics() {
	p.metrics.Func(metrics.ConfigTime, func() float64 {
		if s := p.state.Load(); s != nil {
			return float64(s.appliedAt.UnixMilli()) / 1000
		}
		return 0
	})
	p.metrics.Func(metrics.Draining, func() float64 {
		if p.server.Draining() {
			return 1
		}
		return 0
	})
}
