package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/bench/process"
)

// scaleResult is the cost of a large configuration for a build of Weft.
type scaleResult struct {
	Proxy    string `json:"proxy"`
	Clusters int    `json:"clusters"`
	Hosts    int    `json:"hosts"`
	Routes   int    `json:"routes"`
	Bytes    int    `json:"bytes"` // of the file

	Check      stat `json:"check_s"`        // duration of weft check
	Start      stat `json:"start_s"`        // from exec to the first response of the last route
	Both       stat `json:"both_s"`         // check and start
	CheckPeak  stat `json:"check_peak_mb"`  // highest RSS
	StartPeak  stat `json:"start_peak_mb"`  // highest RSS until the first response
	Reload     stat `json:"reload_s"`       // from SIGHUP to the first response of the changed route
	ReloadPeak stat `json:"reload_peak_mb"` // highest RSS of the process, including its start
	Resident   stat `json:"resident_mb"`    // stable RSS after the reload
}

// These are the project's targets for scaleSize, and the maximum number of rounds.
const (
	maxScaleSeconds  = 3
	maxReloadSeconds = 1
	maxScalePeakMB   = 300
	maxScaleRounds   = 3 // the results of rounds differ little
)

func scaleSize() peer.Scale { return peer.Scale{Clusters: 10000, Domains: 1000, Routes: 50000} }

func (r scaleResult) verdicts() []verdict {
	return []verdict{
		upperBoundVerdict(scaleRow, r.Proxy, "check and start", r.Both, maxScaleSeconds, "s"),
		upperBoundVerdict(scaleRow, r.Proxy, "peak RSS of the start", r.StartPeak, maxScalePeakMB, "MB"),
		upperBoundVerdict(scaleRow, r.Proxy, "peak RSS of the check", r.CheckPeak, maxScalePeakMB, "MB"),
		upperBoundVerdict(scaleRow, r.Proxy, "reload of one route", r.Reload, maxReloadSeconds, "s"),
	}
}

func scaleMarkdown(results []scaleResult) string {
	text := fmt.Sprintf("%d clusters, %d hosts, %d routes: a file of %.1f MB.\n\n",
		results[0].Clusters, results[0].Hosts, results[0].Routes, float64(results[0].Bytes)/megabyte)
	t := newTable("", "check s", "start s", "peak RSS check MB", "peak RSS start MB", "reload s", "peak RSS after reload MB", "RSS stable MB")
	for _, r := range results {
		t.row(r.Proxy, r.Check.format(2), r.Start.format(2), r.CheckPeak.format(0), r.StartPeak.format(0),
			r.Reload.format(2), r.ReloadPeak.format(0), r.Resident.format(0))
	}
	return text + t.text.String()
}

// runScale measures every build of Weft.
func (env *environment) runScale(ctx context.Context) error {
	for _, p := range env.programs {
		if !slices.Contains(env.options.wefts(), p.Name) {
			continue
		}
		result, err := env.scale(ctx, p)
		if err != nil {
			return fmt.Errorf("row %s, %s: %w", scaleRow, p.Name, err)
		}
		env.report.Scale = append(env.report.Scale, result)
		env.logf("%s  %-8s check %.2f s, start %.2f s, peak %.0f MB, reload %.2f s", scaleRow, p.Name,
			result.Check.Median, result.Start.Median, result.StartPeak.Median, result.Reload.Median)
	}
	return nil
}

func (env *environment) scale(ctx context.Context, p peer.Program) (scaleResult, error) {
	size := scaleSize()
	r := scaleResult{Proxy: p.Name, Clusters: size.Clusters, Hosts: 2 * size.Clusters, Routes: size.Routes}
	var rounds []scaleRound
	for range min(env.options.rounds, maxScaleRounds) {
		round, err := env.scaleRound(ctx, p, size)
		if err != nil {
			return r, err
		}
		rounds = append(rounds, round)
		r.Bytes = round.bytes
	}
	median := func(value func(scaleRound) float64) stat {
		values := make([]float64, len(rounds))
		for i, round := range rounds {
			values[i] = value(round)
		}
		return summarizeValues(values)
	}
	r.Check = median(func(o scaleRound) float64 { return o.check.Seconds() })
	r.Start = median(func(o scaleRound) float64 { return o.start.Seconds() })
	r.Both = median(func(o scaleRound) float64 { return (o.check + o.start).Seconds() })
	r.Reload = median(func(o scaleRound) float64 { return o.reload.Seconds() })
	r.CheckPeak = median(func(o scaleRound) float64 { return o.checkPeak / megabyte })
	r.StartPeak = median(func(o scaleRound) float64 { return float64(o.started.Peak) / megabyte })
	r.ReloadPeak = median(func(o scaleRound) float64 { return float64(o.reloaded.Peak) / megabyte })
	r.Resident = median(func(o scaleRound) float64 { return float64(o.reloaded.Resident) / megabyte })
	return r, nil
}

// scaleRound holds the measurements of one process with the large configuration.
type scaleRound struct {
	bytes             int
	check             time.Duration
	checkPeak         float64 // bytes
	start, reload     time.Duration
	started, reloaded process.Memory
}

func (env *environment) scaleRound(ctx context.Context, p peer.Program, size peer.Scale) (r scaleRound, err error) {
	ports, err := env.programEnv.Ports.Take(2)
	if err != nil {
		return r, err
	}
	config := peer.Config{Listen: ports[0], Admin: ports[1], Origin: env.programEnv.Origin}
	text, target, err := peer.WeftScale(config, size, false)
	if err != nil {
		return r, err
	}
	changed, _, err := peer.WeftScale(config, size, true)
	if err != nil {
		return r, err
	}
	r.bytes = len(text)
	file := filepath.Join(env.dir, "scale.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return r, err
	}
	if r.check, r.checkPeak, err = env.check(ctx, p, file); err != nil {
		return r, err
	}
	start := time.Now()
	running, err := env.programEnv.Launch(ctx, p, peer.WeftStartArgs(file), ports[0], ports[1], peer.HTTP(target, 200))
	if err != nil {
		return r, err
	}
	defer running.Stop()
	r.start = time.Since(start)
	if r.started, err = process.ReadMemory(running.PIDs); err != nil {
		return r, err
	}
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		return r, err
	}
	start = time.Now()
	if err := running.Signal(syscall.SIGHUP); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := running.Await(ctx, peer.HTTP(target, 204)); err != nil {
		return r, fmt.Errorf("reload: %w", err)
	}
	r.reload = time.Since(start)
	r.reloaded, err = awaitStableMemory(ctx, running.PIDs)
	return r, err
}

// check runs "weft check" on the CPU of the proxy.
func (env *environment) check(ctx context.Context, p peer.Program, file string) (elapsed time.Duration, peak float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path, peer.WeftCheckArgs(file)...)
	log, err := os.CreateTemp(env.dir, "check-*.log")
	if err != nil {
		return 0, 0, err
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	start := time.Now()
	if err := env.programEnv.Launcher.Start(cmd, env.proxyCPU); err != nil {
		return 0, 0, err
	}
	if err := cmd.Wait(); err != nil {
		output, _ := os.ReadFile(log.Name()) // used only in the message
		return 0, 0, fmt.Errorf("check: %w\n%s", err, output[:min(len(output), 2000)])
	}
	elapsed = time.Since(start)
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, 0, fmt.Errorf("check: resource usage is a %T", cmd.ProcessState.SysUsage())
	}
	return elapsed, float64(usage.Maxrss) * 1024, nil
}
