package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/internal/run"
	"github.com/weft-proxy/weft/pkg/config"
)

// startFlags are the flags of start.
type startFlags struct {
	source
	logLevel     string
	logJSON      bool
	drainSeconds int // seconds; negative: the configuration's value
	concurrency  int
}

func startCommand() *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use:   "start [-c FILE]",
		Short: "Run the proxy",
		Long: "Start runs the configuration, or without a file the built-in example. The log goes\n" +
			"to stderr, unless default_log_path names another destination.\n\n" +
			"SIGHUP reads the file again, as weft reload does. If the file is rejected, the log has the\n" +
			"reasons and the previous configuration stays active. SIGTERM stops accepting and drains for at\n" +
			"most the drain time. SIGINT exits immediately. SIGUSR1 reopens the log files.",
		Example: "  weft start\n" +
			"  weft start -c config.json\n" +
			"  MOSN_CONFIG=config.json weft start -l DEBUG --drain-time-s 10",
		Args: rejectArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.path == "" {
				f.path = os.Getenv("MOSN_CONFIG")
			}
			if err := f.check(); err != nil {
				return err
			}
			return start(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.path, "config", "c", "", "configuration `FILE`, or - for standard input; also set by MOSN_CONFIG (default: the built-in example)")
	flags.BoolVar(&f.lenient, "lenient", false, "report unknown keys as warnings")
	flags.StringVarP(&f.logLevel, "log-level", "l", "", "log `LEVEL`, overrides the configuration: TRACE DEBUG INFO WARN ERROR CRITICAL OFF")
	flags.BoolVar(&f.logJSON, "log-json", false, "write the log as JSON, overrides default_log_format")
	flags.IntVar(&f.drainSeconds, "drain-time-s", -1, "maximum `SECONDS` of the drain after SIGTERM, overrides graceful_timeout")
	flags.IntVar(&f.concurrency, "concurrency", 0, "`NUMBER` of processors to use, overrides processor")
	acceptLauncherFlags(cmd)
	return cmd
}

// acceptLauncherFlags accepts and ignores flags that launchers such as Istio's pilot-agent pass.
func acceptLauncherFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, name := range []struct{ long, short string }{
		{"service-cluster", "s"}, {"service-node", "n"}, {"service-type", "p"}, {"service-meta", ""},
		{"cluster-domain", ""}, {"restart-epoch", ""}, {"parent-shutdown-time-s", ""}, {"base-id", ""},
		{"local-address-ip-version", ""}, {"component-log-level", ""}, {"log-format", ""}, {"log-format-prefix-with-location", ""},
		{"drain-strategy", ""}, {"max-obj-name-len", ""}, {"allow-unknown-fields", ""}, {"feature-gates", "f"},
	} {
		flags.StringP(name.long, name.short, "", "accepted for compatibility with launchers; no effect")
		_ = flags.MarkHidden(name.long) // fails only for a flag that does not exist
	}
}

// gcPercent is the value of GOGC if the environment does not set it: half of Go's default, to save
// memory. Collections are rare even so, because requests hardly allocate.
const gcPercent = 50

// start runs the configuration until a signal ends the process.
func start(ctx context.Context, f startFlags) error {
	file, diagnostics := f.open()
	printDiagnostics(os.Stderr, diagnostics)
	if file == nil {
		return &exitError{status: 1}
	}
	f.override(file.Snapshot)
	if n := file.Snapshot.Server.MaxProcs; n > 0 {
		runtime.GOMAXPROCS(n)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)

	p, err := newProcess(f, file)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.start(ctx, file); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(banner(f.source, p.server.Running())); err != nil {
		p.log.Warn("cannot write to standard output", "error", err)
	}
	return p.run(ctx, signals)
}

// check returns an error if the flags are invalid.
func (f *startFlags) check() error {
	if f.logLevel == "" || slices.Contains(levels(), f.level()) {
		return nil
	}
	var names []string
	for _, l := range levels() {
		names = append(names, string(l))
	}
	return fmt.Errorf("--log-level %s: expected one of %s", f.logLevel, strings.Join(names, ", "))
}

// level returns the level of --log-level. Envoy's "warning" means WARN.
func (f *startFlags) level() config.Level {
	name := strings.ToUpper(f.logLevel)
	if name == "WARNING" {
		name = "WARN"
	}
	return config.Level(name)
}

// override replaces values of the file with the values of flags that are set.
func (f *startFlags) override(c *config.Snapshot) {
	if f.concurrency > 0 {
		c.Server.MaxProcs = f.concurrency
	}
	if f.drainSeconds >= 0 {
		c.Server.GracefulTimeout = time.Duration(f.drainSeconds) * time.Second
	}
	if f.logJSON {
		c.Server.Log.JSON = true
	}
	if f.logLevel != "" {
		c.Server.Log.Level = f.level()
	}
}

// handleSignals handles signals and drain requests of the admin port. It returns run.ErrDone when the
// process should exit. It never waits for a reload, so a reload cannot delay a shutdown.
func (p *process) handleSignals(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				p.requestReload()
			case syscall.SIGUSR1:
				p.reopenLogs()
			case syscall.SIGTERM:
				return p.drain("SIGTERM", signals)
			default:
				return p.exitNow(s.String())
			}
		case <-p.drainRequested:
			return p.drain(requesterAdmin, signals)
		case <-p.exitRequested:
			return p.exitNow(requesterAdmin)
		case <-ctx.Done():
			return nil
		}
	}
}

// requesterAdmin names the admin port in logs about the end of the process.
const requesterAdmin = "admin"

// exitNow ends the process without a drain.
func (p *process) exitNow(requester string) error {
	p.shuttingDown.Store(true)
	p.server.StopWaiting()
	p.log.Info("exiting immediately", "by", requester)
	return run.ErrDone
}

// defaultDrainReportInterval is the interval between log lines during a drain.
const defaultDrainReportInterval = 5 * time.Second

// drain ends the process gracefully; another SIGTERM or SIGINT, or /quitquitquit, aborts the drain.
func (p *process) drain(requester string, signals <-chan os.Signal) error {
	started, timeout := time.Now(), p.drainTime()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	p.shuttingDown.Store(true)
	p.server.StopWaiting() // aborts a reload that waits for hosts
	connections, requests := p.server.Remaining()
	p.log.Info("draining", "by", requester, "seconds", timeout.Seconds(), "connections", connections, "requests", requests)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.services != nil {
			p.services.unregisterAll(ctx) // before Drain, so that consumers stop sending requests
		}
		p.server.Drain(ctx)
	}()
	ticker := time.NewTicker(p.drainReportInterval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			p.log.Info("drained", "seconds", seconds(time.Since(started)))
			return run.ErrDone
		case <-ticker.C:
			connections, requests := p.server.Remaining()
			p.log.Info("still draining", "connections", connections, "requests", requests, "seconds_left", seconds(timeout-time.Since(started)))
		case <-p.exitRequested:
			p.log.Info("drain aborted", "by", requesterAdmin)
			cancel()
		case s := <-signals:
			if s == syscall.SIGINT || s == syscall.SIGTERM {
				p.log.Info("drain aborted", "signal", s.String())
				cancel()
			}
		}
	}
}

// seconds returns d in seconds, not negative and rounded for logs.
func seconds(d time.Duration) float64 { return max(d, 0).Round(time.Millisecond).Seconds() }
