package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
)

// openAdmin opens the admin port and the Prometheus port. They are bound once: a change of their
// addresses takes effect after a restart, see restartOnly.
func (p *process) openAdmin(ctx context.Context, c *config.Snapshot) error {
	if c.Admin != nil {
		s, err := admin.Listen(ctx, admin.Options{
			Address: c.Admin.Address,
			Mode:    c.Admin.Mode,
			Hosts:   c.Admin.Hosts,
			Pprof:   c.Admin.Pprof,
			Sources: p.sources(),
			Log:     p.log,
		})
		if err != nil {
			return err
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

func (p *process) sources() admin.Sources {
	return admin.Sources{
		State:     p.adminState,
		Config:    p.adminConfig,
		Clusters:  p.adminClusters,
		Listeners: p.adminListeners,
		Routes:    p.adminRoutes,
		Overload:  p.adminOverload,
		Explain:   p.adminExplain,
		XDS:       p.adminXDS,
		Dump:      p.adminDump,

		EnvoyClusters: p.adminEnvoyClusters,
		Stats:         p.adminStats,

		ServerInfo: p.adminServerInfo,
		Level:      func() string { return levelName(p.level.Level()) },
		SetLevel:   p.setLevel,
		Version: func() admin.Version {
			return admin.Version{Version: version, Revision: revision(), Go: runtime.Version()}
		},
		Drain: func() {
			select {
			case p.drainRequested <- struct{}{}:
			default: // a request is pending already
			}
		},
		Reload:  p.reloadNow,
		Metrics: p.metrics.Handler(),
	}
}

func (p *process) adminState() admin.State {
	switch {
	case p.shuttingDown.Load(), p.server.Draining():
		return admin.Draining
	case p.server.Running() == nil || !p.xdsReady():
		return admin.Starting
	}
	return admin.Ready
}

func (p *process) adminConfig() admin.Config {
	s := p.state.Load()
	text := s.file.Redacted()
	sum := sha256.Sum256(text)
	c := admin.Config{
		Source:  p.flags.name(),
		Hash:    hex.EncodeToString(sum[:8]),
		Applied: s.applied,
		Config:  json.RawMessage(text),
		Dubbo:   p.adminServices(),
	}
	if r := s.rejected; r != nil {
		c.Rejected = &admin.Rejection{At: r.at, Reasons: r.reasons}
	}
	return c
}

func (p *process) adminClusters(name string) any {
	if name == "" {
		return p.server.Clusters().Describe()
	}
	if one, ok := p.server.Clusters().DescribeOne(name); ok {
		return one
	}
	return nil
}

func (p *process) adminListeners(name string) any {
	all := p.server.Describe()
	if name == "" {
		return all
	}
	for i := range all {
		if all[i].Name == name {
			return all[i]
		}
	}
	return nil
}

func (p *process) adminRoutes(name string) any {
	found := p.server.DescribeRoutes(name)
	switch {
	case name == "":
		return found
	case len(found) == 0:
		return nil
	}
	return found[0]
}

func (p *process) adminOverload() any {
	if s := p.server.Overload(); s != nil {
		return s
	}
	return nil
}

// serverInfo describes the process as Envoy's /server_info does.
type serverInfo struct {
	Version string `json:"version"` // "revision/version/edition/type/TLS library"
	State   string `json:"state"`
	Uptime  string `json:"uptime_current_epoch"` // such as "12s"
	All     string `json:"uptime_all_epochs"`
	Restart string `json:"hot_restart_version"`

	CommandLine map[string]any  `json:"command_line_options"`
	Node        json.RawMessage `json:"node"`
}

func (p *process) adminServerInfo() any {
	up := fmt.Sprintf("%ds", int64(time.Since(p.started).Seconds()))
	s := serverInfo{
		Version: revision() + "/" + version + "/weft/RELEASE/" + runtime.Version(), Uptime: up, All: up, Restart: "disabled",
		CommandLine: map[string]any{"config_path": p.flags.path, "concurrency": runtime.GOMAXPROCS(0)},
		Node:        json.RawMessage("{}"),
	}
	switch p.adminState() {
	case admin.Starting:
		s.State = "PRE_INITIALIZING"
	case admin.Ready:
		s.State = "LIVE"
	case admin.Draining:
		s.State = "DRAINING"
	}
	if c := p.server.Running(); c != nil && len(c.Bootstrap.Node) > 0 {
		s.Node = c.Bootstrap.Node
	}
	return s
}

func (p *process) setLevel(name string) error {
	for _, l := range levels() {
		if strings.EqualFold(string(l), name) {
			p.level.Set(levelOf(l))
			p.log.Info("log level changed", "level", l)
			return nil
		}
	}
	return fmt.Errorf("%q is not a valid log level: expected one of %v", name, levels())
}

// exportState exports the metrics of the process.
func (p *process) exportState() {
	p.metrics.Func(metrics.ConfigTime, func() float64 {
		if s := p.state.Load(); s != nil {
			return float64(s.applied.UnixMilli()) / 1000
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
