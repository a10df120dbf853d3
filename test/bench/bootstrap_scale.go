package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/bench/process"
)

// bootstrapScaleResult is the cost of a large bootstrap file for Weft or Envoy.
type bootstrapScaleResult struct {
	Proxy    string `json:"proxy"`
	Start    stat   `json:"start_s"`     // from exec to the first response of the last route
	Peak     stat   `json:"peak_mb"`     // highest RSS until the first response
	Resident stat   `json:"resident_mb"` // stable RSS

	starts, peaks, residents []float64
}

// bootstrapScaleLimit bounds Weft's start and memory, relative to Envoy's.
const bootstrapScaleLimit = 0.5

func bootstrapScaleSize() peer.Scale { return peer.Scale{Clusters: 5000, Domains: 400, Routes: 20000} }

// bootstrapScaleVerdicts compares a build of Weft with Envoy.
func bootstrapScaleVerdicts(weft string, results []bootstrapScaleResult) []verdict {
	var own, envoy *bootstrapScaleResult
	for i := range results {
		switch results[i].Proxy {
		case weft:
			own = &results[i]
		case "envoy":
			envoy = &results[i]
		}
	}
	if own == nil || envoy == nil {
		return nil
	}
	ratio := func(what string, own, envoy []float64) verdict {
		ratios := make([]float64, min(len(own), len(envoy)))
		for i := range ratios {
			ratios[i] = own[i] / envoy[i]
		}
		return upperBoundVerdict(bootstrapScaleRow, weft, what+" / envoy's", summarizeValues(ratios), bootstrapScaleLimit, "x")
	}
	return []verdict{
		ratio("start", own.starts, envoy.starts),
		ratio("peak RSS", own.peaks, envoy.peaks),
		ratio("stable RSS", own.residents, envoy.residents),
	}
}

func bootstrapScaleMarkdown(results []bootstrapScaleResult) string {
	size := bootstrapScaleSize()
	text := fmt.Sprintf("%d clusters and %d routes in one bootstrap file.\n\n", size.Clusters, size.Routes)
	t := newTable("", "start s", "peak RSS MB", "RSS stable MB")
	for _, r := range results {
		t.row(r.Proxy, r.Start.format(2), r.Peak.format(0), r.Resident.format(0))
	}
	return text + t.text.String()
}

// runBootstrapScale measures Envoy and every build of Weft in turn.
func (env *environment) runBootstrapScale(ctx context.Context) error {
	var programs []peer.Program
	for _, p := range env.programs {
		if env.options.isWeft(p.Name) || p.Name == "envoy" {
			programs = append(programs, p)
		}
	}
	results := make([]bootstrapScaleResult, len(programs))
	for range min(env.options.rounds, maxScaleRounds) {
		for i, p := range programs {
			r := &results[i]
			r.Proxy = p.Name
			if err := env.bootstrapScaleRound(ctx, p, r); err != nil {
				return fmt.Errorf("row %s, %s: %w", bootstrapScaleRow, p.Name, err)
			}
			env.logf("%s  %-8s start %.2f s, peak %.0f MB", bootstrapScaleRow, p.Name, r.starts[len(r.starts)-1], r.peaks[len(r.peaks)-1])
		}
	}
	for i := range results {
		r := &results[i]
		r.Start, r.Peak, r.Resident = summarizeValues(r.starts), summarizeValues(r.peaks), summarizeValues(r.residents)
	}
	env.report.BootstrapScale = results
	return nil
}

// bootstrapScaleRound starts a program once.
func (env *environment) bootstrapScaleRound(ctx context.Context, p peer.Program, r *bootstrapScaleResult) error {
	ports, err := env.programEnv.Ports.Take(2)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(env.dir, "scale-")
	if err != nil {
		return err
	}
	file, target, err := peer.BootstrapScale(peer.Config{Dir: dir, Listen: ports[0], Admin: ports[1], Origin: env.programEnv.Origin}, bootstrapScaleSize())
	if err != nil {
		return err
	}
	arguments := peer.WeftStartArgs(file)
	if p.Name == "envoy" {
		arguments = peer.EnvoyStartArgs(file)
	}
	start := time.Now()
	running, err := env.programEnv.Launch(ctx, p, arguments, ports[0], ports[1], peer.HTTP(target, 200))
	if err != nil {
		return err
	}
	defer running.Stop()
	r.starts = append(r.starts, time.Since(start).Seconds())
	memory, err := process.ReadMemory(running.PIDs)
	if err != nil {
		return err
	}
	stable, err := awaitStableMemory(ctx, running.PIDs)
	if err != nil {
		return err
	}
	r.peaks = append(r.peaks, float64(memory.Peak)/megabyte)
	r.residents = append(r.residents, float64(stable.Resident)/megabyte)
	return nil
}
