package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/run"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/inspect"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	h2 "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/stream/http2"
	"github.com/weft-proxy/weft/pkg/stream/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dns"
)

// process holds everything that runs: the server, its logs and metrics, and the admin port.
type process struct {
	flags startFlags
	// checking: the process only validates the configuration. It changes no file, opens no port and
	// does not connect.
	checking bool
	logged   bytes.Buffer // log lines of level WARN or higher while checking; used by one goroutine

	log          *slog.Logger
	level        *slog.LevelVar
	output       *logOutput
	logs         *logfile.Set
	metrics      *metrics.Registry
	h2           *http2.Engine
	rpc          *xprotocol.Engine
	resolver     *dns.Discovery
	server       *proxy.Server
	layers       *layers.Stack
	services     *dubboServices // nil: Dubbo services are disabled
	controlPlane *controlPlane  // client of the control planes; nil: the file has no bootstrap

	state          atomic.Pointer[configState]
	startedAt      time.Time
	drainRequested chan struct{}
	exitRequested  chan struct{}
	// reloads has capacity 1: a pending request also covers later SIGHUPs.
	reloads             chan reloadRequest
	initialConfig       *config.Snapshot // the file at the start, with overrides of flags
	pidFile             string           // path of the written PID file; "": none; owned by serveReloads while run runs
	drainReportInterval time.Duration    // interval between log lines during a drain
	shuttingDown        atomic.Bool      // a shutdown has begun
	ports               []*admin.Server  // admin and Prometheus ports
}

// configState is the configuration state that the admin port shows.
type configState struct {
	file      *configjson.File
	appliedAt time.Time
	rejected  *inspect.Rejection // of the last reload, if it was rejected
}

// newProcess creates a process that does not run yet.
func newProcess(f startFlags, file *configjson.File) (*process, error) {
	return initProcess(&process{flags: f}, file)
}

// initProcess initializes a process whose flags are set.
func initProcess(p *process, file *configjson.File) (*process, error) {
	*p = process{
		flags:               p.flags,
		checking:            p.checking,
		level:               new(slog.LevelVar),
		startedAt:           time.Now(),
		drainRequested:      make(chan struct{}, 1),
		exitRequested:       make(chan struct{}, 1),
		drainReportInterval: defaultDrainReportInterval,
		reloads:             make(chan reloadRequest, 1),
		initialConfig:       file.Snapshot,
	}
	if err := p.openLog(file.Snapshot.Server.Log); err != nil {
		return nil, err
	}
	p.metrics = newRegistry()
	p.logs = logfile.NewSet(logfile.SetOptions{
		Log:       p.log,
		CheckOnly: p.checking,
		Meter: func(path string, dropped func() float64) func() {
			return p.metrics.Func(metrics.LogDropped, dropped, path)
		},
	})
	p.h2 = http2.New(p.log, func(f h2.Flood) { p.metrics.Counter(metrics.HTTP2Floods, f.String()).Add(1) })
	p.rpc = xprotocol.New(p.log)
	p.resolver = dns.New(dns.Options{Count: p.countLookup})
	p.server = proxy.NewServer(proxy.Options{
		Protocols:         protocols(p.h2, p.rpc),
		StreamFilters:     streamFilters(),
		ConnectionFilters: connectionFilters(),
		TCPProxy:          tcpProxy,
		UDPProxy:          udpProxy,
		Upstream: upstream.Options{
			Policies:    policies(),
			Codecs:      heartbeats(),
			Discoveries: p.discoveries(),
			Meter:       proxy.Meter{Registry: p.metrics},
			Log:         p.log,
		},
		Logs:    p.logs,
		Metrics: p.metrics,
		Log:     p.log,
	})
	p.layers = layers.New(p.applyDelta)
	var err error
	if p.services, err = p.newServices(file.Snapshot); err != nil {
		return nil, err
	}
	if p.controlPlane, err = p.newControlPlane(file.Snapshot); err != nil {
		return nil, err
	}
	p.registerMetrics()
	return p, nil
}

func newRegistry() *metrics.Registry {
	o := metrics.Options{Reasons: []string{protocol.ReasonNone.String()}, Version: version, Revision: revision()}
	for r := range protocol.Reasons() {
		o.Reasons = append(o.Reasons, r.String())
	}
	for c := range network.CloseReasons() {
		o.CloseReasons = append(o.CloseReasons, c.String())
	}
	return metrics.New(o)
}

// start applies the first configuration and opens the admin and Prometheus ports and the API of
// Dubbo services. These respond once run is called.
func (p *process) start(ctx context.Context, file *configjson.File) error {
	if err := p.applyFirst(ctx, file); err != nil {
		return err
	}
	if err := p.openAdmin(ctx, file.Snapshot); err != nil {
		return err
	}
	if p.services != nil {
		if err := p.services.open(ctx); err != nil {
			return err
		}
	}
	return p.movePIDFile(file.Snapshot.Server.PIDFile)
}

// applyDelta applies d to the server. While checking, it only returns the error that Apply would
// return.
func (p *process) applyDelta(ctx context.Context, d config.Delta) error {
	if p.checking {
		return p.server.Check(d.Next())
	}
	return p.server.Apply(ctx, d)
}

// applyFirst applies the first configuration together with the Dubbo services of the state file. If
// that fails, it retries without these services.
func (p *process) applyFirst(ctx context.Context, file *configjson.File) error {
	err := p.apply(ctx, file)
	if err == nil || p.services == nil {
		return err
	}
	p.services.applySeparately()
	if err := p.apply(ctx, file); err != nil {
		return err
	}
	p.log.Error("the file conflicts with the restored subscriptions of the application, which are applied one by one", "error", err)
	return nil
}

// run serves until a signal, a request of the admin port, a failure or ctx ends it.
func (p *process) run(ctx context.Context, signals <-chan os.Signal) error {
	tasks := []run.Task{
		{Name: "signals", Run: func(ctx context.Context) error { return p.handleSignals(ctx, signals) }},
		{Name: "listeners", Run: func(ctx context.Context) error {
			select {
			case err := <-p.server.Failed():
				return err
			case <-ctx.Done():
				return nil
			}
		}},
		{Name: "reloads", Run: func(ctx context.Context) error { p.serveReloads(ctx); return nil }},
		{Name: "memory", Run: func(ctx context.Context) error { trim(ctx, p.log); return nil }},
		{Name: "certificates", Run: func(ctx context.Context) error { p.server.WatchCertificates(ctx); return nil }},
	}
	if p.controlPlane != nil {
		tasks = append(tasks, run.Task{Name: "control plane", Run: p.controlPlane.Run})
	}
	if p.services != nil {
		tasks = append(tasks, p.services.tasks()...)
	}
	for _, port := range p.ports {
		tasks = append(tasks, run.Task{Name: "admin port", Run: port.Run})
	}
	return run.Group(ctx, 0, tasks...)
}

// apply makes the configuration in file the active one.
func (p *process) apply(ctx context.Context, file *configjson.File) error {
	if err := warnNewBootstrap(p.controlPlane, file.Snapshot, p.log); err != nil {
		return err
	}
	if err := p.layers.SetFile(ctx, file.Snapshot); err != nil {
		return err
	}
	m := file.Snapshot.Metrics
	p.metrics.Exclude(metrics.Exclusion{All: m.RejectAll, Labels: m.ExcludeLabels, Names: m.ExcludeKeys})
	p.state.Store(&configState{file: file, appliedAt: time.Now()})
	p.metrics.Counter(metrics.ConfigReloads, metrics.ResultApplied).Add(1)
	return nil
}

// drainTime returns how long SIGTERM waits for requests in flight; 0: it does not wait.
func (p *process) drainTime() time.Duration { return p.server.Running().Server.GracefulTimeout }

// stop stops everything that still runs and flushes the logs.
func (p *process) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a graceful drain has already ended
	p.server.Drain(ctx)
	p.h2.Close()
	p.rpc.Close()
	p.resolver.Close()
	if p.services != nil {
		p.services.close()
	}
	for _, port := range p.ports {
		_ = port.Close() // already closed if it ran
	}
	if p.pidFile != "" {
		_ = os.Remove(p.pidFile) // the file may already be removed
	}
	p.output.close()
}

func (p *process) reopenLogs() {
	if err := p.logs.Reopen(); err != nil {
		p.log.Error("cannot reopen access logs", "error", err)
	}
	if err := p.output.reopen(); err != nil {
		p.log.Error("cannot reopen the log", "error", err)
	}
}

// movePIDFile writes the process ID to path and removes the previous PID file.
func (p *process) movePIDFile(path string) error {
	if path == p.pidFile {
		return nil
	}
	if path != "" {
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil { //nolint:gosec // PID files are world-readable
			return fmt.Errorf("pid file: %w", err)
		}
	}
	if p.pidFile != "" {
		_ = os.Remove(p.pidFile) // the file may already be removed
	}
	p.pidFile = path
	return nil
}
