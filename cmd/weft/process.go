package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/run"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	h2 "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/stream/http2"
	"github.com/weft-proxy/weft/pkg/stream/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dns"
)

// process is everything that runs: the server, its logs and metrics, and the
// admin port.
type process struct {
	flags startFlags
	// checking: nothing is opened, bound or connected; what start would refuse is found.
	checking bool
	errors   bytes.Buffer // the log's errors, a line each, while checking: nothing else runs then

	log      *slog.Logger
	level    *slog.LevelVar
	output   *logOutput
	logs     *logfile.Set
	metrics  *metrics.Registry
	h2       *http2.Engine
	rpc      *xprotocol.Engine
	resolver *dns.Discovery
	server   *proxy.Server
	control  *control  // nil: the file says all
	services *services // nil: no Dubbo services are published or subscribed

	applying   sync.Mutex // held by who changes what the control plane's is laid over
	state      atomic.Pointer[state]
	started    time.Time
	drainAsked chan struct{}
	// reloads are requests to read the file again. One that waits stands for all that come
	// until it is served.
	reloads     chan reloadRequest
	began       *config.Snapshot // the file of the start, as flags changed it
	pidFile     string           // as written; "": none. Guarded by applying
	drainReport time.Duration    // between two lines of the log while draining
	leaving     atomic.Bool      // a drain has begun
	ports       []*admin.Server  // the operator's
}

// state is what the admin port tells of configuration.
type state struct {
	file     *configjson.File
	applied  time.Time
	rejected *rejection // the last reload, if it was refused
}

type rejection struct {
	at      time.Time
	reasons []string
}

// newProcess makes everything that does not yet run.
func newProcess(f startFlags, file *configjson.File) (*process, error) {
	return makeProcess(&process{flags: f}, file)
}

// makeProcess completes a process that has its flags.
func makeProcess(p *process, file *configjson.File) (*process, error) {
	*p = process{
		flags:       p.flags,
		checking:    p.checking,
		level:       new(slog.LevelVar),
		started:     time.Now(),
		drainAsked:  make(chan struct{}, 1),
		drainReport: usualDrainReport,
		reloads:     make(chan reloadRequest, 1),
		began:       file.Snapshot,
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
		ConnectionFilters: gates(),
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
	var err error
	if p.control, err = p.newControl(file.Snapshot); err != nil {
		return nil, err
	}
	if p.services, err = p.newServices(file.Snapshot); err != nil {
		return nil, err
	}
	p.exportState()
	return p, nil
}

func newRegistry() *metrics.Registry {
	o := metrics.Options{Reasons: []string{protocol.ReasonNone.String()}, Version: version, Revision: revision()}
	for r := range protocol.Reasons() {
		o.Reasons = append(o.Reasons, r.String())
	}
	for c := range network.Causes() {
		o.Causes = append(o.Causes, c.String())
	}
	return metrics.New(o)
}

// begin applies the first configuration and opens the operator's ports, which
// answer once run is called.
func (p *process) begin(ctx context.Context, file *configjson.File) error {
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
	return p.movePID(file.Snapshot.Server.PIDFile)
}

// enforce makes next the configuration that the server runs. While checking it finds only
// what the server would refuse.
func (p *process) enforce(ctx context.Context, next *config.Snapshot) error {
	if p.checking {
		return p.server.Check(next)
	}
	return p.server.Apply(ctx, next)
}

// applyFirst is apply for the first configuration: with the services of the last run, or
// without them, if they are what is wrong.
func (p *process) applyFirst(ctx context.Context, file *configjson.File) error {
	err := p.apply(ctx, file)
	if err == nil || p.services == nil {
		return err
	}
	p.services.displace()
	if err := p.apply(ctx, file); err != nil {
		return err
	}
	p.log.Error("the file does not agree with what the application subscribed to before, which is tried one by one", "error", err)
	return nil
}

// run serves until a signal, the operator, a failure or ctx ends it.
func (p *process) run(ctx context.Context, signals <-chan os.Signal) error {
	tasks := []run.Task{
		{Name: "signals", Run: func(ctx context.Context) error { return p.obey(ctx, signals) }},
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
	if p.control != nil {
		tasks = append(tasks, run.Task{Name: "control plane", Run: p.control.Run})
	}
	if p.services != nil {
		tasks = append(tasks, p.services.tasks()...)
	}
	for _, port := range p.ports {
		tasks = append(tasks, run.Task{Name: "operator's port", Run: port.Run})
	}
	return run.Group(ctx, 0, tasks...)
}

// apply makes a configuration the running one.
func (p *process) apply(ctx context.Context, file *configjson.File) error {
	p.applying.Lock()
	defer p.applying.Unlock()
	base, undo := file.Snapshot, func() {}
	if p.services == nil && file.Snapshot.Dubbo.Enable {
		p.later("dubbo_registry")
	}
	if err := joinBootstrap(p.control, file.Snapshot, p.log); err != nil {
		return err
	}
	if p.services != nil {
		var err error
		if base, undo, err = p.services.over(file.Snapshot); err != nil {
			return err
		}
	}
	enforce := p.enforce
	if p.control != nil {
		enforce = p.control.Rebase
	}
	if err := enforce(ctx, base); err != nil {
		undo()
		return err
	}
	m := file.Snapshot.Metrics
	p.metrics.Exclude(metrics.Exclusion{All: m.RejectAll, Labels: m.ExcludeLabels, Names: m.ExcludeKeys})
	p.state.Store(&state{file: file, applied: time.Now()})
	p.metrics.Counter(metrics.ConfigReloads, metrics.ResultApplied).Add(1)
	return nil
}

// drainTime is how long SIGTERM waits; 0: it does not.
func (p *process) drainTime() time.Duration { return p.server.Running().Server.GracefulTimeout }

// end stops what still runs and writes what waits to be written.
func (p *process) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once: a graceful end was before
	p.server.Drain(ctx)
	p.h2.Close()
	p.rpc.Close()
	p.resolver.Close()
	if p.services != nil {
		p.services.close()
	}
	for _, port := range p.ports {
		_ = port.Close() // it is closed already if it ran
	}
	if p.pidFile != "" {
		_ = os.Remove(p.pidFile) // it may have been removed already
	}
	p.output.close()
}

func (p *process) reopenLogs() {
	if err := p.logs.Reopen(); err != nil {
		p.log.Error("reopening access logs", "error", err)
	}
	if err := p.output.reopen(); err != nil {
		p.log.Error("reopening the log", "error", err)
	}
}

// movePID writes the process id to path and removes the file that held it before.
func (p *process) movePID(path string) error {
	if path == p.pidFile {
		return nil
	}
	if path != "" {
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil { //nolint:gosec // a pid is for everybody to read
			return fmt.Errorf("pid file: %w", err)
		}
	}
	if p.pidFile != "" {
		_ = os.Remove(p.pidFile) // it may have been removed already
	}
	p.pidFile = path
	return nil
}
