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
	logLevel    string
	logJSON     bool
	drain       int // seconds; below 0: as the configuration says
	concurrency int
}

func startCommand() *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use:   "start [-c FILE]",
		Short: "Run the proxy",
		Long: "Start runs the configuration, or without a file the built-in example. The log goes\n" +
			"to stderr.\n\n" +
			"SIGHUP reads the file again, as weft reload does: a bad one is refused with its reasons\n" +
			"and what runs goes on. SIGTERM stops accepting and lets what is under way end within the drain time;\n" +
			"SIGINT ends at once; SIGUSR1 reopens log files.",
		Example: "  weft start\n" +
			"  weft start -c config.json\n" +
			"  MOSN_CONFIG=config.json weft start -l DEBUG --drain-time-s 10",
		Args: noFile,
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
	flags.StringVarP(&f.path, "config", "c", "", "the configuration `FILE`, or - for standard input; also by MOSN_CONFIG (default: the built-in example)")
	flags.BoolVar(&f.lenient, "lenient", false, "unknown keys are warnings")
	flags.StringVarP(&f.logLevel, "log-level", "l", "", "`LEVEL` of the log instead of the configuration's: TRACE DEBUG INFO WARN ERROR CRITICAL OFF")
	flags.BoolVar(&f.logJSON, "log-json", false, "the log is written as JSON, instead of default_log_format")
	flags.IntVar(&f.drain, "drain-time-s", -1, "`SECONDS` that SIGTERM waits for what is under way, instead of graceful_timeout")
	flags.IntVar(&f.concurrency, "concurrency", 0, "`NUMBER` of processors to use, instead of processor")
	acceptLauncherFlags(cmd)
	return cmd
}

// acceptLauncherFlags takes what launchers of the pilot-agent kind pass and
// Weft has no use for.
func acceptLauncherFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, name := range []struct{ long, short string }{
		{"service-cluster", "s"}, {"service-node", "n"}, {"service-type", "p"}, {"service-meta", ""},
		{"cluster-domain", ""}, {"restart-epoch", ""}, {"parent-shutdown-time-s", ""}, {"base-id", ""},
		{"local-address-ip-version", ""}, {"component-log-level", ""}, {"log-format", ""}, {"log-format-prefix-with-location", ""},
		{"drain-strategy", ""}, {"max-obj-name-len", ""}, {"allow-unknown-fields", ""}, {"feature-gates", "f"},
	} {
		flags.StringP(name.long, name.short, "", "accepted for launchers; no effect")
		_ = flags.MarkHidden(name.long) // fails only for a flag that does not exist
	}
}

// garbage is how much may be allocated between two collections, in percent of what
// lives: half of Go's default. Requests allocate nothing, so collections come with
// connections and reloads, and are rare; and beside every application memory counts.
const garbage = 50

// start runs until a signal ends it.
func start(ctx context.Context, f startFlags) error {
	file, diagnostics := f.open()
	report(os.Stderr, diagnostics)
	if file == nil {
		return &exitError{status: 1}
	}
	f.override(file.Snapshot)
	if n := file.Snapshot.Server.Processor; n > 0 {
		runtime.GOMAXPROCS(n)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)

	p, err := newProcess(f, file)
	if err != nil {
		return err
	}
	defer p.end()
	if err := p.begin(ctx, file); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(greeting(f.source, p.server.Running())); err != nil {
		p.log.Warn("nobody reads the greeting", "error", err)
	}
	return p.run(ctx, signals)
}

// check says what is wrong with the flags.
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

// level returns the level that --log-level names. Envoy's "warning" means WARN.
func (f *startFlags) level() config.Level {
	name := strings.ToUpper(f.logLevel)
	if name == "WARNING" {
		name = "WARN"
	}
	return config.Level(name)
}

// override puts what flags say in place of what the file says.
func (f *startFlags) override(c *config.Snapshot) {
	if f.concurrency > 0 {
		c.Server.Processor = f.concurrency
	}
	if f.drain >= 0 {
		c.Server.GracefulTimeout = time.Duration(f.drain) * time.Second
	}
	if f.logJSON {
		c.Server.Log.JSON = true
	}
	if f.logLevel != "" {
		c.Server.Log.Level = f.level()
	}
}

// obey does what signals and the operator ask for, and returns run.ErrDone when that
// is to end. A reload runs on a goroutine of its own: a shutdown does not wait for it.
func (p *process) obey(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				p.askReload()
			case syscall.SIGUSR1:
				p.reopenLogs()
			case syscall.SIGTERM:
				return p.drain("SIGTERM", signals)
			default:
				p.leaving.Store(true)
				p.server.Hurry()
				p.log.Info("ending at once", "signal", s.String())
				return run.ErrDone
			}
		case <-p.drainAsked:
			return p.drain("admin", signals)
		case <-ctx.Done():
			return nil
		}
	}
}

// usualDrainReport is how often a drain logs what it waits for.
const usualDrainReport = 5 * time.Second

// drain ends gracefully; another SIGTERM or SIGINT cuts it short.
func (p *process) drain(by string, signals <-chan os.Signal) error {
	begun, limit := time.Now(), p.drainTime()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	p.leaving.Store(true)
	p.server.Hurry() // a reload that waits for hosts gives up
	connections, requests := p.server.Remaining()
	p.log.Info("draining", "by", by, "seconds", limit.Seconds(), "connections", connections, "requests", requests)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.services != nil {
			p.services.withdraw(ctx) // or callers would go on coming
		}
		p.server.Drain(ctx)
	}()
	report := time.NewTicker(p.drainReport)
	defer report.Stop()
	for {
		select {
		case <-done:
			p.log.Info("drained", "seconds", seconds(time.Since(begun)))
			return run.ErrDone
		case <-report.C:
			connections, requests := p.server.Remaining()
			p.log.Info("still draining", "connections", connections, "requests", requests, "seconds_left", seconds(limit-time.Since(begun)))
		case s := <-signals:
			if s == syscall.SIGINT || s == syscall.SIGTERM {
				p.log.Info("the drain is cut short", "signal", s.String())
				cancel()
			}
		}
	}
}

// seconds rounds for logs.
func seconds(d time.Duration) float64 { return max(d, 0).Round(time.Millisecond).Seconds() }
